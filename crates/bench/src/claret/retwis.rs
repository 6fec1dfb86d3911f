//! Retwis: a small social network on a Kronecker graph, with reposts of what is popular (section 6.3).
//!
//! A timeline is a scored set that whoever posts adds to, for all followers. A user, drawn evenly, who reads a timeline
//! sorts what it shows by how often it was reposted, and reposts the first few: how many is drawn from a geometric
//! distribution. The paper gives neither the shares of its two mixes nor that distribution: both are ours.

use super::graph;
use super::plan::{Batch, Command, Event, OneStep, Plan, Source, reply, share, text, texts, words};
use resp::Value;
use std::collections::VecDeque;

/// Posts that a timeline shows.
const SHOWN: usize = 10;
/// The chance that a reader reposts nothing, or nothing more.
const STOPS: f64 = 0.8;
/// How long a post is.
const TEXT: &str = "................................................................";

/// Shares and sizes of Retwis.
#[derive(Clone, Debug)]
pub struct Retwis {
    /// There are two to the power of it users; the paper: 16.
    pub scale: u32,
    /// Followers of a user on average, before repetitions; the paper: 16.
    pub edge_factor: u32,
    /// Posting is heavy.
    pub post_heavy: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Timeline,
    Post,
    Follow,
    NewUser,
}

const READ_HEAVY: [(Kind, u8); 4] =
    [(Kind::Timeline, 90), (Kind::Post, 4), (Kind::Follow, 5), (Kind::NewUser, 1)];
const POST_HEAVY: [(Kind, u8); 4] =
    [(Kind::Timeline, 50), (Kind::Post, 40), (Kind::Follow, 8), (Kind::NewUser, 2)];

pub(super) struct Network {
    followers: Vec<Vec<u32>>,
    shares: [(Kind, u8); 4],
    /// Grows with every post: what timelines are sorted by.
    now: u64,
    /// What readers have decided to repost.
    reposts: VecDeque<(u32, String)>,
}

impl Network {
    pub fn new(retwis: &Retwis, seed: u64) -> Self {
        let followers = graph::followers(retwis.scale, retwis.edge_factor, seed);
        let shares = if retwis.post_heavy { POST_HEAVY } else { READ_HEAVY };
        Network { followers, shares, now: 0, reposts: VecDeque::new() }
    }

    fn user(&self, random: &mut fastrand::Rng) -> u32 {
        random.u32(..self.followers.len() as u32)
    }
}

impl Source for Network {
    /// Users, who follows them, a post of each, and the timelines with the posts of those whom one follows, at most ten.
    fn load(&self) -> Box<dyn Iterator<Item = Command> + '_> {
        let mut timelines: Vec<Vec<u32>> = vec![Vec::new(); self.followers.len()];
        for (user, followers) in self.followers.iter().enumerate() {
            for follower in followers {
                let of = &mut timelines[*follower as usize];
                if of.len() < SHOWN {
                    of.push(user as u32);
                }
            }
        }
        let users = (0..self.followers.len()).flat_map(move |user| {
            let listed = |name: &str, each: Vec<String>| {
                (!each.is_empty()).then(|| words(&format!("{name}:{user} {}", each.join(" "))))
            };
            let followers = self.followers[user].iter().map(u32::to_string).collect();
            let posts = timelines[user].iter().map(|of| format!("0 s{of}")).collect();
            let post = words(&format!("HSET post:s{user} user {user} text {TEXT}"));
            let lists = [listed("SADD followers", followers), listed("ZADD timeline", posts)];
            std::iter::once(post).chain(lists.into_iter().flatten())
        });
        Box::new(users)
    }

    fn draw(&mut self, random: &mut fastrand::Rng) -> Box<dyn Plan> {
        if let Some((user, post)) = self.reposts.pop_front() {
            self.now += 1;
            return Box::new(Spread { user, now: self.now, repost: Some(post) });
        }
        let user = self.user(random);
        match share(&self.shares, random) {
            Kind::Timeline => Box::new(Timeline { user }),
            Kind::Post => {
                self.now += 1;
                Box::new(Spread { user, now: self.now, repost: None })
            }
            Kind::Follow => {
                let other = self.user(random);
                let both = [
                    format!("BLIND SADD followers:{other} {user}"),
                    format!("BLIND SADD following:{user} {other}"),
                ];
                Box::new(OneStep { kind: "follow", commands: both.iter().map(|text| words(text)).collect() })
            }
            Kind::NewUser => Box::new(NewUser),
        }
    }

    fn learn(&mut self, event: Event, random: &mut fastrand::Rng) {
        let Event::Seen { user, mut posts } = event else { return };
        posts.sort_by_key(|(_, reposts)| -reposts);
        let more = |_: &(String, i64)| random.f64() >= STOPS;
        self.reposts.extend(posts.into_iter().take_while(more).map(|(post, _)| (user, post)));
    }
}

/// Reads the newest posts of a timeline, and how often each was reposted.
struct Timeline {
    user: u32,
}

impl Plan for Timeline {
    fn kind(&self) -> &'static str {
        "timeline"
    }

    fn step(&self, replies: &[Vec<Value>]) -> Batch {
        if replies.is_empty() {
            let newest = format!("ZREVRANGE timeline:{} 0 {}", self.user, SHOWN - 1);
            return Batch::first(vec![words(&newest)]);
        }
        let posts = texts(reply(replies, 0, 0));
        let each =
            |post: &String| [words(&format!("HGETALL post:{post}")), words(&format!("SCARD reposts:{post}"))];
        Batch::last(posts.iter().flat_map(each).collect())
    }

    fn outcome(&self, replies: &[Vec<Value>]) -> Option<Event> {
        let posts = texts(reply(replies, 0, 0)).into_iter().enumerate();
        let counted = posts.map(|(at, post)| (post, reply(replies, 1, 2 * at + 1).as_integer().unwrap_or(0)));
        Some(Event::Seen { user: self.user, posts: counted.collect() })
    }
}

