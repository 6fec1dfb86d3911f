//! The binary form of requests that a gateway forwards to the region's site.

use crate::instance::Instance;
use crate::site::Site;
use datatypes::Operation;
use protocol::{ContextRequest, KeyedOperation, Now, Outputs, Request, Step};
use types::{
    Error, KeyHash, Malformed, ProcessId, Reader, ReplyBuf, ReplySink, Rng, SessionId, Wire, put_bytes,
    put_varint,
};

/// The binary form of a request.
pub(crate) fn encoded(request: &Request<'_>) -> Box<[u8]> {
    let mut out = Vec::new();
    let number: u8 = match request {
        Request::One { .. } => 0,
        Request::Many { .. } => 1,
        Request::Watch { .. } => 2,
        Request::Unwatch { .. } => 3,
        Request::Begin { .. } => 4,
        Request::Operate { .. } => 5,
        Request::Commit { .. } => 6,
        Request::Abort { .. } => 7,
        Request::Close { .. } => 8,
        Request::Own { .. } => 9,
        Request::Context { .. } => 10,
    };
    out.push(number);
    request.session().encode(&mut out);
    match request {
        Request::One { operation, .. } => put_keyed(operation, &mut out),
        Request::Many { steps, watched, multi, .. } => {
            watched.encode(&mut out);
            multi.encode(&mut out);
            put_steps(steps, &mut out);
        }
        Request::Watch { keys, .. } => {
            put_varint(&mut out, keys.len() as u64);
            for (key, hash) in *keys {
                put_bytes(&mut out, key);
                hash.0.encode(&mut out);
            }
        }
        Request::Begin { read_only, watched, .. } => {
            read_only.encode(&mut out);
            watched.encode(&mut out);
        }
        Request::Operate { steps, .. } => put_steps(steps, &mut out),
        Request::Own { words, steps, .. } => {
            put_varint(&mut out, words.len() as u64);
            words.iter().for_each(|word| put_bytes(&mut out, word));
            put_steps(steps, &mut out);
        }
        // What it asks about a context is of no matter: no site has any.
        Request::Context { .. }
        | Request::Unwatch { .. }
        | Request::Commit { .. }
        | Request::Abort { .. }
        | Request::Close { .. } => {}
    }
    out.into()
}

fn put_keyed(keyed: &KeyedOperation<'_>, out: &mut Vec<u8>) {
    put_bytes(out, keyed.key);
    keyed.hash.0.encode(out);
    keyed.blind.encode(out);
    keyed.operation.encode(out);
}

fn put_steps(steps: &[Step<'_>], out: &mut Vec<u8>) {
    put_varint(out, steps.len() as u64);
    for step in steps {
        match step {
            Step::Key(keyed) => {
                out.push(0);
                put_keyed(keyed, out);
            }
            Step::Count => out.push(1),
            Step::Flush => out.push(2),
            Step::Keys => out.push(3),
            Step::Scan { cursor, count } => {
                out.push(4);
                cursor.encode(out);
                count.encode(out);
            }
            // The site refuses any request of it.
            Step::Losses(_) => out.push(5),
            Step::Random => out.push(6),
        }
    }
}

fn keyed<'a>(input: &mut Reader<'a>) -> Result<KeyedOperation<'a>, Malformed> {
    let (key, hash, blind) = (input.bytes()?, KeyHash(u64::decode(input)?), bool::decode(input)?);
    Ok(KeyedOperation { key, hash, blind, operation: Operation::decode(input)? })
}

fn steps<'a>(input: &mut Reader<'a>) -> Result<Vec<Step<'a>>, Malformed> {
    let count = input.count()?;
    (0..count)
        .map(|_| {
            Ok(match input.byte()? {
                0 => Step::Key(keyed(input)?),
                1 => Step::Count,
                2 => Step::Flush,
                3 => Step::Keys,
                4 => Step::Scan { cursor: u64::decode(input)?, count: u32::decode(input)? },
                5 => Step::Losses(protocol::Losses::Count { cursor: 0 }),
                6 => Step::Random,
                _ => return Err(Malformed("step of a request")),
            })
        })
        .collect()
}

/// The session of a request.
pub(crate) fn session(bytes: &[u8]) -> Result<SessionId, Malformed> {
    let input = &mut Reader::new(bytes);
    input.byte()?;
    SessionId::decode(input)
}

/// Reads a request and hands it to `serve`.
///
/// # Errors
/// It is none.
pub(crate) fn decoded<R>(bytes: &[u8], serve: impl FnOnce(&Request<'_>) -> R) -> Result<R, Malformed> {
    let input = &mut Reader::new(bytes);
    let number = input.byte()?;
    let session = SessionId::decode(input)?;
    Ok(match number {
        0 => serve(&Request::One { session, operation: keyed(input)? }),
        1 => {
            let (watched, multi) = (bool::decode(input)?, bool::decode(input)?);
            serve(&Request::Many { session, steps: &steps(input)?, watched, multi })
        }
        2 => {
            let count = input.count()?;
            let key = |input: &mut Reader<'_>| -> Result<(Box<[u8]>, KeyHash), Malformed> {
                Ok((input.bytes()?.into(), KeyHash(u64::decode(input)?)))
            };
            let keys: Vec<_> = (0..count).map(|_| key(input)).collect::<Result<_, _>>()?;
            let keys: Vec<(&[u8], KeyHash)> = keys.iter().map(|(key, hash)| (&**key, *hash)).collect();
            serve(&Request::Watch { session, keys: &keys })
        }
        3 => serve(&Request::Unwatch { session }),
        4 => {
            let (read_only, watched) = (bool::decode(input)?, bool::decode(input)?);
            serve(&Request::Begin { session, read_only, watched })
        }
        5 => serve(&Request::Operate { session, steps: &steps(input)? }),
        6 => serve(&Request::Commit { session }),
        7 => serve(&Request::Abort { session }),
        8 => serve(&Request::Close { session }),
        9 => {
            let count = input.count()?;
            let words: Vec<&[u8]> = (0..count).map(|_| input.bytes()).collect::<Result<_, _>>()?;
            serve(&Request::Own { session, words: &words, steps: &steps(input)? })
        }
        10 => serve(&Request::Context { session, ask: ContextRequest::Token }),
        _ => return Err(Malformed("request")),
    })
}

impl Site {
    /// Serves a request in binary form, of this process or of another one of the region.
    pub(crate) fn serve_encoded(
        &mut self,
        process: Option<ProcessId>,
        request: &[u8],
        (now, random): (Now, &mut Rng),
        reply: &mut ReplyBuf,
        out: &mut Outputs<'_, Instance>,
    ) {
        let served = decoded(request, |request| {
            self.on_request(process, request, (now, random), reply, out);
        });
        if let Err(malformed) = served {
            reply.error(&Error::err(format!(
                "the request was not understood by the region's site: {malformed}"
            )));
        }
    }
}
