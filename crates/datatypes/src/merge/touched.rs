//! Which effects replaced or removed the same element of a list.

use super::line::{Element, Line};
use super::{Trace, is_reset, replaces_element};
use crate::Effect;
use std::collections::BTreeMap;

/// For each effect that replaces an element's value: who else replaces or removes that element.
#[derive(Debug, Default)]
pub(super) struct Touched {
    elements: BTreeMap<usize, Element>,
    /// In order.
    by: BTreeMap<Element, Vec<usize>>,
    removed: BTreeMap<Element, Vec<usize>>,
}

impl Touched {
    /// Of effects in order, with what each did to the list, where that is known. `sees` tells whether the first of two
    /// observed the second, which is earlier.
    pub(super) fn new(
        effects: &[Effect<'_>],
        traces: &[Option<&Trace>],
        sees: &dyn Fn(usize, usize) -> bool,
    ) -> Self {
        let mut touched = Touched::default();
        if !effects.iter().any(replaces_element) {
            return touched;
        }
        let mut line = Line::default();
        for (at, effect) in effects.iter().enumerate() {
            let Some(trace) = traces[at] else { continue };
            line.pass(at, effect, Some(trace));
            if let Some(element) = replaces_element(effect).then(|| line.replaced(at, trace)).flatten() {
                touched.elements.insert(at, element);
                touched.by.entry(element).or_default().push(at);
            }
        }
        for (element, by) in &mut touched.by {
            // What takes the whole list out of sight without having seen the element does not remove it.
            let saw = |place: usize| element.source.is_none_or(|source| sees(place, source));
            let removes =
                |place: &usize| matches!(effects[*place], Effect::List(_)) || is_reset(&effects[*place]);
            let removers = line.removers(*element).filter(|place| removes(place) && saw(*place));
            let mut removed: Vec<usize> = removers.collect();
            removed.sort_unstable();
            by.extend(&removed);
            by.sort_unstable();
            touched.removed.insert(*element, removed);
        }
        touched
    }

    /// Who replaces or removes the element that the effect at a place replaces, in order.
    pub(super) fn with(&self, place: usize) -> &[usize] {
        self.elements.get(&place).and_then(|element| self.by.get(element)).map_or(&[], Vec::as_slice)
    }

    /// Who removes it, in order.
    pub(super) fn removers(&self, place: usize) -> &[usize] {
        self.elements.get(&place).and_then(|element| self.removed.get(element)).map_or(&[], Vec::as_slice)
    }

    /// True if the first does to the element that the second replaces.
    pub(super) fn touches(&self, place: usize, other: usize) -> bool {
        self.with(other).binary_search(&place).is_ok()
    }
}
