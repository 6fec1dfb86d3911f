//! The table, cell by cell: what stands before, what A does, what B does without having observed it, and what comes of
//! it if A's place is before B's and if B's is before A's.

use crate::merge::script::{History, rendered};

/// `before; A; B => the one; the other`, or one state where the order does not matter. Commands are separated by commas.
const TABLE: &str = "
    SET old; SET a; SET b => b; a
    SET old; SET a; DEL => a
    SET 10; SET 20; INCRBY 5 => 25
    SET 10; DEL; INCRBY 5 => 5
    SET 10; INCRBY 3; INCRBY 5 => 18
    ; INCRBY 3; INCRBY 5 => 8
    SET 10; SET x; INCRBY 5 => x
    SET 1; SET 2, SET 3; INCRBY 5 => 8
    SET 1; INCRBY 5, SET 3; INCRBY 1 => 4
    SET 1; INCRBY 5, DEL; INCRBY 1 => 1
    SET o; APPEND a; APPEND b => oab; oba
    SET o; SET n; APPEND b => nb
    SET o; DEL; APPEND b => b
    SET o; SETRANGE 1 a; SETRANGE 2 b => oab
    SET abc; SETRANGE 1 x; SETRANGE 1 y => ayc; axc
    SET abc; SETRANGE 1 x; SET uvw => uxw
    SET abc; DEL; SETRANGE 0 x => x
    SET a; SETBIT 6 1; SETBIT 7 0 => b
    SET 10; INCRBYFLOAT 0.5; INCRBYFLOAT 0.25 => 10.75
    SET 10; INCRBYFLOAT 0.5; INCRBY 5 => 10.5; 15.5
    SET 10; INCRBYFLOAT 0.5; SET 20 => 20.5
    SET 10; MOVEAWAY; INCRBY 5 => 5
    SET 10; MOVEHERE; SET b => b; moved
    SET 10; MOVEHERE; DEL => moved
    SET 10; MOVEHERE; APPEND ! => moved!

    SET o; EXPIREAT 5000; EXPIREAT 9000 => o until 9000; o until 5000
    SET o; EXPIREAT 5000; SET n => n; n until 5000
    SET o; EXPIREAT 5000; DEL => nothing
    SET o 3000; PERSIST; EXPIREAT 9000 => o until 9000; o
    SET o 3000; EXPIREAT 9000; SET n 7000 => n until 7000; n until 9000
    SADD a; EXPIREAT 5000; DEL => nothing
    SADD a; SADD b, EXPIREAT 5000; DEL => {b} until 5000
    SADD a; EXPIREAT 5000; SREM a => nothing
    SADD a, EXPIREAT 5000; SADD b; DEL => {b}

    HSET f 1; HSET f 2; HSET f 3 => {f=3}; {f=2}
    HSET f 1; HSET g 2; HSET h 3 => {f=1 g=2 h=3}
    HSET f 1; HSET f 2; HDEL f => {f=2}
    HSET f 1; HSET g 2; HDEL f => {g=2}
    HSET f 1; HINCRBY f 2; HDEL f => {f=2}
    HSET f 1; HINCRBY f 2; HSET f 10 => {f=12}
    HSET f 1; HINCRBY f 2; HINCRBY f 3 => {f=6}
    HSET f 1; HSET g 2; DEL => {g=2}
    HSET f 1; HINCRBY f 5; DEL => {f=5}
    HSET f 1; HDEL f, HSET f 5; HDEL f => {f=5}
    HSET f 1; HDEL f; MOVEHASH f 3 g 4 => {f=3 g=4}
    HSET f 1; HSET f 2; MOVEHASH f 3 g 4 => {f=2 g=4}
    HSET f 1; HSET f 2, HDEL f; MOVEHASH f 3 => {f=3}
    HSET f 1; HINCRBY f 2, HDEL f; MOVEHASH f 3 => {f=3}
    HSET f 1; HDEL f; MOVEHASH f 3, HDEL f => nothing

    SADD a; SADD b; SADD c => {a b c}
    SADD a; SADD a; SREM a => {a}
    SADD a; SADD b; SREM a => {b}
    SADD a; SADD b; DEL => {b}
    SADD a; SADD a; DEL => {a}
    SADD a; SPOP; SADD a => {a}
    SADD a; SPOP; SPOP => nothing
    SADD a b; SREM a; SREM b => nothing
    SADD a; SADD b, SREM b; DEL => nothing
    SADD a; SREM a, SADD a; SREM a => {a}
    SADD a; MOVEAWAY; SADD b => {b}
    SADD a; SREM a; MOVESET a b => {a b}

    ZADD 1 a; ZADD 2 a; ZADD 3 a => {a:3}; {a:2}
    ZADD 1 a; ZADD 2 b; ZADD 3 c => {a:1 b:2 c:3}
    ZADD 1 a; ZADD 1 a; ZREM a => {a:1}
    ZADD 1 a; ZINCRBY 5 a; ZREM a => {a:5}
    ZADD 1 a; ZINCRBY 5 a; ZADD 10 a => {a:15}
    ZADD 1 a; ZINCRBY 5 a; ZINCRBY 7 a => {a:13}
    ZADD 1 a; ZINCRBY 5 a; DEL => {a:5}
    ZADD 1 a; ZREM a; MOVESCORES 3 a => {a:3}
    ZADD 1 a; ZADD 2 a; MOVESCORES 3 a => {a:2}

    RPUSH o; LPUSH a; LPUSH b => [b a o]; [a b o]
    RPUSH o; LPUSH a; RPUSH b => [a o b]
    RPUSH o; RPUSH a; RPUSH b => [o a b]; [o b a]
    RPUSH o p; LPOP; RPUSH a => [p a]
    RPUSH o p; LPOP; LPUSH a => [a p]
    RPUSH o p; LPOP; LPOP => [p]
    RPUSH o p; LPOP; RPOP => nothing
    RPUSH o p q; LPOP; LPOP, LPOP => [q]
    RPUSH o p q; LPOP, LPUSH x; LPOP, LPOP => [x q]
    RPUSH o p; DEL; RPUSH a => [a]
    RPUSH o p; DEL; LPOP => nothing
    RPUSH o p; MOVEAWAY; RPUSH a => [a]
    RPUSH o p; LSET 1 x; LPUSH a => [a o x]
    RPUSH o p; LSET 1 x; LPOP => [x]
    RPUSH o p; LSET 0 x; LPOP => [p]
    RPUSH o p; LSET 0 x; LSET 0 y => [y p]; [x p]
    RPUSH o p; LSET 0 x; DEL => nothing
    RPUSH o p o; LREM 1 o; LPUSH o => [o p o]
    RPUSH o p o; LREM 1 o; LREM 1 o => [p o]
    RPUSH o p o; LREM -1 o; LREM 1 o => [p]
    RPUSH o p o; LREM 1 o; LPOP => [p o]
    RPUSH o p; LINSERT BEFORE p x; LPUSH a => [a o x p]
    RPUSH o p; LINSERT AFTER o x; LPOP => [x p]
    RPUSH o p; LINSERT AFTER o x; LINSERT AFTER o y => [o y x p]; [o x y p]
    RPUSH o p; LINSERT BEFORE p x; DEL => [x]
    RPUSH o p q; LTRIM 0 1; LPUSH a => [a o p]
    RPUSH o p q; LTRIM 1 1; RPUSH a => [p a]
    RPUSH o p q; LTRIM 0 1; LTRIM 1 2 => [p]
    RPUSH o p q; LTRIM 1 0; RPUSH a => [a]

    ; SADD a, SREM a; RPUSH b => [b]
    ; RPUSH a, LPOP; SET b => b
    RPUSH o; LINSERT BEFORE o x; LPUSH a => [a x o]; [x a o]
    ; SET a; RPUSH b => [b]; a
    ; SADD a; RPUSH b => [b]; {a}
    ; INCRBY 1; RPUSH b => [b]; 1
    ; SADD a, SADD b; SET x => x; {a b}
    SADD a; SET x; SADD b => {b}; x
    SADD a; SET x; SREM a => x
    SADD a; DEL, RPUSH x; SADD b => {b}; [x]
    ; XADD 5-1 a; XADD 5-2 b => <5-1=a 5-2=b>
    ; XADD 5-1 a; XADD 5-1 b => <5-1=a 5-2=b>; <5-1=b 5-2=a>
    ; XADD 5-1 a, XADD 5-2 b; XADD 5-1 c, XADD 5-2 d => <5-1=a 5-2=b 5-3=c 5-4=d>; <5-1=c 5-2=d 5-3=a 5-4=b>
    ; XADD * a; XADD * b => <1000-0=a 1000-1=b>; <1000-0=b 1000-1=a>
    ; XADD * a, XADD * b; XADD * c => <1000-0=a 1000-1=c 1000-65536=b>; <1000-0=c 1000-1=a 1000-65537=b>
    XADD 5-1 o; XADD 9-1 a; XADD 6-1 b => <5-1=o 6-1=b 9-1=a>
    XADD 5-1 o, XADD 5-2 p; XTRIM 1; XADD 6-1 a => <5-2=p 6-1=a>
    XADD 5-1 o; XDEL 5-1; XADD 6-1 a => <6-1=a>
    XADD 5-1 o; XDEL 5-1; XTRIM 0 => <>
    XADD 5-1 o; DEL; XADD 6-1 a => <6-1=a>
    XADD 5-1 o; DEL, XADD 5-1 a; XDEL 5-1 => <5-1=a>
    XADD 5-1 o; XADD 6-1 a; XADD 6-1 b, XDEL 6-1 => <5-1=o 6-1=a 6-2=b>; <5-1=o 6-1=a>
    XADD 5-1 o; XADD 6-1 a, XDEL 6-1; XADD 6-1 b => <5-1=o 6-1=b>; <5-1=o 6-1=b 6-2=a>
    XADD 5-1 o; XCREATE g; XCREATE g => <5-1=o g@0-0()>
    XADD 5-1 o, XCREATE g; XREAD g a; XREAD g b => <5-1=o g@5-1(5-1:a,b)>
    XADD 5-1 o, XCREATE g; XREAD g a; XREAD g a => <5-1=o g@5-1(5-1:a)>
    XADD 5-1 o, XCREATE g; XREAD g a, XACK g 5-1; XREAD g b => <5-1=o g@5-1()>
    XADD 5-1 o, XADD 5-2 p, XCREATE g; XREAD g a 1; XREAD g b => <5-1=o 5-2=p g@5-2(5-1:a,b 5-2:b)>
    XADD 5-1 o, XCREATE g, XREAD g a; XACK g 5-1; XCLAIM g b 5-1 => <5-1=o g@5-1()>
    XADD 5-1 o, XCREATE g, XREAD g a; XCLAIM g c 5-1; XCLAIM g b 5-1 => <5-1=o g@5-1(5-1:b,c)>
    XADD 5-1 o, XCREATE g; XREAD g a, XCLAIM g c 5-1; XREAD g b => <5-1=o g@5-1(5-1:b,c)>
    XADD 5-1 o, XCREATE g; XREAD g a; XDESTROY g => <5-1=o>
    XADD 5-1 o, XCREATE g, XREAD g a; XDESTROY g, XCREATE g; XDESTROY g => <5-1=o g@0-0()>
    XADD 5-1 o, XADD 5-2 p, XCREATE g, XREAD g a 1; XREAD g a; XDELCONSUMER g a => <5-1=o 5-2=p g@5-2(5-2:a)>
    XADD 5-1 o, XCREATE g; XADD * a, XREAD g c; XADD * b, XREAD g d => <5-1=o 1000-0=a 1000-1=b g@1000-1(5-1:c,d 1000-0:c 1000-1:d)>; <5-1=o 1000-0=b 1000-1=a g@1000-1(5-1:c,d 1000-0:d 1000-1:c)>
    XADD 5-1 o; DEL; XCREATE g => <g@0-0()>
    XADD 5-1 o; SET x; XADD 6-1 a => <6-1=a>; x
    XADD 5-1 o; SET x; XDEL 5-1 => x
    ; HINCRBY f 1, HDEL f; ZADD 1 a => {a:1}
    ; COUNT 2; COUNT 3 => #5
    COUNT 1; DEL; COUNT 3 => #3
