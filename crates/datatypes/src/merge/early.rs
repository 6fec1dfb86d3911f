//! Which writes an earlier effect may hide, that they did not observe: they are few, and the merge retains what they
//! need.

use super::items::dated;
use super::{is_reset, lasting_kind};
use crate::{Effect, dict, key, list, register, scored_set};

/// True for an effect that an earlier one may have put out of sight (see [`lost`](super::lost())): somebody who wants to know
/// needs the earlier ones that [`may_hide_later`] and that it did not observe.
pub fn may_be_hidden(effect: &Effect<'_>) -> bool {
    matches!(
        effect,
        Effect::Register(register::Effect::Add { .. })
            | Effect::Dict(dict::Effect::Add { .. })
            | Effect::List(list::Effect::Put { .. })
            | Effect::Key(key::Effect::Restore(_))
    )
}

/// True for an effect that may put a later one out of sight, or bring forth what does.
pub fn may_hide_later(effect: &Effect<'_>) -> bool {
    match effect {
        Effect::Key(effect) => matches!(effect, key::Effect::Delete | key::Effect::Restore(_)),
        Effect::Register(effect) => !matches!(effect, register::Effect::Add { .. }),
        Effect::Dict(effect) => matches!(effect, dict::Effect::Put { .. } | dict::Effect::Remove { .. }),
        Effect::ScoredSet(effect) => matches!(effect, scored_set::Effect::Put { .. }),
        Effect::List(effect) => matches!(
            effect,
            list::Effect::Pop { .. } | list::Effect::Keep { .. } | list::Effect::RemoveAt { .. }
        ),
        _ => false,
    }
}

/// True for an effect that gives an element of a list another value. Which one that is, only what it did to the list tells.
pub fn replaces_element(effect: &Effect<'_>) -> bool {
    matches!(effect, Effect::List(list::Effect::Put { .. }))
}

/// True for an effect that goes with a deadline which an earlier one, that it did not observe, says.
pub fn may_go(effect: &Effect<'_>) -> bool {
    lasting_kind(effect).is_some() && !is_reset(effect)
}

/// True for an effect that says when the key is to go.
pub fn says_deadline(effect: &Effect<'_>) -> bool {
    dated(effect).is_some()
}
