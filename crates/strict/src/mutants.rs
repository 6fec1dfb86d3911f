//! Known bugs, to validate the harness with: each must be caught by a model, a script or the simulator within a
//! stated bound (`docs/internals/tapir.md`).

/// A rule left out or done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Replicas vote PREPARE-OK whatever they know.
    SkipValidation,
    /// Validation trusts stamps: what is stamped later is no conflict (Corrections 1).
    TrustStamps,
    /// A transaction may be stamped below what it read (Corrections 2).
    StampBelowReads,
    /// A read that found nothing is not validated (Corrections 3).
    AbsentReadsPass,
    /// A greatest stamp names what was observed (Corrections 65).
    ObservedByMaximum,
    /// Bounded subtractions that fit in pairs pass for commuting (Corrections 66).
    PairwiseBounds,
    /// What a transaction saw of which keys there are is not validated (Corrections 78).
    KeysetUnvalidated,
    /// The deletion of an expired key does not commit with who observed it (Corrections 69).
    ExpiryIsNoWrite,
    /// A blind write on a key that has a deadline is taken without an evaluation (Corrections 69).
    BlindWritesIgnoreDeadlines,
    /// Single-key reads believe the first replica that answers (Corrections 16).
    SingleReplicaReads,
    /// Coordinators take f+1 equal results for a fast quorum.
    WrongQuorum,
    /// Replies to one attempt count for the next (Corrections 12).
    MixAttempts,
    /// Commit carries no effects on the last key it names (Corrections 11).
    CommitWithoutEffects,
    /// A repeated Commit is executed again.
    ExecuteAgain,
    /// A late Prepare of a transaction that has ended is executed as if it were new (Corrections 14).
    NoTombstones,
    /// Replicas that may have forgotten their votes serve at once (Corrections 4, 7 and 67).
    ForgetRecovery,
    /// Replicas start a view with their own records (Corrections 5).
    StartViewWithoutRecord,
    /// A leader merges records of every last normal view (Corrections 6).
    MergeEveryView,
    /// Replicas start a view with nothing but its record: they neither keep locks that it does not mention nor fetch the
    /// outcomes first that are the reason why it does not (Corrections 10). Either alone would do.
    DropUnmentionedLocks,
    /// Replicas take Finalize whatever view it was chosen in (Corrections 13).
    FinalizeWithoutView,
    /// Backup coordinators decide from what f+1 replicas say, without finalizing it (Corrections 13).
    RawPollDecides,
    /// The coordinator announces a refusal before it is finalized (Corrections 13).
    TellRefusalEarly,
    /// A leader validates refusals again that may have succeeded (Corrections 13).
    RevalidateRefusals,
    /// A leader judges votes again that may have succeeded by the stamps of lock modes alone (Corrections 71).
    RevalidateByModes,
    /// A promise of NO-VOTE made before any attempt was seen loses to an attempt (Corrections 13).
    NoVoteLosesToAttempts,
    /// Replicas that adopt another result than PREPARE-OK let the locks go (Corrections 13).
    ReleaseOnAdoptedNonOk,
    /// A leader validates against locks of its own record (Corrections 13).
    KeepLocksInMerge,
    /// A shard's leader votes, or says that it has committed, before the log has taken the entry.
    VoteBeforeLog,
    /// The coordinator asks every participant to decide at once, before the others have voted.
    DecideBeforeVotes,
    /// A leader answers reads without asking a quorum whether it still leads.
    UnconfirmedReads,
    /// A leader evaluates single commands on what is applied, not on what is in its log before them.
    EvaluateOnApplied,
    /// What a client sees shows what is in the log and not applied, and may be lost.
    ShowUnapplied,
    /// Each of several single commands that were sent together gets another one's result.
    MixResults,
    /// What is left of a transaction to its last shard is carried out there whoever has the locks.
    PassHolders,
    /// A read that is a whole transaction passes what its leader has voted for, whose decision may be known already.
    ReadsPastVotes,
    /// Leaders take votes' questions under locks that were taken away meanwhile.
    UnprotectedReads,
    /// A phase admits members for as long as they arrive, whatever waits (Corrections 61).
    PhaseWithoutEnd,
    /// The end of a phase wakes only those that wait in other modes (Corrections 61).
    SignalOthersOnly,
    /// A transaction that arrives while a phase runs joins it, past the waiting ones (Corrections 61).
    LatecomersOvertake,
    /// A transaction that waits keeps what older ones wait for (Corrections 62).
    WaitersKeepLocks,
    /// Those that change elements of a key lock the key for that, and not the elements (Corrections 60).
    PlaceWithoutElements,
    /// A transaction that arrives after its host has begun to commit still gets the host's results (Corrections 63).
    CombineAfterCommitBegan,
    /// When a host is refused, the coordinator forgets the transactions that were to commit with it (Corrections 63).
    OrphanSharers,
    /// Those that have committed with their host run again (Corrections 63).
    MemberCountedTwice,
    /// An interval is closed while transactions born in it are prepared and undecided (Corrections 17).
    CloseUndecided,
    /// Replicas accept transactions born in an interval that is being closed (Corrections 14).
    ForgetFloor,
    /// Outcomes are forgotten while another shard may still ask for them.
    ForgetAlone,
    /// Outcomes are forgotten that a vote must be judged by when it is judged again.
    ForgetBelowVotes,
    /// The same of a vote that another replica has given.
    ForgetBelowOthersVotes,
    /// Looks at the keyset are accepted by replicas that lack what they saw.
    AcceptBlindLooks,
    /// What is unknown and older than what was forgotten is taken for aborted.
    ForgottenIsAborted,
    /// A state is taken without executing again what the record knows beyond it.
    StateWithoutRecord,
    /// A state tells what validation keeps of the keys after the keys.
    StampsAfterKeys,
    /// A state that begins at a horizon does not say that absent keys may have been deleted just before.
    ForgetAbsence,
    /// An answer counts for a later question after outcomes.
    StaleOutcomes,
    /// Coordinators count what replicas said in two epochs together (Corrections 83).
    CountTwoEpochs,
    /// An epoch begins before f+1 members of the one before are sealed (Corrections 83).
    StartBeforeSealed,
    /// An epoch begins without what was undecided at the end of the one before (Corrections 83).
    DropUndecidedAtChange,
    /// Replicas forget in a crash that their epoch has ended (Corrections 83).
    EpochNotDurable,
    /// A replica that has forgotten what it said begins an epoch as if it never said anything (Corrections 67, 83).
    BeginForgetful,
    /// After a loss a leader asks for as many equal votes as if f+1 replicas were left (Corrections 84).
    LostVotedAgainst,
}

/// The bug of an instance, or none.
pub type Mutants = types::Mutants<Mutant>;