";

/// What comes of it when `first` does its part before `second`, neither observing the other.
fn merged(before: &str, first: &str, second: &str) -> String {
    let mut history = History::default();
    let tell = |history: &mut History, group, upto: Option<usize>, words: &str| {
        for command in words.split(',').filter(|command| !command.trim().is_empty()) {
            let upto = upto.unwrap_or(history.0.len());
            history.tell(group, upto, command);
        }
    };
    tell(&mut history, 2, None, before);
    let common = history.0.len();
    tell(&mut history, 0, Some(common), first);
    tell(&mut history, 1, Some(common), second);
    rendered(&history.all())
}

#[test]
fn every_cell_of_the_table_holds() {
    let mut wrong = Vec::new();
    let lines: Vec<&str> = TABLE.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    for line in &lines {
        let (scene, wanted) = line.split_once("=>").expect("an arrow");
        let scene: Vec<&str> = scene.split(';').map(str::trim).collect();
        let [before, a, b] = scene[..] else { panic!("three parts in {line}") };
        let mut wanted = wanted.split(';').map(str::trim);
        let one = wanted.next().expect("a state");
        let other = wanted.next().unwrap_or(one);
        let found = (merged(before, a, b), merged(before, b, a));
        if (found.0.as_str(), found.1.as_str()) != (one, other) {
            wrong.push(format!("{line}\n      gives {}; {}", found.0, found.1));
        }
    }
    assert!(wrong.is_empty(), "of {} cells wrong:\n{}", lines.len(), wrong.join("\n"));
}

