//! LCS: the longest common subsequence of two strings.
//!
//! Row by row of the table that says how long it is for all beginnings of both strings, 64 columns at a time (Hyyrö, Bit-
//! parallel LCS-length computation revisited): a zero in a row's bit says that its column has one more than the column
//! before. That suffices to walk back through the table as Redis does.

use super::whole_strings::{self, Outcome};
use crate::plan::{Call, Plan};
use types::{Error, ReplyBuf, ReplySink};

/// The most bytes that Redis's table of four bytes a cell may have.
const MAX_TABLE_BYTES: u128 = 512 << 20;
/// The most words of 64 columns in all rows: some 10 ms. Redis's limit is reached first, unless the second string is shorter
/// than 32 bytes.
const MAX_WORDS: u128 = 1 << 22;

/// Part of both strings: where it begins, in each, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Match {
    a: usize,
    b: usize,
    len: usize,
}

/// The options of the command.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    length: bool,
    matches: bool,
    shortest_match: i64,
    with_lengths: bool,
}

/// `LCS key1 key2 [LEN] [IDX] [MINMATCHLEN n] [WITHMATCHLEN]`.
///
/// # Errors
/// The options are wrong.
pub(super) fn plan<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let mut options = Options::default();
    let mut index = 3;
    while index < call.len() {
        if call.is(index, "LEN") {
            options.length = true;
        } else if call.is(index, "IDX") {
            options.matches = true;
        } else if call.is(index, "WITHMATCHLEN") {
            options.with_lengths = true;
        } else if call.is(index, "MINMATCHLEN") && index + 1 < call.len() {
            index += 1;
            options.shortest_match = call.integer(index)?;
        } else {
            return Err(Error::syntax());
        }
        index += 1;
    }
    if options.length && options.matches {
        return Err(Error::err("If you want both the length and indexes, please just use IDX."));
    }
    let keys = call.arguments.iter().skip(1).take(2);
    let wrong_type = Error::err("The specified keys must contain string values");
    Ok(whole_strings::compute(keys, None, wrong_type, move |strings| evaluate(strings, options)))
}

fn evaluate(strings: &[Option<&[u8]>], options: Options) -> Result<Outcome, Error> {
    let [a, b] = [0, 1].map(|place| strings.get(place).copied().flatten().unwrap_or_default());
    let table = Table::new(a, b, !options.length)?;
    let mut reply = ReplyBuf::new();
    if options.length {
        reply.integer(table.length() as i64);
        return Ok(Outcome::Reply(reply));
    }
    let matches = table.matches(a, b);
    if options.matches {
        write_matches(&matches, table.length(), options, &mut reply);
    } else {
        let pieces = matches.iter().rev().map(|found| &a[found.a..found.a + found.len]);
        reply.bulk(&pieces.collect::<Vec<_>>().concat());
    }
    Ok(Outcome::Reply(reply))
}

fn write_matches(matches: &[Match], length: usize, options: Options, reply: &mut ReplyBuf) {
    let is_long = |found: &&Match| found.len as i64 >= options.shortest_match;
    let long: Vec<&Match> = matches.iter().filter(is_long).collect();
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(long.len());
    for found in long {
        reply.array(2 + usize::from(options.with_lengths));
        for start in [found.a, found.b] {
            reply.array(2);
            reply.integer(start as i64);
            reply.integer((start + found.len - 1) as i64);
        }
        if options.with_lengths {
            reply.integer(found.len as i64);
        }
    }
    reply.bulk(b"len");
    reply.integer(length as i64);
}

/// The rows, one for each byte of the first string; only the last unless all are needed.
struct Table {
    columns: usize,
    words: usize,
    rows: Vec<u64>,
}

impl Table {
    /// # Errors
    /// It would be too large.
    fn new(a: &[u8], b: &[u8], keep: bool) -> Result<Self, Error> {
        let (columns, words) = (b.len(), b.len().div_ceil(64));
        let cells = (a.len() as u128 + 1) * (b.len() as u128 + 1);
        if cells * 4 > MAX_TABLE_BYTES || a.len() as u128 * words as u128 > MAX_WORDS {
            let text = "Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
            return Err(Error::err(text));
        }
        let masks = masks(a, b, words);
        let mut row = vec![u64::MAX; words];
        let mut rows = Vec::with_capacity(if keep { a.len() * words } else { words });
        for byte in a {
            next_row(&mut row, masks[usize::from(*byte)].as_deref().unwrap_or_default());
            if keep {
                rows.extend_from_slice(&row);
            }
        }
        if rows.is_empty() {
            rows = row;
        }
        Ok(Table { columns, words, rows })
    }

