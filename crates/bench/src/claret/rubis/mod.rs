//! RUBiS: an auction site, with bids by a power law and a rush before each auction closes (section 6.2).
//!
//! 30,000 items in 62 regions and 40 categories, ten bids each on average. The paper says of its mixes that a tenth or a half
//! are bids, and that views and bids dominate; the other shares are ours. An auction that closes is followed by another
//! one. There are as many users as items.

mod auctions;
mod transactions;

use super::plan::{Command, Event, OneStep, Plan, Source, share, words};
use auctions::Auctions;
use std::collections::VecDeque;
use transactions::{AddComment, AddUser, Bid, Browse, Close, Open};

/// Regions of the site.
const REGIONS: u32 = 62;
/// Categories of the site.
const CATEGORIES: u32 = 40;

/// Shares and sizes of RUBiS.
#[derive(Clone, Debug)]
pub struct Rubis {
    /// How many auctions go on at a time; the paper: 30,000.
    pub items: u32,
    /// Half of the transactions are bids; else a tenth.
    pub bid_heavy: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Bid,
    View,
    Browse,
    ViewUser,
    Comment,
    AddUser,
}

/// Beside them every auction is closed when its time has come, and the next one opened: one of each for ten bids.
const READ_HEAVY: [(Kind, u8); 6] = [
    (Kind::Bid, 10),
    (Kind::View, 61),
    (Kind::Browse, 19),
    (Kind::ViewUser, 6),
    (Kind::Comment, 2),
    (Kind::AddUser, 2),
];
const BID_HEAVY: [(Kind, u8); 6] = [
    (Kind::Bid, 56),
    (Kind::View, 33),
    (Kind::Browse, 5),
    (Kind::ViewUser, 2),
    (Kind::Comment, 2),
    (Kind::AddUser, 2),
];

/// Where an item is listed.
#[derive(Clone, Copy, Debug)]
struct Place {
    region: u32,
    category: u32,
}

impl Place {
    fn draw(random: &mut fastrand::Rng) -> Self {
        Place { region: random.u32(..REGIONS), category: random.u32(..CATEGORIES) }
    }

    fn list(self) -> String {
        format!("open:{}:{}", self.region, self.category)
    }
}

/// An auction as clients know it.
#[derive(Clone, Debug)]
struct Item {
    name: String,
    place: Place,
    seller: u32,
    bids: u32,
    /// Its auction has closed, and the slot's next one is not open yet.
    is_closed: bool,
}

pub(super) struct Site {
    auctions: Auctions,
    items: Vec<Item>,
    shares: [(Kind, u8); 6],
    /// Slots whose auction has closed.
    to_open: VecDeque<u32>,
}

impl Site {
    pub fn new(rubis: &Rubis, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let auctions = Auctions::new(rubis.items, &mut random);
        let item = |slot: u32| {
            let (place, seller) = (Place::draw(&mut random), random.u32(..rubis.items));
            Item { name: slot.to_string(), place, seller, bids: 0, is_closed: false }
        };
        let items = (0..rubis.items).map(item).collect();
        let shares = if rubis.bid_heavy { BID_HEAVY } else { READ_HEAVY };
        Site { auctions, items, shares, to_open: VecDeque::new() }
    }

    fn user(&self, random: &mut fastrand::Rng) -> u32 {
        random.u32(..self.items.len() as u32)
    }

    fn bid(&mut self, random: &mut fastrand::Rng) -> Bid {
        let user = self.user(random);
        let slot = self.auctions.bid(random);
        let item = &mut self.items[slot as usize];
        item.bids += 1;
        // Most outbid those before: a bid that is lower would disturb nobody who looks at the highest.
        Bid { item: item.name.clone(), user, amount: 100 + 10 * item.bids + random.u32(..20) }
    }
}

