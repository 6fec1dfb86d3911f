//! What is measured: the tests with their commands.
//!
//! Names, keys and shapes are those of `redis-benchmark -r`, so that numbers can be compared with it; `hget`, `zscore`
//! and `txn` are ours.

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// One test. In its commands, `{number}` stands for twelve digits: a number below that of the keys, drawn anew for
/// every place and request. `{value}` is the payload.
#[derive(Debug, PartialEq, Eq)]
pub struct Test {
    /// The name on the command line.
    pub name: &'static str,
    /// The commands of one request, in order.
    pub commands: &'static [&'static str],
    /// A key that is deleted before each measurement, where it would grow or shrink from run to run.
    pub deletes: Option<&'static str>,
    /// What the keyspace holds before each measurement.
    pub fill: Fill,
}

/// Contents that a test finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Whatever there is.
    Nothing,
    /// This command once for every number below the number of keys.
    EachKey(&'static str),
    /// This command once for every request of the measurement, with numbers below that.
    EachRequest(&'static str),
}

const FILL_STRINGS: Fill = Fill::EachKey("SET key:{number} {value}");

/// Every test, in the order of `--tests all`.
pub const TESTS: &[Test] = &[
    Test { name: "ping", commands: &["PING"], deletes: None, fill: Fill::Nothing },
    Test { name: "set", commands: &["SET key:{number} {value}"], deletes: None, fill: FILL_STRINGS },
    Test { name: "get", commands: &["GET key:{number}"], deletes: None, fill: FILL_STRINGS },
    Test { name: "incr", commands: &["INCR counter:{number}"], deletes: None, fill: Fill::Nothing },
    Test { name: "lpush", commands: &["LPUSH mylist {value}"], deletes: Some("mylist"), fill: Fill::Nothing },
    Test { name: "rpush", commands: &["RPUSH mylist {value}"], deletes: Some("mylist"), fill: Fill::Nothing },
    Test {
        name: "lpop",
        commands: &["LPOP mylist"],
        deletes: Some("mylist"),
        fill: Fill::EachRequest("RPUSH mylist {value}"),
    },
    Test {
        name: "rpop",
        commands: &["RPOP mylist"],
        deletes: Some("mylist"),
        fill: Fill::EachRequest("RPUSH mylist {value}"),
    },
    Test {
        name: "lrange_100",
        commands: &["LRANGE mylist 0 99"],
        deletes: Some("mylist"),
        fill: Fill::EachKey("LPUSH mylist {value}"),
    },
    Test {
        name: "sadd",
        commands: &["SADD myset element:{number}"],
        deletes: Some("myset"),
        fill: Fill::Nothing,
    },
    Test {
        name: "spop",
        commands: &["SPOP myset"],
        deletes: Some("myset"),
        fill: Fill::EachRequest("SADD myset element:{number}"),
    },
    Test {
        name: "hset",
        commands: &["HSET myhash element:{number} {value}"],
        deletes: Some("myhash"),
        fill: Fill::Nothing,
    },
    Test {
        name: "hget",
        commands: &["HGET myhash element:{number}"],
        deletes: None,
        fill: Fill::EachKey("HSET myhash element:{number} {value}"),
    },
    Test {
        name: "zadd",
        commands: &["ZADD myzset {number} element:{number}"],
        deletes: Some("myzset"),
        fill: Fill::Nothing,
    },
    Test {
        name: "zscore",
        commands: &["ZSCORE myzset element:{number}"],
        deletes: None,
        fill: Fill::EachKey("ZADD myzset {number} element:{number}"),
    },
    Test {
        name: "zpopmin",
        commands: &["ZPOPMIN myzset"],
        deletes: Some("myzset"),
        fill: Fill::EachRequest("ZADD myzset {number} element:{number}"),
    },
    Test {
        name: "mset",
        commands: &[
            "MSET key:{number} {value} key:{number} {value} key:{number} {value} key:{number} {value} \
                     key:{number} {value} key:{number} {value} key:{number} {value} key:{number} {value} \
                     key:{number} {value} key:{number} {value}",
        ],
        deletes: None,
        fill: FILL_STRINGS,
    },
    Test {
        name: "txn",
        commands: &[
            "MULTI",
            "GET key:{number}",
            "GET key:{number}",
            "SET key:{number} {value}",
            "SET key:{number} {value}",
            "EXEC",
        ],
        deletes: None,
        fill: FILL_STRINGS,
    },
];

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl FromStr for &'static Test {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        TESTS.iter().find(|test| test.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
            let names: Vec<&str> = TESTS.iter().map(|test| test.name).collect();
            format!("there is no test `{name}`; there are {}", names.join(", "))
        })
    }
}

impl Serialize for Test {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}
