//! Handlers of conflicts (COPS-CD, section 5.3): the application's rule for concurrent values of a key, an option of
//! the keyspace. Another crate runs the handler.
//!
//! It is called where such a key is read, not where a write arrives: nothing that it returns is a version, so there is nothing
//! that regions could name differently (Corrections 50). Every region that has the same values reads the same, if the handler
//! is associative, commutative and idempotent; that is tried on drawn values before it is taken.

use std::fmt::Debug;
use types::Rng;

/// What two concurrent values of a key come to. A function of nothing else: no clock, no entropy, no memory of earlier calls.
pub trait Handler: Debug + Send + Sync {
    /// The program as it was written.
    fn source(&self) -> &str;

    /// What they come to.
    ///
    /// # Errors
    /// Says what went wrong: an error of the program, a limit that it reached, an answer that is no string.
    fn merge(&self, key: &[u8], one: &[u8], other: &[u8]) -> Result<Vec<u8>, String>;
}

/// What all values come to, the first two first.
///
/// # Errors
/// Those of the handler.
pub fn merge_all<'v>(
    handler: &dyn Handler,
    key: &[u8],
    values: impl IntoIterator<Item = &'v [u8]>,
) -> Result<Vec<u8>, String> {
    let mut values = values.into_iter();
    let first = values.next().unwrap_or_default().to_vec();
    values.try_fold(first, |merged, value| handler.merge(key, &merged, value))
}

/// How many times three values of each sort are drawn.
const DRAWS: usize = 12;
/// The seed of the draws: a handler is taken everywhere or nowhere.
const SEED: u64 = 50;

/// Sorts of values that are drawn: numbers, words, lists of words, a JSON array, a JSON object.
const SORTS: [fn(&mut Rng) -> String; 5] = [
    |random| random.i64(-20..20).to_string(),
    word,
    |random| words(random).join(","),
    |random| format!("[{}]", (0..random.usize(0..4)).map(|_| quoted(random)).collect::<Vec<_>>().join(",")),
    |random| format!("{{{}:{}}}", quoted(random), random.u32(0..9)),
];

fn word(random: &mut Rng) -> String {
    (0..random.usize(0..3)).map(|_| random.char('a'..='c')).collect()
}

fn words(random: &mut Rng) -> Vec<String> {
    (0..random.usize(1..4)).map(|_| word(random)).collect()
}

fn quoted(random: &mut Rng) -> String {
    format!("\"{}\"", word(random))
}

/// Tries the laws on drawn values. Idempotent is a handler for which a value counts once, however often it is merged; it may bring
/// values into another form. What a handler refuses is left out, if it refuses both sides.
///
/// # Errors
/// A counterexample, or the first error if the handler fails on all of them.
pub fn check_laws(handler: &dyn Handler) -> Result<(), String> {
    let (mut random, mut failure, mut done) = (Rng::with_seed(SEED), None, false);
    let merge = |one: &[u8], other: &[u8]| handler.merge(b"key", one, other);
    for sort in SORTS.iter().flat_map(|sort| std::iter::repeat_n(sort, DRAWS)) {
        let drawn = [(); 3].map(|()| sort(&mut random));
        let [a, b, c] = drawn.each_ref().map(String::as_bytes);
        let both = merge(a, b);
        match &both {
            Ok(_) => done = true,
            Err(reason) => failure = failure.or_else(|| Some(reason.clone())),
        }
        let [at, bt, ct] = drawn.each_ref().map(|value| format!("'{value}'"));
        let merged_once = (format!("merge({at}, {bt})"), both.clone());
        let left = both.clone().and_then(|merged| merge(&merged, c));
        let right = merge(b, c).and_then(|merged| merge(a, &merged));
        let again = both.and_then(|merged| merge(&merged, b));
        compare("commutative", merged_once.clone(), (format!("merge({bt}, {at})"), merge(b, a)))?;
        compare(
            "associative",
            (format!("merge(merge({at}, {bt}), {ct})"), left),
            (format!("merge({at}, merge({bt}, {ct}))"), right),
        )?;
        compare("idempotent", (format!("merge(merge({at}, {bt}), {bt})"), again), merged_once)?;
    }
    match failure.filter(|_| !done) {
        Some(reason) => Err(format!("it failed on all values that it was tried on: {reason}")),
        None => Ok(()),
    }
}

/// A call in words, and what came of it.
type Side = (String, Result<Vec<u8>, String>);

fn compare(law: &str, (one, first): Side, (other, second): Side) -> Result<(), String> {
    if first.as_ref().ok() == second.as_ref().ok() {
        return Ok(());
    }
    let shown = |side: Result<Vec<u8>, String>| match side {
        Ok(value) => format!("'{}'", String::from_utf8_lossy(&value)),
        Err(reason) => format!("an error ({reason})"),
    };
    Err(format!(
        "it is not {law}, so regions would read different values: {one} is {}, {other} is {}",
        shown(first),
        shown(second)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct By(fn(&str, &str) -> Result<String, String>);

    impl Handler for By {
        fn source(&self) -> &str {
            ""
        }

        fn merge(&self, _: &[u8], one: &[u8], other: &[u8]) -> Result<Vec<u8>, String> {
            (self.0)(&String::from_utf8_lossy(one), &String::from_utf8_lossy(other)).map(String::into_bytes)
        }
    }

    fn number(text: &str) -> Result<i64, String> {
        text.parse().map_err(|_| format!("'{text}' is no number"))
    }

    fn refused(merge: fn(&str, &str) -> Result<String, String>) -> String {
        check_laws(&By(merge)).expect_err("it breaks a law")
    }

    /// Corrections 50: what a handler must be, and a counterexample for what it is not.
    #[test]
    fn a_handler_that_breaks_a_law_is_refused_with_a_counterexample() {
        assert_eq!(check_laws(&By(|one, other| Ok(one.max(other).to_owned()))), Ok(()));
        let greatest = |one: &str, other: &str| Ok(number(one)?.max(number(other)?).to_string());
        assert_eq!(check_laws(&By(greatest)), Ok(()), "it need not take all values");
        let first = refused(|one, _| Ok(one.to_owned()));
        assert!(first.contains("not commutative") && first.contains("merge('"), "{first}");
        let sum = refused(|one, other| Ok((number(one)? + number(other)?).to_string()));
        assert!(sum.contains("not idempotent"), "{sum}");
        let middle = refused(|one, other| Ok(((number(one)? + number(other)?) / 2).to_string()));
        assert!(middle.contains("not associative"), "{middle}");
        assert!(refused(|_, _| Err("no".to_owned())).contains("failed on all values"));
    }
}
