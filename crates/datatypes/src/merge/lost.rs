//! Lost updates: a value whose write was acknowledged, that no write which saw it replaced, and that is hidden by a
//! concurrent write which had not observed it.
//!
//! A write is lost
//!
//! - where the later one of two concurrent ones says another value of the same register, field or score; or says that
//!   the key has another type;
//! - unless somebody wrote over it, or removed it, who saw it.
//!
//! Whoever had observed both saw the one that stayed, so writing over that does not settle what became of the other.
//! Additions (increments, appended bytes, members, pushed elements) are merged and not lost, but to another type; what
//! a removal removed unseen stays. Two equal values cost nothing.
//!
//! An addition is also lost where the key is to go at a deadline that its writer did not observe. It is not if its writer
//! observed another deadline, which whoever said the first one did not; nor if somebody who observed the addition said a
//! deadline over it.
//!
//! Whether a write is lost depends on the effects that had not observed it and all that those had not. Everybody who
//! had observed these saw the same. So when all effects to come have, the answer is final, and it is the same wherever
//! and in whatever order the effects arrived.
//!
//! Most items go to the later one of two writes, so that only later effects can hide one. These may be hidden by an earlier
//! one, too, which the write did not observe:
//!
//! - an increment, by a write or an appending of what is no number;
//! - an element's new value (LSET), by whatever removed the element;
//! - a field or a score in a whole value that was put (RENAME, COPY), by whoever wrote that field.
//!
//! An increment may also be hidden by a word that it did observe, but not see, because a number was there instead: that word comes
//! forth when somebody who did not observe it removes the number.
//!
//! Of an appending only counts whether all that it appends are digits: what it was appended to may be forgotten. Any
//! other edit of a register counts as one that leaves no number. Where types meet, an element whose list was taken out
//! of sight by another type and came forth again is another one.

use super::items::{
    Item, dated, ends_deadline, field_in, is_no_number, items, kills, kind_of, part_of, says, spoils,
};
use super::render::said;
use super::touched::Touched;
use super::typed::{resets_element, restored};
use super::{Trace, is_reset, lasting_kind, replaces_element};
use crate::{Effect, Kind, Value, dict, list, scored_set};
use std::collections::BTreeSet;
use types::wire_enum;

/// Which part of a key was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LostPart {
    /// The whole value.
    Value,
    /// A field of a dict.
    Field {
        /// Its name.
        field: Vec<u8>,
    },
    /// A member's score.
    Score {
        /// The member.
        member: Vec<u8>,
    },
    /// What was added to a collection or to a sum.
    Contents,
    /// An element of a list.
    Element {
        /// Its place in the list that the writer saw, from the front.
        index: u64,
    },
    /// The whole value, which is no register (RENAME, COPY): its description is words.
    Whole,
    /// That it stays: it goes with the key at a deadline that its writer had not observed.
    Deadline,
}
wire_enum!(LostPart {
    0 => Value,
    1 => Field { field },
    2 => Score { member },
    3 => Contents,
    4 => Element { index },
    5 => Whole,
    6 => Deadline,
});

/// A part of a write that is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Which part.
    pub part: LostPart,
    /// The place, among the effects, of the write that it is lost to.
    pub to: usize,
    /// What was written.
    pub value: Vec<u8>,
    /// What was written instead.
    pub instead: Vec<u8>,
}

