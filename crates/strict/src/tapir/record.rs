//! What a replica writes to the log and to checkpoints: changes of its IR record.

use super::operation::Transactions;
use crate::ir::{Change, Recovering};
use protocol::Encode;
use types::{Malformed, Reader, Wire};

/// One record; borrowed where the replica has it.
#[derive(Debug)]
pub struct Record<'a>(pub Change<'a, Transactions>);

impl Encode for Record<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Change::Group { id, group } => {
                out.push(0);
                Wire::encode(id, out);
                Wire::encode(*group, out);
            }
            Change::View { view, last_normal } => {
                out.push(1);
                Wire::encode(view, out);
                Wire::encode(last_normal, out);
            }
            Change::Record { view, first, groups } => {
                out.push(2);
                Wire::encode(view, out);
                Wire::encode(first, out);
                Wire::encode(*groups, out);
            }
        }
    }
}

/// Reads a record back.
pub(super) fn decode(input: &mut Reader<'_>) -> Result<Recovering<Transactions>, Malformed> {
    Ok(match input.byte()? {
        0 => Recovering::Group { id: Wire::decode(input)?, group: Wire::decode(input)? },
        1 => Recovering::View { view: Wire::decode(input)?, last_normal: Wire::decode(input)? },
        2 => Recovering::Record {
            view: Wire::decode(input)?,
            first: Wire::decode(input)?,
            groups: Wire::decode(input)?,
        },
        _ => return Err(Malformed("record tag")),
    })
}
