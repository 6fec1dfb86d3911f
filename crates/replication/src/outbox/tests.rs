//! What a peer is sent, and when.

use super::*;

const WIDE: Window = Window { items: 100, bytes: 1000 };
const A: RegionId = RegionId(1);
const B: RegionId = RegionId(2);

fn id(number: u64) -> TransactionId {
    TransactionId { number, ..TransactionId::default() }
}

/// Items at 10, 20, 30, 40, of ten bytes each.
fn filled(limit: usize) -> Outbox<u64> {
    let mut outbox = Outbox::new([A, B], limit, 0);
    (1..=4).for_each(|number| outbox.push(Timestamp(number * 10), id(number), 10, number));
    outbox
}

fn due(outbox: &mut Outbox<u64>, peer: RegionId, until: u64, window: Window) -> (Vec<u64>, u64) {
    let (due, position) = outbox.take_due(peer, Timestamp(until), window);
    (due.into_iter().map(|(_, _, item)| *item).collect(), position.0)
}

#[test]
fn what_is_given_up_is_sent_to_nobody() {
    let mut outbox = filled(1000);
    outbox.retain(|at, _, item| at != Timestamp(20) && *item != 3);
    assert_eq!((outbox.len(), outbox.bytes()), (2, 20));
    assert_eq!(due(&mut outbox, A, 45, WIDE), (vec![1, 4], 45));
}

#[test]
fn an_item_is_retained_until_the_last_peer_holds_it() {
    let mut outbox = filled(1000);
    outbox.received(A, Timestamp(40));
    assert_eq!((outbox.len(), outbox.bytes()), (4, 40));
    outbox.received(B, Timestamp(20));
    let left: Vec<u64> = outbox.after(Timestamp::ZERO).map(|(_, _, item)| *item).collect();
    assert_eq!((left, outbox.bytes()), (vec![3, 4], 20));
    outbox.received(B, Timestamp(5));
    assert_eq!(outbox.dropped(), Timestamp(19));
    assert_eq!(outbox.len(), 2, "what a peer holds it does not lose");
    outbox.push(Timestamp(50), id(5), 10, 5);
    outbox.push(Timestamp(50), id(5), 10, 5);
    assert_eq!(outbox.bytes(), 30);
}

#[test]
fn each_peer_is_sent_what_it_lacks_once() {
    let mut outbox = filled(1000);
    assert_eq!(due(&mut outbox, A, 35, WIDE), (vec![1, 2, 3], 35));
    assert_eq!(due(&mut outbox, A, 36, WIDE), (vec![], 36));
    assert_eq!(due(&mut outbox, A, 45, WIDE), (vec![4], 45));
    outbox.resume(A, Timestamp(20));
    assert_eq!(due(&mut outbox, A, 45, WIDE), (vec![3, 4], 45), "a new life begins at what it holds");
    assert_eq!(due(&mut outbox, B, 15, WIDE), (vec![1], 15));
}

#[test]
fn what_is_on_its_way_is_bounded() {
    let mut outbox = filled(1000);
    let narrow = Window { items: 2, bytes: 1000 };
    assert_eq!(due(&mut outbox, A, 45, narrow), (vec![1, 2], 20));
    assert_eq!(due(&mut outbox, A, 45, narrow), (vec![], 20), "nothing is vouched for that was not sent");
    outbox.received(A, Timestamp(10));
    assert_eq!(due(&mut outbox, A, 45, narrow), (vec![3], 30));
    outbox.push(Timestamp(30), id(9), 10, 9);
    outbox.received(A, Timestamp(30));
    outbox.resume(B, Timestamp(20));
    let thin = Window { items: 100, bytes: 0 };
    assert_eq!(due(&mut outbox, B, 45, thin), (vec![3, 9], 30), "items of one place go together");
}

#[test]
fn beyond_the_limit_the_oldest_are_dropped_and_a_peer_that_lacks_them_gets_nothing() {
    let mut outbox = filled(1000);
    due(&mut outbox, A, 45, WIDE);
    outbox.limit = 30;
    outbox.push(Timestamp(50), id(5), 10, 5);
    assert_eq!((outbox.len(), outbox.dropped()), (3, Timestamp(20)));
    assert!(outbox.lacks(B) && !outbox.lacks(A), "A has been sent it");
    assert_eq!(due(&mut outbox, B, 55, WIDE), (vec![], 0));
    assert_eq!(due(&mut outbox, A, 55, WIDE), (vec![5], 55));
    outbox.resume(B, Timestamp(45));
    assert_eq!(due(&mut outbox, B, 55, WIDE), (vec![5], 55));
}

