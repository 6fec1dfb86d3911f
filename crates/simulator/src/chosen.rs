//! What servers choose when they add to streams and deliver from them, for the checkers: whoever replays a history
//! knows neither the clock nor the region of who chose.
//!
//! `XADD key *` becomes `XADD key ID` with the id that was chosen, of which the reply tells, or else the effect: every added
//! value is added by one step only, or by retries of it. Deliveries are said to have happened when their transaction committed,
//! which is when replays deliver; ids and consumers are what they are.

use checker::{Bytes, Key, Transaction};
use datatypes::stream::{self, NewId, StreamId};
use datatypes::{Effect, Operation};
use std::collections::BTreeMap;
use types::{Reader, Timestamp};

/// Ids by key and by what was added.
type Chosen = BTreeMap<(Key, Vec<Vec<u8>>), StreamId>;

/// Tells both in a history that is complete.
pub(crate) fn tell(history: &mut [Transaction]) {
    let mut chosen = Chosen::new();
    for transaction in history.iter_mut() {
        let at = transaction.claim.as_ref().and_then(|claim| claim.commit).map_or(0, |commit| commit.at);
        let now_millis = Timestamp(at).wall().as_millis();
        let effects = transaction.claim.iter_mut().flat_map(|claim| &mut claim.effects);
        effects.for_each(|(key, effect)| read_effect(key, effect, now_millis, &mut chosen));
    }
    for transaction in history.iter_mut() {
        let own = ids_of(transaction);
        for step in &mut transaction.steps {
            let bytes = step.operation.0.clone();
            let Some((items, NewId::Next)) = addition(&bytes) else { continue };
            let replied = step.reply.as_deref().filter(|_| !step.blind).and_then(id_of);
            let place = (step.key.clone(), items);
            let id = replied.or_else(|| own.get(&place).or_else(|| chosen.get(&place)).copied());
            if let Some(id) = id {
                step.operation = Bytes(with_id(&bytes, id));
            }
        }
    }
}

/// Notes what an effect added, and sets the times of what it delivered.
fn read_effect(key: &Key, effect: &mut Bytes, now_millis: u64, chosen: &mut Chosen) {
    let bytes = effect.0.clone();
    let Ok(Effect::Stream(mut decoded)) = Effect::decode(&mut Reader::new(&bytes)) else { return };
    match &mut decoded {
        stream::Effect::Add { id, items, .. } => {
            chosen.insert((key.clone(), items.iter().map(<[u8]>::to_vec).collect()), *id);
            return;
        }
        stream::Effect::CreateConsumer { now_millis: at, .. } => *at = now_millis,
        stream::Effect::Deliver { now_millis: at, deliveries, .. } => {
            *at = now_millis;
            deliveries.iter_mut().for_each(|delivery| delivery.at_millis = now_millis);
        }
        _ => return,
    }
    effect.0.clear();
    Effect::Stream(decoded).encode(&mut effect.0);
}

fn ids_of(transaction: &Transaction) -> Chosen {
    let effects = transaction.claim.iter().flat_map(|claim| &claim.effects);
    let added = effects.filter_map(|(key, effect)| match Effect::decode(&mut Reader::new(&effect.0)) {
        Ok(Effect::Stream(stream::Effect::Add { id, items, .. })) => {
            Some(((key.clone(), items.iter().map(<[u8]>::to_vec).collect()), id))
        }
        _ => None,
    });
    added.collect()
}

/// What an operation adds, and under which id.
fn addition(operation: &[u8]) -> Option<(Vec<Vec<u8>>, NewId)> {
    match Operation::decode(&mut Reader::new(operation)) {
        Ok(Operation::Stream(stream::Operation::Add { id, items, .. })) => {
            Some((items.iter().map(<[u8]>::to_vec).collect(), id))
        }
        _ => None,
    }
}

/// The same addition with an id.
fn with_id(operation: &[u8], id: StreamId) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(Operation::Stream(stream::Operation::Add { items, only_if_exists, trim, .. })) =
        Operation::decode(&mut Reader::new(operation))
    {
        let id = NewId::Given { id };
        Operation::Stream(stream::Operation::Add { id, items, only_if_exists, trim }).encode(&mut bytes);
    }
    bytes
}

/// The id that a reply shows.
fn id_of(reply: &str) -> Option<StreamId> {
    let text = reply.strip_prefix('"')?.strip_suffix('"')?;
    StreamId::parse(text.as_bytes(), 0).ok()
}