/// What of the effect at place `of` is lost. `effects` are those on the key, in order; `traces` what each did to a list;
/// `sees` tells whether the first of two effects observed the second, which is earlier.
pub fn lost(
    effects: &[Effect<'_>],
    traces: &[Option<&Trace>],
    sees: &dyn Fn(usize, usize) -> bool,
    of: usize,
) -> Vec<Loss> {
    let rivals: Vec<usize> = (of + 1..effects.len()).filter(|later| !sees(*later, of)).collect();
    let first_unseen = (0..of).find(|earlier| !sees(of, *earlier)).unwrap_or(of);
    let touched = &Touched::new(effects, traces, sees);
    let whole = restored(&effects[of]);
    let base = Base { effects, sees, touched, of, whole, rivals, first_unseen, mixed: true };
    base.losses(&All)
}

/// Which effects matter to an item of the one in question.
pub(super) trait Around {
    /// False if nothing can hide the item, whoever observed what.
    fn may_be_hidden(&self, item: Item<'_>) -> bool;

    /// The later ones, in order.
    fn later(&self, base: &Base<'_, '_>, item: Item<'_>) -> Box<dyn Iterator<Item = usize> + '_>;

    /// The earlier ones that it did not observe and that may hide it, or bring forth one of those that are `covered`; of each
    /// group at least the last.
    fn earlier_rivals(&self, base: &Base<'_, '_>, item: Item<'_>, covered: &[usize]) -> Vec<usize>;

    /// Of the earlier ones that some effect observed, or of all, those on which it depends what is there; in order.
    fn earlier_seen(&self, base: &Base<'_, '_>, item: Item<'_>, by: Option<usize>) -> Vec<usize>;
}

/// All of them may matter.
pub(super) struct All;

impl Around for All {
    fn may_be_hidden(&self, _: Item<'_>) -> bool {
        true
    }

    fn later(&self, base: &Base<'_, '_>, _: Item<'_>) -> Box<dyn Iterator<Item = usize> + '_> {
        Box::new(base.of + 1..base.effects.len())
    }

    fn earlier_rivals(&self, base: &Base<'_, '_>, item: Item<'_>, covered: &[usize]) -> Vec<usize> {
        let hides = |place: &usize| {
            base.is_concurrent(*place)
                && (base.may_hide_later(*place, item) || base.uncovers(*place, item, covered))
        };
        (base.first_unseen..base.of).filter(hides).collect()
    }

    fn earlier_seen(&self, base: &Base<'_, '_>, item: Item<'_>, by: Option<usize>) -> Vec<usize> {
        let from = match item {
            // What it observed may be there again, whoever hid it.
            Item::Sum | Item::FieldSum(_) | Item::Lasting => 0,
            item => self.earlier_rivals(base, item, &[]).first().copied().unwrap_or(base.of),
        };
        (from..base.of).filter(|place| by.is_none_or(|by| (base.sees)(by, *place))).collect()
    }
}

/// The effects that decide what becomes of one.
pub(super) struct Base<'a, 'e> {
    pub(super) effects: &'a [Effect<'e>],
    pub(super) sees: &'a dyn Fn(usize, usize) -> bool,
    pub(super) touched: &'a Touched,
    pub(super) of: usize,
    /// The whole value that it puts, if it puts one.
    pub(super) whole: Option<Value>,
    /// The later ones that did not observe it; of each group at least the last.
    pub(super) rivals: Vec<usize>,
    /// At most the first place that it did not observe; its own if it observed all before it.
    pub(super) first_unseen: usize,
    /// Effects of several types, or whole values, may be among them.
    pub(super) mixed: bool,
}

impl Base<'_, '_> {
    /// What is lost of the effect.
    pub(super) fn losses(&self, around: &impl Around) -> Vec<Loss> {
        let mut losses: Vec<Loss> = Vec::new();
        if self.rivals.is_empty() && self.first_unseen == self.of {
            return losses;
        }
        let effect = &self.effects[self.of];
        for item in self.items().into_iter().filter(|item| around.may_be_hidden(*item)) {
            let Some(to) = self.hider_of(item, around) else { continue };
            let part = match &self.whole {
                Some(whole) if item == Item::Value && whole.kind() != Kind::Register => LostPart::Whole,
                _ => item.part(),
            };
            if losses.iter().all(|loss| loss.part != part) {
                let (value, instead) = (said(effect, item), said(&self.effects[to], item));
                losses.push(Loss { part, to, value, instead });
            }
            if item == Item::Value {
                // With all that is in it.
                break;
            }
        }
        let adds = lasting_kind(effect).is_some() && !is_reset(effect);
        if adds && losses.is_empty() && around.may_be_hidden(Item::Lasting) {
            let hider = self.hider_of(Item::Lasting, around);
            losses.extend(hider.map(|to| {
                let (value, instead) = (said(effect, Item::Lasting), said(&self.effects[to], Item::Lasting));
                Loss { part: LostPart::Deadline, to, value, instead }
            }));
        }
        losses
    }

    /// What the effect says; of a whole value that it puts also the fields and scores that others write.
    fn items(&self) -> Vec<Item<'_>> {
        let mut items = items(&self.effects[self.of]);
        let Some(value) = &self.whole else { return items };
        let (mut fields, mut members) = (BTreeSet::new(), BTreeSet::new());
        for other in &self.effects[self.first_unseen..] {
            match (value, other) {
                (Value::Dict(held), Effect::Dict(dict::Effect::Put { pairs, .. })) => {
                    fields.extend(pairs.pairs().map(|(field, _)| field).filter(|field| held.contains(field)));
                }
                (Value::ScoredSet(held), Effect::ScoredSet(scored_set::Effect::Put { items })) => {
                    members.extend(items.iter().map(|(_, member)| *member).filter(|m| held.contains(m)));
                }
                _ => {}
            }
        }
        items.extend(fields.into_iter().map(Item::Field));
        items.extend(members.into_iter().map(Item::Score));
        items
    }

    /// True if neither the effect nor the other one observed the other.
    pub(super) fn is_concurrent(&self, other: usize) -> bool {
        match other < self.of {
            true => !(self.sees)(self.of, other),
            false => other > self.of && !(self.sees)(other, self.of),
        }
    }

    /// True if a later effect decides: it has not observed the one in question, or not all of its rivals.
    fn decides(&self, place: usize, earlier_rivals: &[usize]) -> bool {
        let observed = |rival: &usize| *rival < place && (self.sees)(place, *rival);
        let rivals = self.rivals.iter().rev().chain(earlier_rivals);
        !(self.sees)(place, self.of) || !rivals.into_iter().all(observed)
    }

    fn kills(&self, place: usize, item: Item<'_>) -> bool {
        let of_element = || matches!(item, Item::Element(_)) && self.touched.touches(place, self.of);
        (self.sees)(place, self.of)
            && (kills(&self.effects[place], &self.effects[self.of], item) || of_element())
    }

    /// The write that puts an item out of sight for good, if one does.
    fn hider_of(&self, item: Item<'_>, around: &impl Around) -> Option<usize> {
        let covered = &self.covered(item, around);
        let earlier = around.earlier_rivals(self, item, covered);
        if self.rivals.is_empty() && earlier.is_empty() {
            return None;
        }
        let (mut passed, mut killers) = (Vec::new(), Vec::new());
        let mut unseen = None;
        for place in around.later(self, item).filter(|place| self.decides(*place, &earlier)) {
            // Whoever sees a killer does not decide as one: there was nothing left to kill.
            if self.kills(place, item) && !killers.iter().any(|killer| (self.sees)(place, *killer)) {
                let mut seen = around.earlier_seen(self, item, Some(place));
                seen.extend(passed.iter().filter(|before| (self.sees)(place, **before)));
                // Who sees it settles it.
                let hider = self.hider(&seen, item, covered)?;
                unseen = unseen.or(Some(hider));
                killers.push(place);
            }
            passed.push(place);
        }
        if killers.is_empty() {
            let mut seen = around.earlier_seen(self, item, None);
            seen.extend(passed);
            return self.hider(&seen, item, covered);
        }
        unseen
    }

    /// The words that an increment observed and that were out of sight then; the deadline that an addition observed.
    fn covered(&self, item: Item<'_>, around: &impl Around) -> Vec<usize> {
        let part = match item {
            Item::Lasting => {
                let view = around.earlier_seen(self, item, Some(self.of));
                return self.last_date(&view).into_iter().collect();
            }
            Item::Sum => Item::Value,
            Item::FieldSum(field) => Item::Field(field),
            _ => return Vec::new(),
        };
        let view = around.earlier_seen(self, item, Some(self.of));
        let shown = self.last_alive(&view, part).or_else(|| self.whole_with(&view, part));
        if shown.is_none_or(|shown| self.is_word(shown, item)) {
            return Vec::new();
        }
        let is_there = |place: &usize| self.is_word(*place, item) && self.is_item_alive(&view, *place, part);
        view.iter().copied().filter(is_there).collect()
    }

    /// True if it makes what an increment is added to something to which nothing can be added.
    fn is_word(&self, place: usize, item: Item<'_>) -> bool {
        let effect = &self.effects[place];
        match item {
            Item::FieldSum(field) => field_in(effect, field).is_some_and(|value| is_no_number(&value)),
            _ => says(effect, Item::Value).is_some() && spoils(effect),
        }
    }

    /// True if an effect replaces or removes what is there, without having observed one of these that it would bring forth.
    pub(super) fn uncovers(&self, place: usize, item: Item<'_>, covered: &[usize]) -> bool {
        let effect = &self.effects[place];
        let resets = (is_reset(effect) && item != Item::Lasting)
            || matches!(item, Item::FieldSum(field) if effect.kind() == Some(Kind::Dict) && resets_element(effect, field));
        // What is written to a field is there instead of a whole value's, also where that is placed later.
        let may_come = |word: usize| match word < place {
            true => !(self.sees)(place, word),
            false => matches!(self.effects[word], Effect::Key(_)),
        };
        resets && covered.iter().any(|word| may_come(*word))
    }

    /// True if an effect may hide an item of a later one that did not observe it.
    pub(super) fn may_hide_later(&self, place: usize, item: Item<'_>) -> bool {
        let effect = &self.effects[place];
        match item {
            Item::Sum => spoils(effect),
            Item::FieldSum(field) => field_in(effect, field).is_some_and(|value| is_no_number(&value)),
            Item::Field(_) | Item::Score(_) => self.whole.is_some() && says(effect, item).is_some(),
            Item::Element(_) => {
                lasting_kind(effect).is_some_and(|kind| kind != Kind::List)
                    || (!replaces_element(effect) && self.touched.touches(place, self.of))
            }
            Item::Lasting => dated(effect).is_some(),
            Item::Value | Item::Member(_) | Item::ScoreSum(_) | Item::Added => false,
        }
    }

    /// What whoever sees these effects, and the one in question, sees instead of what that one says; `None` if it sees
    /// just that.
    fn hider(&self, view: &[usize], item: Item<'_>, covered: &[usize]) -> Option<usize> {
        let effect = &self.effects[self.of];
        if item == Item::Lasting {
            return self.dater(view, covered);
        }
        let kind = |place: &usize| lasting_kind(&self.effects[*place]);
        let says_kind = |place: &&usize| kind(place).is_some() && self.is_alive(view, **place);
        let types = view.iter().rev().find(|place| self.mixed && says_kind(place));
        if let Some(last) = types
            && kind(last) != kind_of(effect)
            && (*last > self.of || lasting_kind(effect).is_none())
        {
            return Some(*last);
        }
        match item {
            Item::Field(_) | Item::Score(_) if self.whole.is_some() => self.part_hider(view, item),
            Item::Value | Item::Field(_) | Item::Score(_) => {
                let last = self.last_alive(view, item)?;
                (says(&self.effects[last], item) != says(effect, item)).then_some(last)
            }
            Item::Sum => self.spoiler(view, covered),
            Item::FieldSum(field) => {
                let written = self.last_alive(view, Item::Field(field));
                let last = written.or_else(|| self.whole_with(view, Item::Field(field)))?;
                let value = field_in(&self.effects[last], field)?;
                let counts = self.is_concurrent(last) || covered.contains(&last);
                (is_no_number(&value) && counts).then_some(last)
            }
            Item::Element(_) => self.element_hider(view),
            Item::Member(_) | Item::ScoreSum(_) | Item::Added | Item::Lasting => None,
        }
    }

    /// The last deadline of the key that nobody in the view replaced.
    fn last_date(&self, view: &[usize]) -> Option<usize> {
        let is_over = |place: usize| {
            let ends = |later: usize| later > place && ends_deadline(&self.effects[later]);
            view.iter().any(|later| ends(*later) && (self.sees)(*later, place))
        };
        let says = |place: &&usize| dated(&self.effects[**place]).is_some() && !is_over(**place);
        let last = *view.iter().rev().find(says)?;
        (dated(&self.effects[last]) != Some(0)).then_some(last)
    }

    /// The deadline with which the addition goes, if its writer did not observe it: nor another one, `known`, of which who said
    /// that deadline had not observed it either.
    fn dater(&self, view: &[usize], known: &[usize]) -> Option<usize> {
        let last = self.last_date(view).filter(|last| self.is_concurrent(*last))?;
        let observed = |known: &usize| *known < last && (self.sees)(last, *known);
        known.iter().all(observed).then_some(last)
    }

    /// The last whole value that was put, if nobody in the view said something else of a part of it.
    fn whole_with(&self, view: &[usize], part: Item<'_>) -> Option<usize> {
        let last = self.last_alive(view, Item::Value)?;
        self.is_item_alive(view, last, part).then_some(last)
    }

    /// What is there instead of a part of the whole value that the effect puts: what somebody wrote, or another whole value.
    fn part_hider(&self, view: &[usize], part: Item<'_>) -> Option<usize> {
        let own = part_of(self.whole.as_ref()?, part);
        if let Some(written) = self.last_alive(view, part) {
            return (says(&self.effects[written], part) != own).then_some(written);
        }
        let other = self.last_alive(view, Item::Value).filter(|other| *other > self.of)?;
        let value = restored(&self.effects[other]);
        let same = self.is_item_alive(view, other, part)
            && value.as_ref().is_some_and(|value| part_of(value, part) == own);
        (!same).then_some(other)
    }

    /// The last one that says something of an item and that nobody in the view replaced.
    fn last_alive(&self, view: &[usize], item: Item<'_>) -> Option<usize> {
        let says = |place: &&usize| {
            says(&self.effects[**place], item).is_some() && self.is_item_alive(view, **place, item)
        };
        view.iter().rev().find(says).copied()
    }

    /// What made the register something to which nothing can be added.
    fn spoiler(&self, view: &[usize], covered: &[usize]) -> Option<usize> {
        if let Some(base) = self.last_alive(view, Item::Value)
            && (self.is_concurrent(base) || covered.contains(&base))
            && spoils(&self.effects[base])
        {
            return Some(base);
        }
        let appends = |place: &&usize| {
            let effect = &self.effects[**place];
            matches!(effect, Effect::Register(edit) if edit.is_edit())
                && spoils(effect)
                && **place < self.of
                && self.is_concurrent(**place)
                && self.is_item_alive(view, **place, Item::Added)
        };
        view.iter().rev().find(appends).copied()
    }

    /// What became of an element that got another value: removed by somebody, or another value again.
    fn element_hider(&self, view: &[usize]) -> Option<usize> {
        let touched = |place: &&usize| self.touched.touches(**place, self.of);
        let removes = |place: &&usize| touched(place) && !replaces_element(&self.effects[**place]);
        if let Some(remover) = view.iter().find(removes) {
            return Some(*remover);
        }
        let last = view.iter().rev().find(|place| **place > self.of && touched(place))?;
        let value = |place: usize| match &self.effects[place] {
            Effect::List(list::Effect::Put { value, .. }) => Some(*value),
            _ => None,
        };
        (value(*last) != value(self.of)).then_some(*last)
    }

    fn is_alive(&self, view: &[usize], place: usize) -> bool {
        items(&self.effects[place]).into_iter().any(|item| self.is_item_alive(view, place, item))
    }

    fn is_item_alive(&self, view: &[usize], place: usize, item: Item<'_>) -> bool {
        let effect = &self.effects[place];
        let is_later = |later: &&usize| **later > place && (self.sees)(**later, place);
        let own = Some(&self.of).filter(is_later);
        !view.iter().filter(is_later).chain(own).any(|later| kills(&self.effects[*later], effect, item))
    }
}