#[test]
fn nothing_is_retained_for_a_peer_that_is_gone() {
    let mut outbox = filled(1000);
    assert_eq!(due(&mut outbox, A, 35, WIDE), (vec![1, 2, 3], 35));
    outbox.received(A, Timestamp(30));
    outbox.forget(B);
    assert_eq!((outbox.len(), outbox.bytes()), (1, 10));
    outbox.received(B, Timestamp(40));
    assert_eq!(outbox.len(), 1);
    assert_eq!(due(&mut outbox, A, 45, WIDE), (vec![4], 45));
}

#[test]
fn nothing_is_retained_without_peers() {
    let mut outbox = Outbox::new([], 100, 0);
    outbox.push(Timestamp(1), id(1), 1, ());
    assert!(outbox.is_empty());
}

/// A spool: chunks by number.
type Spool = std::collections::BTreeMap<u64, Vec<Fetched<u64>>>;

/// Moves what memory has no room for into the spool, and forgets there what is not needed any more.
fn spill(outbox: &mut Outbox<u64>, spool: &mut Spool) {
    loop {
        let mut items = Vec::new();
        let chunk = outbox.spill(|at, id, item, bytes| {
            items.push((at, id, 10, *item));
            bytes.extend_from_slice(&item.to_le_bytes());
        });
        let Some((number, _)) = chunk else { break };
        spool.insert(number, items);
    }
    if let Some(through) = outbox.take_forgotten() {
        spool.retain(|number, _| *number > through);
    }
}

/// Everything that the peer is due to be sent, with chunks fetched as they are wanted.
fn drain(outbox: &mut Outbox<u64>, peer: RegionId, until: u64, spool: &Spool) -> (Vec<u64>, u64) {
    let mut all = Vec::new();
    loop {
        let (items, position) = due(outbox, peer, until, WIDE);
        all.extend(items);
        let wanted = outbox.look_ahead(&[peer], WIDE);
        if wanted.is_empty() {
            return (all, position);
        }
        wanted.into_iter().for_each(|number| outbox.put(number, spool[&number].clone()));
    }
}

/// Items at 10, 20 ... of ten bytes each, of which memory holds the last four and the spool the others, in twos.
fn spilled(items: u64, spill_limit: u64) -> (Outbox<u64>, Spool) {
    let (mut outbox, mut spool) = (Outbox::new([A, B], 40, spill_limit), Spool::new());
    for number in 1..=items {
        outbox.push(Timestamp(number * 10), id(number), 10, number);
        spill(&mut outbox, &mut spool);
    }
    (outbox, spool)
}

#[test]
fn what_memory_has_no_room_for_is_spilled_and_sent_from_there() {
    let (mut outbox, spool) = spilled(9, 1000);
    assert_eq!((outbox.len(), outbox.bytes(), outbox.spilled_bytes()), (9, 30, 48));
    assert_eq!((outbox.dropped(), outbox.dropped_from_memory()), (Timestamp(0), Timestamp(60)));
    assert_eq!(due(&mut outbox, A, 95, WIDE), (vec![], 0), "nothing is vouched for that is not here");
    assert_eq!(outbox.awaits(A), None);
    assert_eq!(outbox.look_ahead(&[A], WIDE), [0, 1], "one more than is needed now");
    assert_eq!(outbox.awaits(A), Some(Timestamp(20)));
    assert!(outbox.look_ahead(&[A, B], WIDE).is_empty(), "asked for once");
    outbox.put(1, spool[&1].clone());
    assert_eq!(due(&mut outbox, A, 95, WIDE), (vec![], 0), "in order");
    outbox.put(0, spool[&0].clone());
    assert_eq!(due(&mut outbox, A, 95, WIDE), (vec![1, 2, 3, 4], 40));
    assert_eq!(drain(&mut outbox, A, 95, &spool), (vec![5, 6, 7, 8, 9], 95));
    assert_eq!(outbox.len(), 9, "B has nothing yet");
}

#[test]
fn peers_are_fed_from_the_spool_each_from_where_it_stands() {
    let (mut outbox, spool) = spilled(11, 1000);
    outbox.resume(A, Timestamp(30));
    assert_eq!(drain(&mut outbox, A, 105, &spool), ((4..=10).collect(), 105));
    outbox.resume(B, Timestamp(40));
    assert_eq!(drain(&mut outbox, B, 65, &spool), (vec![5, 6], 65), "no further than it may");
    assert_eq!(drain(&mut outbox, B, 111, &spool), ((7..=11).collect(), 111));
    assert!(outbox.look_ahead(&[A, B], WIDE).is_empty());
    assert_eq!(outbox.bytes(), 30, "what nobody needs soon is not kept in memory");
    outbox.resume(A, Timestamp(0));
    assert!(outbox.lacks(A), "it has forgotten what it held");
}

