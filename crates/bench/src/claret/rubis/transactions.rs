//! The transactions of RUBiS that have several steps.

use super::Place;
use crate::claret::plan::{Batch, Event, Plan, reply, text, texts, words};
use resp::Value;

/// Items that a page lists.
const LISTED: usize = 10;

fn commands(lines: impl IntoIterator<Item = String>) -> Vec<super::Command> {
    lines.into_iter().map(|line| words(&line)).collect()
}

/// Bids on an item, unless its auction is closed.
pub(super) struct Bid {
    pub item: String,
    pub user: u32,
    pub amount: u32,
}

impl Plan for Bid {
    fn kind(&self) -> &'static str {
        "bid"
    }

    fn step(&self, replies: &[Vec<Value>]) -> Batch {
        let Bid { item, user, amount } = self;
        if replies.is_empty() {
            return Batch::first(commands([
                format!("HGET item:{item} winner"),
                "UID.NEXT bid-ids".to_owned(),
            ]));
        }
        if text(reply(replies, 0, 0)).is_some() {
            return Batch::last(Vec::new());
        }
        let id = text(reply(replies, 0, 1)).unwrap_or_default();
        Batch::last(commands([
            format!("BLIND HSET bid:{id} item {item} user {user} amount {amount}"),
            format!("TOP.ADD bids:{item} {amount} {id}"),
            format!("COUNTER.ADD bid-count:{item}"),
            format!("BLIND SADD bids-of:{user} {id}"),
        ]))
    }
}

/// Lists the auctions of a region and a category that close first, with the highest bids.
pub(super) struct Browse {
    pub place: Place,
}

impl Plan for Browse {
    fn kind(&self) -> &'static str {
        "browse"
    }

    fn step(&self, replies: &[Vec<Value>]) -> Batch {
        if replies.is_empty() {
            return Batch::first(commands([format!("ZRANGE {} 0 {}", self.place.list(), LISTED - 1)]));
        }
        let items = texts(reply(replies, 0, 0));
        let each = |item: &String| [format!("HGETALL item:{item}"), format!("TOP.LIST bids:{item} 1")];
        Batch::last(commands(items.iter().flat_map(each)))
    }
}

/// Ends an auction: the highest bid wins.
pub(super) struct Close {
    pub slot: u32,
    pub item: String,
    pub place: Place,
    pub seller: u32,
}

impl Plan for Close {
    fn kind(&self) -> &'static str {
        "close_auction"
    }

    fn step(&self, replies: &[Vec<Value>]) -> Batch {
        let Close { item, place, seller, .. } = self;
        let highest = || texts(reply(replies, 0, 0)).first().cloned();
        let close = |winner: &str| {
            [
                format!("BLIND HSET item:{item} winner {winner}"),
                format!("BLIND ZREM {} {item}", place.list()),
                format!("BLIND SADD sold-by:{seller} {item}"),
            ]
        };
        match (replies.len(), highest()) {
            (0, _) => Batch::first(commands([format!("TOP.LIST bids:{item} 1")])),
            (_, None) => Batch::last(commands(close("nobody"))),
            (1, Some(bid)) => Batch::first(commands([format!("HGET bid:{bid} user")])),
            (_, Some(_)) => {
                let winner = text(reply(replies, 1, 0)).unwrap_or_else(|| "nobody".to_owned());
                let won = format!("BLIND SADD won-by:{winner} {item}");
                Batch::last(commands(close(&winner).into_iter().chain([won])))
            }
        }
    }

    fn outcome(&self, _: &[Vec<Value>]) -> Option<Event> {
        Some(Event::Closed { slot: self.slot })
    }
}

/// Begins an auction.
pub(super) struct Open {
    pub slot: u32,
    pub place: Place,
    pub seller: u32,
    pub ends: f64,
}

