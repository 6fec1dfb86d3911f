//! Requests made once and patched for every use: building them anew would cost the client as much as the server.

use super::catalogue::Test;

/// The width of a number in a request, as in `redis-benchmark`.
const NUMBER_DIGITS: usize = 12;
/// What stands in a command where the number goes.
const NUMBER: &str = "{number}";
/// What stands in a command where the payload goes.
const VALUE: &str = "{value}";

/// The bytes of several equal requests in a row, and where their numbers stand.
///
/// Every request has the same length, so the first `n` of them are the first `n * request_bytes` bytes.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    /// Where the numbers of the first request begin.
    slots: Vec<usize>,
    request_bytes: usize,
    replies: usize,
}

impl Template {
    /// `copies` requests, each made of these commands.
    pub fn new(commands: &[&str], value: &[u8], copies: usize) -> Self {
        let mut request = Vec::new();
        let mut slots = Vec::new();
        for command in commands {
            let words: Vec<Word> = command.split_whitespace().map(|word| Word::new(word, value)).collect();
            let arguments: Vec<&[u8]> = words.iter().map(|word| word.bytes.as_slice()).collect();
            resp::encode_command(&mut request, &arguments);
            // The words stand in the request one after the other; a word's number ends it.
            let mut end = request.len();
            for word in words.iter().rev() {
                end -= 2;
                if word.has_number {
                    slots.push(end - NUMBER_DIGITS);
                }
                end -= word.bytes.len() + format!("${}\r\n", word.bytes.len()).len();
            }
        }
        slots.sort_unstable();
        let request_bytes = request.len();
        Template { bytes: request.repeat(copies), slots, request_bytes, replies: commands.len() }
    }

    /// The requests of a test.
    pub fn of(test: &Test, value: &[u8], copies: usize) -> Self {
        Self::new(test.commands, value, copies)
    }

    /// How many replies one request gets.
    pub fn replies(&self) -> usize {
        self.replies
    }

    /// Puts new numbers into the first `requests` requests and returns their bytes.
    pub fn next(&mut self, requests: usize, numbers: &mut Numbers) -> &[u8] {
        let length = requests * self.request_bytes;
        if !self.slots.is_empty() {
            for request in self.bytes[..length].chunks_exact_mut(self.request_bytes) {
                numbers.begin_request();
                for slot in &self.slots {
                    numbers.write(&mut request[*slot..*slot + NUMBER_DIGITS]);
                }
            }
        }
        &self.bytes[..length]
    }
}

/// One argument of a command.
struct Word {
    bytes: Vec<u8>,
    has_number: bool,
}

impl Word {
    fn new(word: &str, value: &[u8]) -> Self {
        if word == VALUE {
            return Word { bytes: value.to_vec(), has_number: false };
        }
        match word.strip_suffix(NUMBER) {
            Some(prefix) => {
                let mut bytes = prefix.as_bytes().to_vec();
                bytes.resize(prefix.len() + NUMBER_DIGITS, b'0');
                Word { bytes, has_number: true }
            }
            None => Word { bytes: word.as_bytes().to_vec(), has_number: false },
        }
    }
}

/// Where the numbers of requests come from: drawn for every place, or one after the other for each request.
#[derive(Debug)]
pub struct Numbers {
    below: u32,
    digits: usize,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Random(fastrand::Rng),
    Sequence(u32),
}

impl Numbers {
    /// Drawn evenly from 0 to `below - 1`; equal seeds give equal numbers.
    pub fn random(below: u32, seed: u64) -> Self {
        Self::new(below, Source::Random(fastrand::Rng::with_seed(seed)))
    }

    /// 0, 1, 2, ... `below - 1`, and from 0 again.
    pub fn sequence(below: u32) -> Self {
        Self::new(below, Source::Sequence(below.max(1) - 1))
    }

    fn new(below: u32, source: Source) -> Self {
        let below = below.max(1);
        let digits = (below - 1).checked_ilog10().unwrap_or(0) as usize + 1;
        Numbers { below, digits, source }
    }

    fn begin_request(&mut self) {
        if let Source::Sequence(number) = &mut self.source {
            *number = if *number + 1 >= self.below { 0 } else { *number + 1 };
        }
    }

    fn draw(&mut self) -> u32 {
        match &mut self.source {
            Source::Random(rng) => rng.u32(..self.below),
            Source::Sequence(number) => *number,
        }
    }

    /// Writes the last digits that the range needs; what stands before them is always zero.
    fn write(&mut self, field: &mut [u8]) {
        let mut number = self.draw();
        for digit in field.iter_mut().rev().take(self.digits) {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::catalogue::TESTS;

    #[test]
    fn numbers_are_patched_in_place() {
        let mut template = Template::new(&["SET key:{number} {value}", "GET key:{number}"], b"abc", 2);
        let mut numbers = Numbers::sequence(1000);
        assert_eq!(template.replies(), 2);
        template.next(2, &mut numbers);
        let bytes = template.next(1, &mut numbers).to_vec();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000002\r\n$3\r\nabc\r\n\
             *2\r\n$3\r\nGET\r\n$16\r\nkey:000000000002\r\n"
        );
    }

    #[test]
    fn a_sequence_covers_every_number_once() {
        let mut numbers = Numbers::sequence(3);
        let mut drawn = Vec::new();
        for _ in 0..4 {
            numbers.begin_request();
            drawn.extend([numbers.draw(), numbers.draw()]);
        }
        assert_eq!(drawn, [0, 0, 1, 1, 2, 2, 0, 0]);
    }

    #[test]
    fn random_numbers_stay_below_and_cover_the_range() {
        let mut numbers = Numbers::random(10, 7);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            let mut field = *b"000000000000";
            numbers.write(&mut field);
            let number: usize = std::str::from_utf8(&field).unwrap().parse().unwrap();
            seen[number] = true;
        }
        assert_eq!(seen, [true; 10]);
    }

    #[test]
    fn every_test_is_a_well_formed_pipeline() {
        for test in TESTS {
            let mut template = Template::of(test, b"value", 3);
            let bytes = template.next(3, &mut Numbers::random(100_000, 1)).to_vec();
            let (mut parser, mut pipeline) = (resp::Parser::default(), resp::Pipeline::default());
            let mut commands = Vec::new();
            let mut unread = &bytes[..];
            while let Ok(consumed @ 1..) = parser.parse(unread, &mut pipeline) {
                commands.extend(pipeline.commands(unread).map(|arguments| arguments.name().to_vec()));
                unread = &unread[consumed..];
            }
            assert!(unread.is_empty(), "{test}");
            assert_eq!(commands.len(), 3 * template.replies(), "{test}");
        }
    }
}