/// Puts a post into the timelines of all followers: a new one, or somebody else's.
struct Spread {
    user: u32,
    now: u64,
    repost: Option<String>,
}

impl Plan for Spread {
    fn kind(&self) -> &'static str {
        if self.repost.is_some() { "repost" } else { "post" }
    }

    fn step(&self, replies: &[Vec<Value>]) -> Batch {
        let Spread { user, now, repost } = self;
        if replies.is_empty() {
            let mut first = vec![words(&format!("SMEMBERS followers:{user}"))];
            first.extend(repost.is_none().then(|| words("UID.NEXT post-ids")));
            return Batch::first(first);
        }
        let (post, what) = match repost {
            Some(post) => (post.clone(), format!("BLIND SADD reposts:{post} {user}")),
            None => {
                let id = text(reply(replies, 0, 1)).unwrap_or_default();
                let what = format!("BLIND HSET post:{id} user {user} text {TEXT}");
                (id, what)
            }
        };
        let own = format!("BLIND ZADD posts:{user} {now} {post}");
        let of = |follower: String| words(&format!("BLIND ZADD timeline:{follower} {now} {post}"));
        let spread = texts(reply(replies, 0, 0)).into_iter().map(of);
        Batch::last([words(&what), words(&own)].into_iter().chain(spread).collect())
    }
}

struct NewUser;

impl Plan for NewUser {
    fn kind(&self) -> &'static str {
        "new_user"
    }

    fn step(&self, replies: &[Vec<Value>]) -> Batch {
        if replies.is_empty() {
            return Batch::first(vec![words("UID.NEXT user-ids")]);
        }
        let id = text(reply(replies, 0, 0)).unwrap_or_default();
        Batch::last(vec![words(&format!("BLIND HSET user:{id} name name-of-{id}"))])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(post_heavy: bool) -> Network {
        Network::new(&Retwis { scale: 8, edge_factor: 16, post_heavy }, 1)
    }

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn lines(batch: &Batch) -> Vec<String> {
        batch.commands.iter().map(|command| String::from_utf8(command.join(&b' ')).unwrap()).collect()
    }

    #[test]
    fn mixes_have_their_shares() {
        for (post_heavy, posts) in [(false, 0.04), (true, 0.40)] {
            let (mut network, mut random) = (network(post_heavy), fastrand::Rng::with_seed(2));
            let kinds: Vec<&str> = (0..10_000).map(|_| network.draw(&mut random).kind()).collect();
            let found = kinds.iter().filter(|kind| **kind == "post").count() as f64 / 10_000.0;
            assert!((found - posts).abs() < 0.02, "{found}");
        }
    }

    #[test]
    fn a_post_reaches_the_timelines_of_all_followers() {
        let post = Spread { user: 7, now: 5, repost: None };
        let first = post.step(&[]);
        assert_eq!(lines(&first), ["SMEMBERS followers:7", "UID.NEXT post-ids"]);
        assert!(!first.last);
        let answered = vec![Value::Array(vec![bulk("1"), bulk("2")]), bulk("x")];
        let last = post.step(&[answered]);
        let spread = ["BLIND ZADD posts:7 5 x", "BLIND ZADD timeline:1 5 x", "BLIND ZADD timeline:2 5 x"];
        assert_eq!(lines(&last)[1..], spread);
        assert!(last.last);
    }

    #[test]
    fn what_was_reposted_most_is_reposted() {
        let timeline = Timeline { user: 3 };
        let newest = vec![Value::Array(vec![bulk("a"), bulk("b")])];
        assert_eq!(
            lines(&timeline.step(std::slice::from_ref(&newest)))[2..],
            ["HGETALL post:b", "SCARD reposts:b"]
        );
        let counts = [0, 4].into_iter().flat_map(|count| [Value::Array(Vec::new()), Value::Integer(count)]);
        let seen = timeline.outcome(&[newest, counts.collect()]).unwrap();
        let wanted = vec![("a".to_owned(), 0), ("b".to_owned(), 4)];
        assert_eq!(seen, Event::Seen { user: 3, posts: wanted.clone() });
        let (mut network, mut random) = (network(false), fastrand::Rng::with_seed(4));
        for _ in 0..1_000 {
            network.learn(Event::Seen { user: 3, posts: wanted.clone() }, &mut random);
        }
        let of = |post: &str| network.reposts.iter().filter(|(_, reposted)| reposted == post).count();
        assert!((150..250).contains(&of("b")) && (20..70).contains(&of("a")), "{} and {}", of("b"), of("a"));
        assert_eq!(network.draw(&mut random).kind(), "repost");
    }

    #[test]
    fn the_network_is_loaded() {
        let network = network(false);
        let loaded: Vec<Command> = network.load().collect();
        let named = |name: &[u8]| loaded.iter().filter(|command| command[0] == name).collect::<Vec<_>>();
        let edges: usize = named(b"SADD").iter().map(|command| command.len() - 2).sum();
        assert_eq!(edges, network.followers.iter().map(Vec::len).sum::<usize>());
        assert_eq!(named(b"HSET").len(), 256);
        assert!(named(b"ZADD").iter().all(|command| (4..=22).contains(&command.len())));
    }
}
