//! Contexts on their way to another session: what a session depends on, in words that only nodes of the cluster can write.

use super::{Times, Topology};
use std::fmt::Write;
use types::{HashSeed, KeyspaceId, Reader, RegionId, Timestamp, Wire, wire_struct};

const VERSION: u8 = 2;
/// The length of the authentication at the end.
const TAG_BYTES: usize = 8;

/// What a session depends on (Corrections 35): it holds for a snapshot of another region too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// Where the session was.
    pub(super) region: RegionId,
    /// It has seen that region's effects up to here, its own writes included.
    pub(super) own: Timestamp,
    /// It has seen the effects of all regions up to here.
    pub(super) whole: Timestamp,
    /// Or of each region up to here, where sessions know that.
    pub(super) vector: Vec<Timestamp>,
}
wire_struct!(Token { region, own, whole, vector });

impl Token {
    /// True if a snapshot in `region` shows all of it. In another region only what is received from everywhere counts:
    /// the local time there says nothing about effects of the session's region.
    pub(super) fn is_shown_by<S: Times>(&self, snapshot: S, region: RegionId) -> bool {
        match region == self.region && S::OBSERVES {
            true => self.is_shown_at_home(snapshot),
            false => snapshot.whole() >= self.own.max(self.whole),
        }
    }

    /// True if a snapshot of the token's own region shows all of it.
    pub(super) fn is_shown_at_home<S: Times>(&self, snapshot: S) -> bool {
        snapshot.reach() >= self.own && snapshot.whole() >= self.whole
    }

    /// What it depends on of each region, where sessions know that.
    pub(super) fn seen<S: Times>(&self) -> Option<S> {
        let (first, others) = self.vector.split_first()?;
        let others = (1u16..).map(RegionId).zip(others.iter().copied());
        Some(S::of_partition(RegionId(0), *first, others))
    }

    /// The token as a client gets it.
    pub(super) fn seal(&self, topology: &Topology) -> String {
        let mut encoded = vec![VERSION];
        self.encode(&mut encoded);
        seal(encoded, topology)
    }

    /// The token of this text, unless it is another keyspace's, another cluster's, or nobody's.
    pub(super) fn open(text: &[u8], topology: &Topology) -> Option<Token> {
        let encoded = open(text, topology)?;
        let mut input = Reader::new(encoded.strip_prefix(&[VERSION])?);
        Token::decode(&mut input).ok().filter(|_| input.is_empty())
    }
}

/// What a token tells, as a client gets it: in words that only nodes of the cluster can write.
pub(crate) fn seal(mut encoded: Vec<u8>, topology: &Topology) -> String {
    encoded.extend(authentication(topology.seed, topology.keyspace, &encoded).to_be_bytes());
    encoded.iter().fold(String::with_capacity(2 * encoded.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The content of a token, unless the token is invalid, or of another keyspace or cluster.
pub(crate) fn open(text: &[u8], topology: &Topology) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let byte = |pair: &[u8]| Some((digit(pair.first()?)? << 4 | digit(pair.get(1)?)?) as u8);
    let bytes: Vec<u8> = text.chunks(2).map(byte).collect::<Option<_>>()?;
    let (encoded, tag) = bytes.split_at_checked(bytes.len().checked_sub(TAG_BYTES)?)?;
    let is_ours = authentication(topology.seed, topology.keyspace, encoded).to_be_bytes() == *tag;
    is_ours.then(|| encoded.to_vec())
}

fn authentication(seed: HashSeed, keyspace: KeyspaceId, bytes: &[u8]) -> u64 {
    let mut purpose = b"context".to_vec();
    keyspace.encode(&mut purpose);
    siphash([seed.0, siphash([seed.0, 0], &purpose)], bytes)
}

/// SipHash-2-4 (Aumasson and Bernstein, 2012): a pseudorandom function of short messages under a secret key.
fn siphash(key: [u64; 2], message: &[u8]) -> u64 {
    let mut state = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let mut chunks = message.chunks_exact(8);
    let mut absorb = |word: u64| {
        state[3] ^= word;
        (0..2).for_each(|_| sip_round(&mut state));
        state[0] ^= word;
    };
    for chunk in &mut chunks {
        absorb(chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    }
    let rest = chunks.remainder().iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    absorb((message.len() as u64) << 56 | rest);
    state[2] ^= 0xff;
    (0..4).for_each(|_| sip_round(&mut state));
    state.iter().fold(0, |all, word| all ^ word)
}

fn sip_round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paris::Universal;
    use crate::wren::Snapshot;

    const HERE: RegionId = RegionId(0);
    const THERE: RegionId = RegionId(1);
    const SEED: HashSeed = HashSeed(77);
    const KEYSPACE: KeyspaceId = KeyspaceId(3);

    fn token(own: u64, whole: u64) -> Token {
        Token { region: HERE, own: Timestamp(own), whole: Timestamp(whole), vector: Vec::new() }
    }

    /// The vectors of the paper's reference implementation: messages 00, 00 01, ... under the key 00 01 .. 0f.
    #[test]
    fn the_authentication_is_siphash() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(siphash(key, &message[..0]), 0x726f_db47_dd0e_0e31);
        assert_eq!(siphash(key, &message[..1]), 0x74f8_39c5_93dc_67fd);
        assert_eq!(siphash(key, &message), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn only_the_cluster_can_write_a_token() {
        let of = |seed, keyspace| Topology { regions: Vec::new(), keyspace, seed };
        let ours = of(SEED, KEYSPACE);
        let text = token(1 << 60, 1 << 59).seal(&ours);
        assert_eq!(Token::open(text.as_bytes(), &ours), Some(token(1 << 60, 1 << 59)));
        assert_eq!(Token::open(text.as_bytes(), &of(HashSeed(78), KEYSPACE)), None, "of another cluster");
        assert_eq!(Token::open(text.as_bytes(), &of(SEED, KeyspaceId(4))), None, "of another keyspace");
        for place in 0..text.len() {
            let mut forged = text.clone().into_bytes();
            forged[place] = if forged[place] == b'0' { b'1' } else { b'0' };
            assert_eq!(Token::open(&forged, &ours), None, "changed at {place}");
            assert_eq!(Token::open(&text.as_bytes()[..place], &ours), None, "cut at {place}");
        }
    }

    /// Corrections 35: the local time of one region means nothing in another.
    #[test]
    fn another_region_must_have_received_everything() {
        let seen = token(20, 10);
        let at = |local, remote| Snapshot { local: Timestamp(local), remote: Timestamp(remote) };
        assert!(seen.is_shown_by(at(20, 10), HERE));
        assert!(!seen.is_shown_by(at(19, 10), HERE) && !seen.is_shown_by(at(20, 9), HERE));
        assert!(!seen.is_shown_by(at(40, 19), THERE), "its own writes may be on their way");
        assert!(seen.is_shown_by(at(40, 20), THERE));
        assert!(!seen.is_shown_by(Universal::at(Timestamp(19)), HERE));
        assert!(seen.is_shown_by(Universal::at(Timestamp(20)), THERE));
    }
}
