//! The order of SORT.

use super::Found;
use super::options::Options;
use crate::number::parse_float;
use datatypes::{Cell, Value};
use std::cmp::Ordering;
use types::Error;

/// The elements of the collection; in the order that is replied, where they are not to be sorted.
///
/// # Errors
/// The key holds another type.
pub(super) fn elements(cell: &Cell, options: &Options) -> Result<Vec<Vec<u8>>, Error> {
    let mut elements: Vec<Vec<u8>> = match &cell.value {
        None => Vec::new(),
        Some(Value::List(list)) => list.iter().map(<[u8]>::to_vec).collect(),
        Some(Value::Set(set)) => set.iter().map(|member| member.to_vec()).collect(),
        Some(Value::ScoredSet(set)) => set.iter().map(|(_, member)| member.to_vec()).collect(),
        Some(_) => return Err(Error::wrong_type()),
    };
    if options.descending && !options.sorts() {
        elements.reverse();
    }
    Ok(elements)
}

/// The elements in order. `weights` are what the keys of BY hold.
///
/// # Errors
/// Something is no number.
pub(super) fn sorted(
    elements: Vec<Vec<u8>>,
    weights: Option<Vec<Found>>,
    options: &Options,
) -> Result<Vec<Vec<u8>>, Error> {
    if !options.sorts() {
        return Ok(elements);
    }
    let direct = |ordering: Ordering| if options.descending { ordering.reverse() } else { ordering };
    let has_weights = weights.is_some();
    let weights = weights.unwrap_or_else(|| vec![None; elements.len()]);
    if options.alpha {
        let mut pairs: Vec<(Found, Vec<u8>)> = weights.into_iter().zip(elements).collect();
        // What is absent comes first; equal weights leave the order as it was.
        pairs.sort_by(|a, b| direct(if has_weights { a.0.cmp(&b.0) } else { a.1.cmp(&b.1) }));
        return Ok(pairs.into_iter().map(|(_, element)| element).collect());
    }
    let number = |(weight, element): (Found, Vec<u8>)| {
        let score = match (&weight, has_weights) {
            (Some(weight), _) => parse(weight)?,
            (None, true) => 0.0,
            (None, false) => parse(&element)?,
        };
        Ok((score, element))
    };
    let mut scored: Vec<(f64, Vec<u8>)> =
        weights.into_iter().zip(elements).map(number).collect::<Result<_, Error>>()?;
    // None is NaN. Equal numbers are ordered by the elements, minus zero and zero among them.
    scored
        .sort_by(|a, b| direct(a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal).then_with(|| a.1.cmp(&b.1))));
    Ok(scored.into_iter().map(|(_, element)| element).collect())
}

/// A number as C's `strtod` reads it to the end, which a NUL byte is: blanks may stand before it, and nothing
/// at all is zero.
fn parse(text: &[u8]) -> Result<f64, Error> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Ok(0.0);
    }
    let text = text.trim_ascii_start();
    parse_float(text).ok_or_else(|| Error::err("One or more scores can't be converted into double"))
}

/// What LIMIT leaves.
pub(super) fn window(mut elements: Vec<Vec<u8>>, options: &Options) -> Vec<Vec<u8>> {
    let Some((skipped, wanted)) = options.limit else { return elements };
    let start =
        usize::try_from(skipped).unwrap_or(if skipped < 0 { 0 } else { usize::MAX }).min(elements.len());
    elements.drain(..start);
    if let Ok(wanted) = usize::try_from(wanted) {
        elements.truncate(wanted);
    }
    elements
}
