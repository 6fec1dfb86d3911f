//! In a process of a region that does not have its site: passes on what clients ask, and what the site answers.

use crate::instance::Instance;
use crate::site::{Message, Thread, Timer};
use protocol::{Input, Now, Outputs, Request};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Address, Error, ErrorCode, Incarnation, Instant, NodeId, RequestId, SessionId};

/// How often it looks for requests that nobody answers.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// After how long it gives one up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(5);

/// A request that was passed on.
#[derive(Debug)]
struct Asked {
    id: RequestId,
    /// None once the session is over.
    session: Option<SessionId>,
    /// It may have changed something.
    is_write: bool,
    until: Instant,
}

/// See the module.
#[derive(Debug)]
pub struct Forward {
    site: Address,
    life: Option<Incarnation>,
    asked: BTreeMap<u64, Asked>,
    last: u64,
    /// The sessions that chose a branch.
    threads: BTreeMap<SessionId, Known>,
}

/// Where a session stands, as the site said last.
#[derive(Debug)]
struct Known {
    thread: Thread,
    /// False if that was in an earlier life of the site.
    by_present_life: bool,
}

impl Forward {
    /// In one life of its process: what an earlier one asked may be answered yet, and is no answer to what this one asks.
    pub(crate) fn new(site: Address, incarnation: Incarnation) -> Self {
        Forward {
            site,
            life: None,
            asked: BTreeMap::new(),
            last: u64::from(incarnation.0) << 32,
            threads: BTreeMap::new(),
        }
    }

    pub(crate) fn on_input(&mut self, input: Input<'_, Instance>, now: Now, out: &mut Outputs<'_, Instance>) {
        match input {
            Input::Request { id, request } => self.pass_on(id, &request, now.instant, out),
            Input::Message { from, message: Message::Answer { number, thread, reply } }
                if from.address() == self.site =>
            {
                if let Some(asked) = self.asked.remove(&number) {
                    if let Some((session, thread)) = asked.session.zip(thread) {
                        self.threads.insert(session, Known { thread, by_present_life: true });
                    }
                    reply.replay(out.reply(asked.id));
                }
            }
            Input::PeerStarted { peer } => self.on_peer(peer, out),
            Input::Recovered { .. } => out.arm(Timer::Repair, now.instant + LOOK_EVERY),
            Input::Timer(Timer::Repair) => {
                self.give_up(now.instant, out);
                out.arm(Timer::Repair, now.instant + LOOK_EVERY);
            }
            _ => {}
        }
    }

    fn pass_on(
        &mut self,
        id: RequestId,
        request: &Request<'_>,
        now: Instant,
        out: &mut Outputs<'_, Instance>,
    ) {
        let session = request.session();
        self.last += 1;
        if matches!(request, Request::Close { .. }) {
            self.threads.remove(&session);
            let of_it = self.asked.values_mut().filter(|asked| asked.session == Some(session));
            of_it.for_each(|asked| asked.session = None);
        } else {
            let asked = Asked {
                id,
                session: Some(session),
                is_write: may_write(request),
                until: now + GIVE_UP_AFTER,
            };
            self.asked.insert(self.last, asked);
        }
        let known = self.threads.get(&session).filter(|known| !known.by_present_life);
        let thread = known.map(|known| known.thread);
        let request = crate::asked::encoded(request);
        out.stream(self.site, Message::Ask { number: self.last, thread, request });
    }

    /// What an earlier life of the site was asked is not answered any more, and what that one knew of sessions is forgotten
    /// there.
    fn on_peer(&mut self, peer: NodeId, out: &mut Outputs<'_, Instance>) {
        if peer.address() == self.site && self.life.replace(peer.incarnation).is_some() {
            self.give_up(Instant(u64::MAX), out);
            self.threads.values_mut().for_each(|known| known.by_present_life = false);
        }
    }

    /// Answers what was to be answered by now.
    fn give_up(&mut self, now: Instant, out: &mut Outputs<'_, Instance>) {
        let site = self.site.process;
        for asked in self.asked.extract_if(.., |_, asked| asked.until <= now).map(|(_, asked)| asked) {
            let error = if asked.is_write {
                let text = format!(
                    "process {site}, which has this region's site, did not answer; look before you retry"
                );
                Error::new(ErrorCode::UnknownOutcome, text)
            } else {
                let text =
                    format!("process {site}, which has this region's site, does not answer; retry later");
                Error::new(ErrorCode::Unavailable, text)
            };
            out.reply(asked.id).error(&error);
        }
    }
}

fn may_write(request: &Request<'_>) -> bool {
    use protocol::Step;
    match request {
        Request::One { operation, .. } => !operation.operation.is_read(),
        Request::Many { steps, .. } => steps.iter().any(|step| match step {
            Step::Key(keyed) => !keyed.operation.is_read(),
            Step::Flush => true,
            Step::Count | Step::Keys | Step::Random | Step::Scan { .. } | Step::Losses(_) => false,
        }),
        Request::Commit { .. } | Request::Own { .. } => true,
        _ => false,
    }
}
