//! In a process that does not host its region's site: forwards requests of clients, and the site's answers.

use crate::instance::Instance;
use crate::site::{Message, Thread, Timer};
use protocol::{Input, Now, Outputs, Request};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Address, Error, ErrorCode, Incarnation, Instant, NodeId, RequestId, SessionId};

/// How often it looks for unanswered requests.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// After how long it gives one up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(5);

/// A request that was passed on.
#[derive(Debug)]
struct ForwardedRequest {
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
    forwarded: BTreeMap<u64, ForwardedRequest>,
    last: u64,
    /// The sessions that chose a branch.
    threads: BTreeMap<SessionId, KnownPosition>,
}

/// A session's position, as of the site's last answer.
#[derive(Debug)]
struct KnownPosition {
    thread: Thread,
    /// False if that was in an earlier life of the site.
    by_present_life: bool,
}

impl Forward {
    /// Numbers are unique within a life of the process: a late answer to an earlier life is no answer to this one.
    pub(crate) fn new(site: Address, incarnation: Incarnation) -> Self {
        Forward {
            site,
            life: None,
            forwarded: BTreeMap::new(),
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
                if let Some(forwarded) = self.forwarded.remove(&number) {
                    if let Some((session, thread)) = forwarded.session.zip(thread) {
                        self.threads.insert(session, KnownPosition { thread, by_present_life: true });
                    }
                    reply.replay(out.reply(forwarded.id));
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
            let of_it = self.forwarded.values_mut().filter(|forwarded| forwarded.session == Some(session));
            of_it.for_each(|forwarded| forwarded.session = None);
        } else {
            let forwarded = ForwardedRequest {
                id,
                session: Some(session),
                is_write: may_write(request),
                until: now + GIVE_UP_AFTER,
            };
            self.forwarded.insert(self.last, forwarded);
        }
        let known = self.threads.get(&session).filter(|known| !known.by_present_life);
        let thread = known.map(|known| known.thread);
        let request = crate::request_codec::encoded(request);
        out.stream(self.site, Message::Ask { number: self.last, thread, request });
    }

    /// Requests to an earlier life of the site get no answer any more, and the site has forgotten that life's sessions.
    fn on_peer(&mut self, peer: NodeId, out: &mut Outputs<'_, Instance>) {
        if peer.address() == self.site && self.life.replace(peer.incarnation).is_some() {
            self.give_up(Instant(u64::MAX), out);
            self.threads.values_mut().for_each(|known| known.by_present_life = false);
        }
    }

    /// Answers what was to be answered by now.
    fn give_up(&mut self, now: Instant, out: &mut Outputs<'_, Instance>) {
        let site = self.site.process;
        for forwarded in self
            .forwarded
            .extract_if(.., |_, forwarded| forwarded.until <= now)
            .map(|(_, forwarded)| forwarded)
        {
            let error = if forwarded.is_write {
                let text = format!(
                    "process {site}, which has this region's site, did not answer; look before you retry"
                );
                Error::new(ErrorCode::UnknownOutcome, text)
            } else {
                let text =
                    format!("process {site}, which has this region's site, does not answer; retry later");
                Error::new(ErrorCode::Unavailable, text)
            };
            out.reply(forwarded.id).error(&error);
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
