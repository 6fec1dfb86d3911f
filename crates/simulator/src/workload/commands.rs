//! Commands that read before they write: RENAME, and scripts in Lua, over two keys of a kind, which often lie in different
//! partitions; alone, or two of them between MULTI and EXEC.
//!
//! A script replies what its first command did, and may fail on purpose at its end.

use super::{Kind, Plan, Shape, Workload, element};
use crate::faults::{Feature, Swarm};
use types::Rng;

/// A client sends all steps of a command together.
const ALL: usize = 1 << 20;
/// A script with this behind its arguments fails when it has done everything.
const FAIL: &str = "fail";

/// What a script of this kind of keys does.
fn script(kind: Kind, is_plain: bool) -> Option<&'static str> {
    Some(match kind {
        Kind::Register if is_plain => {
            "local v = redis.call('GET', KEYS[1]) redis.call('SET', KEYS[2], ARGV[1]) return v"
        }
        Kind::Register => {
            "local v = redis.call('GET', KEYS[1]) if v then redis.call('SET', KEYS[2], ARGV[1])
             else redis.call('APPEND', KEYS[2], ARGV[1]) end return v"
        }
        Kind::Fleeting => {
            "local v = redis.call('GET', KEYS[1]) if v then redis.call('SET', KEYS[2], ARGV[1], 'PXAT', ARGV[2])
             else redis.call('DEL', KEYS[2]) end return v"
        }
        Kind::Fields => {
            "local v = redis.call('HGET', KEYS[1], ARGV[3])
             if v then redis.call('HSETEX', KEYS[2], 'PXAT', ARGV[2], 'FIELDS', 1, ARGV[3], v)
             else redis.call('HDEL', KEYS[2], ARGV[3]) end return v"
        }
        Kind::Counter => {
            "local n = redis.call('INCRBY', KEYS[1], ARGV[2]) redis.call('INCRBY', KEYS[2], n % 5 - 2) return n"
        }
        Kind::Growing => {
            "local n = redis.call('SCARD', KEYS[1]) redis.call('SADD', KEYS[2], ARGV[1] .. 'of' .. n) return n"
        }
        Kind::Set => {
            "local n = redis.call('SREM', KEYS[1], ARGV[3])
             if n == 1 then redis.call('SADD', KEYS[2], ARGV[3]) end return n"
        }
        Kind::Dict => {
            "local v = redis.call('HGET', KEYS[1], ARGV[3])
             if v then redis.call('HDEL', KEYS[1], ARGV[3]) redis.call('HSET', KEYS[2], ARGV[3], v) end return v"
        }
        Kind::ScoredSet => {
            "local n = redis.call('ZREM', KEYS[1], ARGV[3])
             if n == 1 then redis.call('ZINCRBY', KEYS[2], 1, ARGV[3]) end return n"
        }
        Kind::List => {
            "local v = redis.call('LPOP', KEYS[1]) if v then redis.call('RPUSH', KEYS[2], v) end return v"
        }
        Kind::Tally => {
            "local n = redis.call('COUNTER.TAKE', KEYS[1], 3)
             if n == 1 then redis.call('COUNTER.ADD', KEYS[2], 3) end return n"
        }
        Kind::Summary | Kind::Top | Kind::Uid | Kind::Gauge | Kind::Log | Kind::Stream => return None,
    })
}

impl Workload {
    /// A transaction of such commands, as the seed brings them; nothing where there are no keys for it.
    pub(super) fn commands(&mut self, wall: u64, swarm: &Swarm, random: &mut Rng) -> Option<Plan> {
        let count = if random.u32(..4) == 0 { 2 } else { 1 };
        let mut commands: Vec<Vec<String>> =
            (0..count).map(|_| self.command(wall, swarm, random)).collect::<Option<_>>()?;
        if count > 1 {
            commands.insert(0, vec!["MULTI".to_owned()]);
            commands.push(vec!["EXEC".to_owned()]);
        }
        let shape = Shape::Interactive { read_only: false, steps_per_request: ALL, give_up: false };
        Some(Plan { commands, ..Plan::new(shape, Vec::new()) })
    }

    fn command(&mut self, wall: u64, swarm: &Swarm, random: &mut Rng) -> Option<Vec<String>> {
        let (kind, from) = self.key(swarm, random).clone();
        let alike: Vec<&Vec<u8>> =
            self.keys.iter().filter(|(other, _)| *other == kind).map(|(_, key)| key).collect();
        let to = (*random.choice(&alike)?).clone();
        let [from, to] = [from, to].map(|key| String::from_utf8_lossy(&key).into_owned());
        // A stream's whole value tells times, which whoever replays a history does not know.
        let is_stream = matches!(kind, Kind::Log | Kind::Stream);
        let may_rename = swarm.has(Feature::Renames) && !self.is_plain && !is_stream && from != to;
        if may_rename && (!swarm.has(Feature::Scripts) || random.bool()) {
            return Some(vec!["RENAME".to_owned(), from, to]);
        }
        if !swarm.has(Feature::Scripts) {
            return None;
        }
        self.next_value += 1;
        let deadline = wall / 1_000 + random.u64(..3_000);
        let number = if kind.vanishes() { deadline } else { random.u64(..10) };
        let element = String::from_utf8_lossy(element(random)).into_owned();
        let mut arguments = vec![format!("v{}", self.next_value), number.to_string(), element];
        let (name, text) = match random.u32(..8) {
            0 => {
                let look = "local n = redis.call('EXISTS', KEYS[1]) redis.call('EXISTS', KEYS[2]) return n";
                ("EVAL_RO", look.to_owned())
            }
            1 => {
                arguments.push(FAIL.to_owned());
                let (body, end) = script(kind, self.is_plain)?.rsplit_once("return")?;
                ("EVAL", format!("{body}if ARGV[4] then error('on purpose') end return{end}"))
            }
            _ => ("EVAL", script(kind, self.is_plain)?.to_owned()),
        };
        let words = [name.to_owned(), text, "2".to_owned(), from, to];
        Some(words.into_iter().chain(arguments).collect())
    }
}