fn state_of(deeds: &[(u16, usize, &str)]) -> String {
    let mut history = History::default();
    deeds.iter().for_each(|(group, upto, command)| history.tell(*group, *upto, command));
    rendered(&history.all())
}

/// Two regions delete one list. Whoever has observed one of the deletions does not count what went with it.
#[test]
fn what_is_deleted_twice_is_gone_for_those_who_observed_either() {
    let deeds = [(1, 0, "RPUSH a"), (2, 1, "DEL"), (0, 1, "DEL"), (0, 1, "LPUSH b"), (0, 1, "RPOP")];
    assert_eq!(state_of(&deeds), "nothing");
}

/// A removal from a set, in a region where the key was a set, does not leave an older list behind it for others to meet.
#[test]
fn what_was_out_of_sight_for_a_removal_does_not_come_forth() {
    let began = [(1, 0, "RPUSH a"), (2, 0, "SADD m"), (0, 2, "SREM m"), (0, 3, "RPUSH b"), (1, 4, "LPOP")];
    let rival = [(2, 2, "SET x"), (1, 4, "RPUSH c")];
    assert_eq!(state_of(&[&began[..], &rival[..]].concat()), "[c]");
}

/// A deadline goes with the value for which it was written, and does not come forth with one of another type.
#[test]
fn a_deadline_does_not_outlive_its_value() {
    let began = [(2, 0, "SADD a"), (2, 0, "EXPIREAT 5000"), (2, 0, "SREM a")];
    let rival = [(1, 1, "SADD a"), (2, 2, "ZADD 1 a")];
    assert_eq!(state_of(&[&began[..], &rival[..]].concat()), "{a:1}");
}

/// What observed everything resets everything: with one writer nothing is concurrent.
#[test]
fn who_observed_all_does_what_redis_does() {
    for (words, wanted) in [
        ("SET 1, INCRBY 4, DEL", "nothing"),
        ("SADD a, SREM a", "nothing"),
        ("RPUSH a b c, LPOP, LSET 0 x, LINSERT AFTER x y, LTRIM 0 1", "[x y]"),
        ("ZADD 1 a, ZINCRBY 2 a, ZADD 5 a", "{a:5}"),
        ("SADD a, SET x, DEL, RPUSH b", "[b]"),
    ] {
        let mut history = History::default();
        words.split(',').for_each(|command| history.tell(0, 0, command));
        assert_eq!(rendered(&history.all()), wanted, "{words}");
    }
}