#[test]
fn the_window_holds_for_what_comes_from_the_spool() {
    let (mut outbox, spool) = spilled(9, 1000);
    let narrow = Window { items: 3, bytes: 1000 };
    for number in outbox.look_ahead(&[A], narrow) {
        outbox.put(number, spool[&number].clone());
    }
    assert_eq!(due(&mut outbox, A, 95, narrow), (vec![1, 2, 3], 30));
    assert_eq!(due(&mut outbox, A, 95, narrow), (vec![], 30));
    assert!(outbox.look_ahead(&[A], narrow).is_empty(), "it has no room for more");
    outbox.received(A, Timestamp(20));
    assert_eq!(due(&mut outbox, A, 95, narrow), (vec![4], 40));
}

#[test]
fn chunks_that_every_peer_holds_are_forgotten() {
    let (mut outbox, mut spool) = spilled(9, 1000);
    outbox.received(A, Timestamp(95));
    outbox.resume(B, Timestamp(50));
    spill(&mut outbox, &mut spool);
    assert_eq!(spool.keys().copied().collect::<Vec<_>>(), [2], "half of it is needed");
    assert_eq!((outbox.len(), outbox.dropped()), (5, Timestamp(39)));
    assert_eq!(drain(&mut outbox, B, 95, &spool).1, 95);
    outbox.forget(B);
    spill(&mut outbox, &mut spool);
    assert!(spool.is_empty() && outbox.is_empty() && outbox.bytes() == 0 && outbox.spilled_bytes() == 0);
}

#[test]
fn beyond_what_the_spool_may_hold_the_oldest_chunk_is_dropped() {
    let (mut outbox, spool) = spilled(9, 40);
    assert_eq!((outbox.dropped(), outbox.spilled_bytes(), spool.len()), (Timestamp(20), 32, 2));
    assert!(outbox.lacks(A));
    outbox.resume(A, Timestamp(20));
    assert_eq!(drain(&mut outbox, A, 95, &spool), ((3..=9).collect(), 95));
}

#[test]
fn a_lost_chunk_is_dropped_with_all_before_it() {
    let (mut outbox, mut spool) = spilled(11, 1000);
    outbox.resume(A, Timestamp(40));
    assert_eq!(outbox.look_ahead(&[A], WIDE), [2, 3]);
    outbox.lost(1);
    assert_eq!(outbox.dropped(), Timestamp(40));
    assert!(outbox.lacks(B) && !outbox.lacks(A));
    assert_eq!(due(&mut outbox, B, 115, WIDE), (vec![], 0));
    spill(&mut outbox, &mut spool);
    assert_eq!(spool.keys().copied().collect::<Vec<_>>(), [2, 3]);
    outbox.lost(0);
    assert_eq!(outbox.dropped(), Timestamp(40), "it is forgotten");
    assert_eq!(due(&mut outbox, A, 115, WIDE), (vec![], 40));
    outbox.put(2, vec![(Timestamp(50), id(5), 10, 5)]);
    assert_eq!(outbox.dropped(), Timestamp(60), "what is not all of it is as good as lost");
    assert!(outbox.lacks(A));
    outbox.put(3, spool[&3].clone());
    outbox.look_ahead(&[A, B], WIDE);
    assert_eq!(outbox.bytes(), 30, "nobody can be sent it");
}

#[test]
fn items_of_one_place_are_in_one_chunk() {
    let mut outbox = Outbox::new([A], 40, 1000);
    (1..=9)
        .for_each(|number| outbox.push(Timestamp(if number < 8 { 10 } else { 20 }), id(number), 10, number));
    let mut items = Vec::new();
    outbox.spill(|_, _, item, _| items.push(*item)).expect("there is too much");
    assert_eq!((items.len(), outbox.bytes()), (7, 20));
    assert!(outbox.spill(|_, _, _, _| ()).is_none(), "memory has room for the rest");
    outbox.push(Timestamp(5), id(20), 10, 20);
    assert_eq!((outbox.dropped(), outbox.len()), (Timestamp(5), 9), "no chunk takes it in");
}