impl Source for Site {
    fn load(&self) -> Box<dyn Iterator<Item = Command> + '_> {
        let items = self.items.iter().enumerate().flat_map(|(slot, item)| {
            let Item { name, place, seller, .. } = item;
            let ends = self.auctions.phase(slot as u32);
            [
                words(&format!(
                    "HSET item:{name} title item-{name} seller {seller} category {} region {}",
                    place.category, place.region
                )),
                words(&format!("ZADD {} {ends} {name}", place.list())),
                words(&format!("HSET user:{slot} name user-{slot} region {}", place.region)),
            ]
        });
        Box::new(items)
    }

    fn draw(&mut self, random: &mut fastrand::Rng) -> Box<dyn Plan> {
        if let Some(slot) = self.to_open.pop_front() {
            let (place, seller) = (Place::draw(random), self.user(random));
            let item = &mut self.items[slot as usize];
            (item.place, item.seller) = (place, seller);
            return Box::new(Open { slot, place, seller, ends: self.auctions.end(slot) });
        }
        if let Some(slot) = self.auctions.close()
            && !self.items[slot as usize].is_closed
        {
            let Item { name, place, seller, .. } = self.items[slot as usize].clone();
            return Box::new(Close { slot, item: name, place, seller });
        }
        match share(&self.shares, random) {
            Kind::Bid => Box::new(self.bid(random)),
            Kind::View => {
                let name = &self.items[self.auctions.draw(random) as usize].name;
                let lines = [
                    format!("HGETALL item:{name}"),
                    format!("TOP.LIST bids:{name} 10"),
                    format!("COUNTER.GET bid-count:{name}"),
                ];
                Box::new(OneStep {
                    kind: "view_auction",
                    commands: lines.iter().map(|text| words(text)).collect(),
                })
            }
            Kind::Browse => Box::new(Browse { place: Place::draw(random) }),
            Kind::ViewUser => {
                let user = self.user(random);
                let lines = [
                    format!("HGETALL user:{user}"),
                    format!("SUMMARY.GET ratings:{user}"),
                    format!("ZREVRANGE comments:{user} 0 9"),
                ];
                Box::new(OneStep {
                    kind: "view_user",
                    commands: lines.iter().map(|text| words(text)).collect(),
                })
            }
            Kind::Comment => Box::new(AddComment {
                from: self.user(random),
                to: self.user(random),
                rating: random.u32(1..=5),
            }),
            Kind::AddUser => Box::new(AddUser { region: random.u32(..REGIONS) }),
        }
    }

    fn learn(&mut self, event: Event, _: &mut fastrand::Rng) {
        match event {
            Event::Closed { slot } => {
                self.items[slot as usize].is_closed = true;
                self.to_open.push_back(slot);
            }
            Event::Opened { slot, item: name } => {
                let item = &mut self.items[slot as usize];
                (item.name, item.bids, item.is_closed) = (name, 0, false);
            }
            Event::Seen { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// So many that the counts of the rarest are within 3 percent of their means, as a rule.
    const DRAWN: u32 = 200_000;

    #[test]
    fn all_eight_transactions_have_their_shares() {
        for (bid_heavy, bids, views) in [(false, 0.10, 0.60), (true, 0.50, 0.297)] {
            let (mut site, mut random) =
                (Site::new(&Rubis { items: 500, bid_heavy }, 1), fastrand::Rng::with_seed(2));
            let mut kinds: BTreeMap<&str, u32> = BTreeMap::new();
            for _ in 0..DRAWN {
                let plan = site.draw(&mut random);
                *kinds.entry(plan.kind()).or_default() += 1;
                match plan.outcome(&[]) {
                    Some(Event::Opened { slot, .. }) => {
                        site.learn(Event::Opened { slot, item: format!("n{slot}") }, &mut random)
                    }
                    Some(event) => site.learn(event, &mut random),
                    None => {}
                }
            }
            assert_eq!(kinds.len(), 8, "{kinds:?}");
            let share = |kind: &str| f64::from(kinds[kind]) / f64::from(DRAWN);
            assert!((share("bid") - bids).abs() < 0.015, "{kinds:?}");
            assert!((share("view_auction") - views).abs() < 0.015, "{kinds:?}");
            assert!((share("close_auction") - share("open_auction")).abs() < 0.001, "{kinds:?}");
            let each = share("bid") / share("close_auction");
            assert!((9.2..10.8).contains(&each), "ten bids an auction: {each}");
        }
    }

    #[test]
    fn the_site_is_loaded() {
        let site = Site::new(&Rubis { items: 500, bid_heavy: true }, 1);
        assert_eq!(site.load().count(), 1_500);
    }
}
