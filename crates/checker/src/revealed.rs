//! What a reply has revealed of the state, where that is less than its operation may observe.
//!
//! Written from the meaning of the operations, on the text of replies, and not with what the engine itself judges by.

use crate::invocations::DecodedStep;
use datatypes::{Aspect, Kind, Observation, Operation, counter, top};

/// What the client has learned: that a sum reaches a bound, not what it is; the highest members, not those below them.
pub(crate) fn revealed<'h>(step: &DecodedStep<'h>) -> Observation<'h> {
    let less = match (&step.operation, step.observed) {
        (
            Operation::Counter(counter::Operation::Take { .. } | counter::Operation::AtLeast { .. }),
            Some(reply),
        ) => match reply {
            "(integer) 1" => Some(Observation::of(Kind::Counter, Aspect::Fall)),
            "(integer) 0" => Some(Observation::of(Kind::Counter, Aspect::Rise)),
            _ => None,
        },
        (Operation::Top(top::Operation::Range { start: 0, stop, with_scores: true }), Some(reply)) => {
            lowest(reply, *stop).map(|aspect| Observation::of(Kind::Top, aspect))
        }
        _ => None,
    };
    less.unwrap_or_else(|| step.operation.observation())
}

/// The last of a list of members with scores, if it is full: `[("a", (double) 2.0), ("b", (double) 1.0)]`.
fn lowest(reply: &str, stop: i64) -> Option<Aspect<'_>> {
    if stop < 0 || reply.matches(", (double) ").count() as i64 != stop + 1 || reply.contains('\\') {
        return None;
    }
    let (_, last) = reply.rsplit_once("(\"")?;
    let (member, score) = last.strip_suffix(")]")?.split_once("\", (double) ")?;
    Some(Aspect::DownTo { score: score.parse().ok()?, member: member.as_bytes() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(operation: Operation<'static>, reply: &'static str) -> Observation<'static> {
        revealed(&DecodedStep { key: b"k", operation, observed: Some(reply) })
    }

    #[test]
    fn a_full_list_reveals_what_is_at_or_above_its_last_member() {
        let list = |stop| Operation::Top(top::Operation::Range { start: 0, stop, with_scores: true });
        let two = "[(\"a\", (double) 2.0), (\"b\", (double) 1.5)]";
        let down_to = Observation::of(Kind::Top, Aspect::DownTo { score: 1.5, member: b"b" });
        assert_eq!(observation(list(1), two), down_to);
        for stop in [0, 2, -1] {
            assert_eq!(observation(list(stop), two).aspect, Some(Aspect::Whole), "{stop}");
        }
        assert_eq!(observation(list(0), "[]").aspect, Some(Aspect::Whole));
    }

    #[test]
    fn a_bound_is_crossed_in_one_direction() {
        let take = || Operation::Counter(counter::Operation::Take { by: 1, floor: 0 });
        assert_eq!(observation(take(), "(integer) 1").aspect, Some(Aspect::Fall));
        assert_eq!(observation(take(), "(integer) 0").aspect, Some(Aspect::Rise));
        assert_eq!(observation(take(), "-WRONGTYPE").aspect, Some(Aspect::Whole));
    }
}
