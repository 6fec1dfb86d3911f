//! Replies and operations as text. Two replies are equal for the checks when their texts are.

use datatypes::Operation;
use types::{Reply, ReplyBuf};

/// A reply as text, close to what `redis-cli` prints: `OK`, `"bytes"`, `(integer) 1`, `(nil)`, `[a, b]`,
/// `-CODE message`. Sets, and maps by their keys, are sorted, because their order means nothing; several values are
/// separated by `; `.
pub fn render(reply: &ReplyBuf) -> String {
    render_values(reply).join("; ")
}

/// Each value of a reply that holds several, as [`render`] writes it.
pub fn render_values(reply: &ReplyBuf) -> Vec<String> {
    let elements: Vec<Reply<'_>> = reply.elements().collect();
    let mut rest = elements.as_slice();
    let mut texts = Vec::new();
    while !rest.is_empty() {
        texts.push(value(&mut rest));
    }
    texts
}

/// Takes one value with its children off the front.
fn value(rest: &mut &[Reply<'_>]) -> String {
    let Some((first, tail)) = rest.split_first() else { return "(missing)".into() };
    *rest = tail;
    let children: Vec<String> = (0..first.children()).map(|_| value(rest)).collect();
    match first {
        Reply::Simple(text) => (*text).to_owned(),
        Reply::Bulk(bytes) => quoted(bytes),
        Reply::Integer(number) => format!("(integer) {number}"),
        Reply::Double(number) => format!("(double) {number:?}"),
        Reply::Number(digits) => format!("(double) {digits}"),
        Reply::BigNumber(digits) => format!("(big number) {}", quoted(digits)),
        Reply::Boolean(value) => format!("({value})"),
        Reply::Verbatim(_, text) => format!("(text) {}", quoted(text)),
        Reply::Null => "(nil)".into(),
        Reply::NullArray => "(nil array)".into(),
        Reply::Array(_) | Reply::Pairs(_) | Reply::Push(_) => format!("[{}]", children.join(", ")),
        Reply::Pair | Reply::Entry => format!("({})", children.join(", ")),
        Reply::Entries(_) => format!("{{{}}}", children.join(", ")),
        Reply::Map(_) => {
            let mut pairs: Vec<String> = children.chunks(2).map(|pair| pair.join(": ")).collect();
            pairs.sort();
            format!("{{{}}}", pairs.join(", "))
        }
        Reply::Set(_) => {
            let mut members = children;
            members.sort();
            format!("{{{}}}", members.join(", "))
        }
        Reply::Error(error) => format!("-{error}"),
    }
}

fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

/// An operation as text for readers: its debugging form, with byte strings readable.
pub fn describe(operation: &Operation<'_>) -> String {
    readable(&format!("{operation:?}"))
}

/// Writes every list of small numbers in a debugging form as a string.
pub(crate) fn readable(debug: &str) -> String {
    let mut text = String::with_capacity(debug.len());
    let mut rest = debug;
    while let Some(open) = rest.find('[') {
        let (before, list) = rest.split_at(open);
        text.push_str(before);
        let end = list.find(']').unwrap_or(list.len() - 1);
        let bytes: Option<Vec<u8>> = list[1..end].split(", ").map(|number| number.parse().ok()).collect();
        match bytes {
            Some(bytes) => {
                text.push_str(&quoted(&bytes));
                rest = &list[end + 1..];
            }
            None => {
                text.push('[');
                rest = &list[1..];
            }
        }
    }
    text.push_str(rest);
    text
}