    /// How long the subsequence is.
    fn length(&self) -> usize {
        let last = &self.rows[self.rows.len() - self.words..];
        let zeros: u32 = last.iter().map(|word| word.count_zeros()).sum();
        zeros as usize
    }

    /// True if a row's column, both counted from 0, has one more than the column before.
    fn grows(&self, row: usize, column: usize) -> bool {
        self.rows[row * self.words + column / 64] >> (column % 64) & 1 == 0
    }

    /// Walks back from the ends of both strings; the last match comes first.
    fn matches(&self, a: &[u8], b: &[u8]) -> Vec<Match> {
        debug_assert!(b.len() == self.columns, "the table is of these strings");
        let mut matches: Vec<Match> = Vec::new();
        let (mut i, mut j) = (a.len(), b.len());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                match matches.last_mut() {
                    Some(last) if last.a == i && last.b == j => {
                        *last = Match { a: i - 1, b: j - 1, len: last.len + 1 };
                    }
                    _ => matches.push(Match { a: i - 1, b: j - 1, len: 1 }),
                }
                (i, j) = (i - 1, j - 1);
            } else if self.grows(i - 1, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        matches
    }
}

/// For each byte of `a`, where it is in `b`.
fn masks(a: &[u8], b: &[u8], words: usize) -> Vec<Option<Vec<u64>>> {
    let mut masks = vec![None; 256];
    for byte in a {
        masks[usize::from(*byte)].get_or_insert_with(|| vec![0; words]);
    }
    for (column, byte) in b.iter().enumerate() {
        if let Some(mask) = &mut masks[usize::from(*byte)] {
            mask[column / 64] |= 1 << (column % 64);
        }
    }
    masks
}

/// The row after one, for a byte that is where the mask says.
fn next_row(row: &mut [u64], mask: &[u64]) {
    let mut carry = false;
    for (word, mask) in row.iter_mut().zip(mask) {
        let (sum, first) = word.overflowing_add(*word & mask);
        let (sum, second) = sum.overflowing_add(carry.into());
        (*word, carry) = (sum | *word & !mask, first || second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Redis's table and its way back, cell by cell.
    fn naive(a: &[u8], b: &[u8]) -> (usize, Vec<Match>) {
        let mut table = vec![vec![0usize; b.len() + 1]; a.len() + 1];
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                table[i][j] = match a[i - 1] == b[j - 1] {
                    true => table[i - 1][j - 1] + 1,
                    false => table[i - 1][j].max(table[i][j - 1]),
                };
            }
        }
        let (mut i, mut j, mut matches) = (a.len(), b.len(), Vec::<Match>::new());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                matches.push(Match { a: i - 1, b: j - 1, len: 1 });
                (i, j) = (i - 1, j - 1);
            } else if table[i - 1][j] > table[i][j - 1] {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        let mut joined: Vec<Match> = Vec::new();
        for one in matches {
            match joined.last_mut() {
                Some(last) if last.a == one.a + 1 && last.b == one.b + 1 => {
                    *last = Match { len: last.len + 1, ..one };
                }
                _ => joined.push(one),
            }
        }
        (table[a.len()][b.len()], joined)
    }

    #[test]
    fn words_of_columns_come_to_what_single_cells_do() {
        let mut random = types::Rng::with_seed(7);
        for round in 0..400 {
            let mut text = |longest: usize, letters: u8| -> Vec<u8> {
                (0..random.usize(..=longest)).map(|_| b'a' + random.u8(..letters)).collect()
            };
            let (a, b) = (text(round, 2 + (round % 9) as u8), text(400 - round, 2 + (round % 9) as u8));
            let table = Table::new(&a, &b, true).expect("they are short");
            assert_eq!((table.length(), table.matches(&a, &b)), naive(&a, &b));
            assert_eq!(Table::new(&a, &b, false).expect("they are short").length(), table.length());
        }
    }

    #[test]
    fn what_would_take_long_is_refused() {
        let long = vec![b'a'; 20_000];
        assert!(Table::new(&long, &long, true).is_err());
        assert!(Table::new(&vec![b'a'; (1 << 22) + 1], b"b", true).is_err());
        assert_eq!(
            Table::new(&long[..10_000], &long[..10_000], true).map(|table| table.length()).ok(),
            Some(10_000)
        );
    }
}
