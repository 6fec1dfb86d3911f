//! Known bugs, to validate the tests with: each must be caught by a model, a test or the simulator, which names it.

/// A rule left out or done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Heartbeats leave at once, past the gate and the stream, and overtake the effects they vouch for.
    UngatedHeartbeat,
    /// A snapshot's local time is the coordinator's clock instead of the local stable time.
    ReadAboveStable,
    /// The clock does not remember the bound it published (Corrections 21).
    BoundNotRemembered,
    /// A transaction placed exactly at the bound is declared applied, but is not (Corrections 20).
    ApplyBelow,
    /// A replicated effect takes its receiver's region for its origin (Corrections 25).
    ReceiverAsOrigin,
    /// Stable times are overwritten by what was said last (Corrections 28).
    NonMonotoneSnapshot,
    /// A region's minimum leaves out what its partitions have received of their other replicas (Corrections 29).
    OwnEntryOnly,
    /// An inner partition of the stabilization tree tells what it has installed itself, without those below it.
    SubtreeLeftOut,
    /// The commit message goes to a replica that is chosen anew, not to the one that prepared (Corrections 30).
    TargetChosenTwice,
    /// A partition that lost records serves and stamps at once (Corrections 67).
    StampBeforeCatchUp,
    /// A partition vouches for what its peers hold without having taken it.
    VouchForLost,
    /// What a partition takes from a peer, it does not send on to those that lack it (Corrections 36).
    NothingForwarded,
    /// Checkpoints leave out what was lost to concurrent writes.
    LossesNotInCheckpoint,
    /// What one region settled of the losses, another one does not take off its list.
    SettledHereOnly,
    /// What was dropped from the queue for a region counts as sent.
    DroppedCountsAsSent,
    /// What is still to be fetched from the spool for a region counts as sent.
    AwaitedCountsAsSent,
    /// A checkpoint does not say that what is in the spool will be gone.
    SpilledNotTold,
    /// Effects reset everything before them, observed or not (Corrections 75).
    ResetUnobserved,
    /// Who did what is forgotten as soon as every snapshot of the region shows it, also while effects may come from
    /// elsewhere that have not observed it.
    ForgetContext,
    /// A session goes on at once with a context that it is given.
    ContextIgnored,
    /// The local time of a context's region counts as that of any region (Corrections 35).
    ForeignLocalTime,
    /// A survivor does not take from the others what it lacks of an evicted region.
    CutNotReached,
    /// What all survivors have observed is forgotten, also while one of them may still be given effects of an evicted region
    /// that have not.
    ForgottenForLost,
    /// A survivor keeps what it holds of an evicted region above the cut.
    KeptAboveCut,
    /// A copy that learns the cut from its log, as followers do, retains what it holds above.
    KeptByFollowers,
    /// Survivors retain effects that depend on given-up writes which a session may have seen (Corrections 44).
    DependantsKept,
    /// A survivor gives up what committed in an evicted region only, not the other parts of such a transaction.
    PartKept,
    /// What is undecided when a region is evicted is aborted, whatever other survivors hold of it.
    UndecidedGivenUp,
    /// A coordinator goes on with what was given up in its cache until the stable time passes it.
    GivenUpCached,
    /// Reads do not wait until their snapshot is installed.
    ReadNotInstalled,
    /// What effects depend on is not looked at: a snapshot shows them by their place alone.
    DependsOnNothing,
    /// Who takes a partition over begins below what was promised before (Corrections 22).
    PromiseForgotten,
    /// A snapshot's remote time is what is stable of the others, also where that is not below its local time (Corrections 27).
    RemoteNotBelowLocal,
    /// Of two effects at one time each replica performs its own first, whatever their ids (Corrections 31).
    OwnFirstAtATie,
    /// Partitions send the other regions the time only when nothing that has committed waits to be applied
    /// (Corrections 32).
    HeartbeatWhenIdle,
    /// An effect vouches for its place to those that receive it, although another one may share that (Corrections 32).
    EffectsVouch,
    /// Snapshots below the horizon are answered from what is left (Corrections 33).
    ReadBelowHorizon,
    /// What observes does not look whether something undecided is in its way (Corrections 70).
    UndecidedIgnored,
    /// A transaction sees whatever its thread's cache holds when it reads (Corrections 72).
    CacheUnversioned,
    /// Caches forget what the newest snapshot shows, also while an older one is read (Corrections 72).
    PrunedForNewest,
    /// A session goes on although the outcome of its last transaction is not known yet (Corrections 34 and 72).
    UnknownNotAwaited,
    /// The horizon rises, and what is below it is folded, also while a store is built that will replace the one that is there.
    HorizonWhileReplaced,
    /// Coordinators answer, and tell all participants, before the decider has logged the decision (Corrections 73).
    AnsweredBeforeDecision,
    /// Keys are deleted when their deadline has passed here, whatever other regions have done to them in time (Corrections 69).
    ExpiredByOwnClock,
    /// Of the snapshots in use the newest one, time by time, is held readable, not the oldest (Corrections 39).
    HorizonByMaximum,
    /// Reads do not wait for what their own region has not decided (Corrections 41).
    LocalEntryIgnored,
    /// A read does not join what its session depends on (POCC, Algorithm 1, lines 4 and 5).
    ReadsNotTracked,
    /// What is of the own region is shown whatever it depends on, as in Cure, where it depends on stable things only
    /// (Corrections 43).
    LocalAlwaysVisible,
    /// What has arrived of other regions is in the log by its effects only.
    HeardNotLogged,
}

/// The bug of an instance, or none.
pub type Mutants = types::Mutants<Mutant>;