impl Plan for Open {
    fn kind(&self) -> &'static str {
        "open_auction"
    }

    fn step(&self, replies: &[Vec<Value>]) -> Batch {
        if replies.is_empty() {
            return Batch::first(commands(["UID.NEXT item-ids".to_owned()]));
        }
        let id = text(reply(replies, 0, 0)).unwrap_or_default();
        let Open { place, seller, ends, .. } = self;
        Batch::last(commands([
            format!(
                "BLIND HSET item:{id} title item-{id} seller {seller} category {} region {}",
                place.category, place.region
            ),
            format!("BLIND ZADD {} {ends} {id}", place.list()),
            format!("BLIND SADD sells:{seller} {id}"),
        ]))
    }

    fn outcome(&self, replies: &[Vec<Value>]) -> Option<Event> {
        Some(Event::Opened { slot: self.slot, item: text(reply(replies, 0, 0)).unwrap_or_default() })
    }
}

/// Says what a user thinks of another one.
pub(super) struct AddComment {
    pub from: u32,
    pub to: u32,
    pub rating: u32,
}

impl Plan for AddComment {
    fn kind(&self) -> &'static str {
        "add_comment"
    }

    fn step(&self, replies: &[Vec<Value>]) -> Batch {
        if replies.is_empty() {
            return Batch::first(commands(["UID.NEXT comment-ids".to_owned()]));
        }
        let id = text(reply(replies, 0, 0)).unwrap_or_default();
        let AddComment { from, to, rating } = self;
        Batch::last(commands([
            format!("BLIND HSET comment:{id} from {from} rating {rating}"),
            format!("BLIND ZADD comments:{to} {rating} {id}"),
            format!("SUMMARY.ADD ratings:{to} {rating}"),
        ]))
    }
}

/// A new user.
pub(super) struct AddUser {
    pub region: u32,
}

impl Plan for AddUser {
    fn kind(&self) -> &'static str {
        "add_user"
    }

    fn step(&self, replies: &[Vec<Value>]) -> Batch {
        if replies.is_empty() {
            return Batch::first(commands(["UID.NEXT user-ids".to_owned()]));
        }
        let id = text(reply(replies, 0, 0)).unwrap_or_default();
        let region = self.region;
        Batch::last(commands([
            format!("BLIND HSET user:{id} name user-{id} region {region}"),
            format!("BLIND SADD users-in:{region} {id}"),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn lines(batch: &Batch) -> Vec<String> {
        batch.commands.iter().map(|command| String::from_utf8(command.join(&b' ')).unwrap()).collect()
    }

    #[test]
    fn nobody_bids_on_a_closed_auction() {
        let bid = Bid { item: "7".into(), user: 3, amount: 110 };
        let open = [vec![Value::Null, bulk("b1")]];
        assert_eq!(lines(&bid.step(&open))[1], "TOP.ADD bids:7 110 b1");
        let closed = [vec![bulk("9"), bulk("b1")]];
        let batch = bid.step(&closed);
        assert!(batch.commands.is_empty() && batch.last);
    }

    #[test]
    fn the_highest_bidder_wins() {
        let close = Close { slot: 1, item: "7".into(), place: Place { region: 2, category: 3 }, seller: 4 };
        assert_eq!(lines(&close.step(&[])), ["TOP.LIST bids:7 1"]);
        let highest = vec![Value::Array(vec![bulk("b9"), bulk("210")])];
        assert_eq!(lines(&close.step(std::slice::from_ref(&highest))), ["HGET bid:b9 user"]);
        let last = close.step(&[highest, vec![bulk("5")]]);
        let wanted = [
            "BLIND HSET item:7 winner 5",
            "BLIND ZREM open:2:3 7",
            "BLIND SADD sold-by:4 7",
            "BLIND SADD won-by:5 7",
        ];
        assert_eq!(lines(&last), wanted);
        let unsold = close.step(&[vec![Value::Array(Vec::new())]]);
        assert!(unsold.last && lines(&unsold)[0].ends_with("nobody"));
    }
}
