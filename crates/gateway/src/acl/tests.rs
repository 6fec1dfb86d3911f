//! Rules, what they come to, and the file; checks are tested with sessions (`tests/scripts/acl.txt`).

use super::{Users, password};

/// Makes the user `u` by rules, and says how it is described then, or what is wrong.
fn made(rules: &str) -> Result<String, String> {
    let mut users = Users::new(None);
    let rules: Vec<&[u8]> = rules.split(' ').map(str::as_bytes).collect();
    users.set(b"u", rules.iter().copied()).map_err(|error| error.message.into_owned())?;
    Ok(line(&users))
}

fn line(users: &Users) -> String {
    let line = users.get(b"u").map(|user| user.line()).unwrap_or_default();
    String::from_utf8_lossy(&line).into_owned()
}

#[test]
fn a_description_makes_the_same_user_again() {
    let examples = [
        ("", "user u off resetchannels -@all"),
        ("on nopass allkeys allchannels +@all", "user u on nopass ~* &* +@all"),
        ("~a %R~b %RW~c %W~b &x", "user u off ~a ~b ~c resetchannels &x -@all"),
        ("+@all -@dangerous +config|get", "user u off resetchannels +@all -@dangerous +config|get"),
        ("+@read -get +select|0 +select|1", "user u off resetchannels -@all +@read -get +select|0 +select|1"),
        ("+config -config|set", "user u off resetchannels -@all +config -config|set"),
        ("+@all -client|kill -get +get", "user u off resetchannels +@all -client|kill"),
        ("(+get ~z) (%W~y", "Unmatched parenthesis in acl selector starting at '(%W~y'."),
        (
            "(+get ~z) (%W~y &c)",
            "user u off resetchannels -@all (~z resetchannels -@all +get) (%W~y resetchannels &c -@all)",
        ),
        (
            "(+get) clearselectors skip-sanitize-payload",
            "user u off skip-sanitize-payload resetchannels -@all",
        ),
        (
            "keyspace:a-* keyspace:b +@all",
            "user u off resetchannels resetkeyspaces keyspace:a-* keyspace:b +@all",
        ),
        ("keyspace:a keyspace:*", "user u off resetchannels -@all"),
        ("keyspace:a allkeyspaces resetkeyspaces", "user u off resetchannels resetkeyspaces -@all"),
        ("on nopass ~a +get keyspace:a reset", "user u off sanitize-payload resetchannels -@all"),
    ];
    for (rules, expected) in examples {
        match made(rules) {
            Err(error) => assert_eq!(error, expected, "{rules}"),
            Ok(described) => {
                assert_eq!(described, expected, "{rules}");
                let again = described.strip_prefix("user u ").expect("its name");
                assert_eq!(made(again).as_deref(), Ok(&*described), "{rules}");
            }
        }
    }
}

#[test]
fn a_wrong_rule_changes_nothing() {
    let mut users = Users::new(None);
    users.set(b"u", [&b"on"[..], b"+get"].into_iter()).expect("rules");
    let before = line(&users);
    for rule in [
        "+nope",
        "-get|x",
        "+@nope",
        "+config|get|x",
        "+get|",
        "nope",
        "%~x",
        "%X~x",
        "~a b",
        "<x",
        "#x",
        "keyspace:",
    ] {
        let error = users.set(b"u", [&b"off"[..], rule.as_bytes()].into_iter()).expect_err(rule);
        assert!(error.message.starts_with(&format!("Error in ACL SETUSER modifier '{rule}': ")), "{error}");
        assert_eq!(line(&users), before, "{rule}");
    }
    assert!(users.set(b"a b", std::iter::empty()).is_err());
    assert!(!users.remove(b"default"));
}

#[test]
fn only_the_right_password_will_do() {
    let mut users = Users::new(Some("secret"));
    assert!(users.must_authenticate());
    assert!(users.authenticate(b"default", b"secret").is_some());
    assert!(users.authenticate(b"default", b"secre").is_none());
    let hash = format!("#{}", password::hex(&password::digest(b"two")));
    users.set(b"u", [&b">one"[..], hash.as_bytes()].into_iter()).expect("rules");
    assert!(users.authenticate(b"u", b"one").is_none(), "it is off");
    users.set(b"u", [&b"on"[..], b"<one"].into_iter()).expect("rules");
    assert!(users.authenticate(b"u", b"one").is_none());
    assert!(users.authenticate(b"u", b"two").is_some());
    users.set(b"u", [&b"nopass"[..]].into_iter()).expect("rules");
    assert!(users.authenticate(b"u", b"whatever").is_some());
    users.set(b"u", [&b"resetpass"[..]].into_iter()).expect("rules");
    assert!(users.authenticate(b"u", b"").is_none());
    assert!(users.authenticate(b"nobody", b"").is_none());
    users.set_default_password(None);
    assert!(!users.must_authenticate());
}

#[test]
fn a_file_is_taken_as_a_whole_and_says_which_lines_are_wrong() {
    let mut users = Users::new(Some("secret"));
    users.set(b"old", std::iter::empty()).expect("rules");
    let end = "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";
    for (text, expected) in [
        ("foo\n", "f:1 should start with user keyword followed by the username. "),
        ("\nuser\n", "f:2 should start with user keyword followed by the username. "),
        ("# no comments\n", "f:1 should start with user keyword followed by the username. "),
        (
            "user a +nope\nuser b ~a bar\n",
            "f:1: Error in applying operation '+nope': Unknown command or category name in ACL. f:2: Syntax error. ",
        ),
        ("user a on\nuser a off\n", "WARNING: Duplicate user 'a' found on line 2. "),
        ("user a (+get\n", "f:1: Unmatched parenthesis in selector definition. "),
    ] {
        let before = users.file_text();
        let error = users.load(text.as_bytes(), "f").expect_err(text);
        assert_eq!(error, format!("{expected}{end}"));
        assert_eq!(users.file_text(), before);
    }
    users.load(b"\n  user u on  >x ~a\r\n\nuser v (+get ~b)", "f").expect("a file");
    let text = String::from_utf8(users.file_text()).expect("text");
    assert!(text.starts_with("user default on #2bb80d53"), "default stays as it was: {text}");
    assert!(
        text.contains("user u on #2d711642") && text.contains("user v off") && !text.contains("old"),
        "{text}"
    );
}

/// Bytes of a good file are changed, dropped and doubled: whatever comes of it is refused with a line, or is a file that
/// makes the same users again.
#[test]
fn a_damaged_file_is_refused_or_makes_users_that_are_written_as_they_are_read() {
    let mut users = Users::new(None);
    let rules: [&[&[u8]]; 3] = [
        &[b"on", b">x", b"~a*", b"%R~b", b"&c", b"+@read", b"-get", b"+select|0", b"+config|get"],
        &[b"nopass", b"+@all", b"-@dangerous", b"keyspace:t-*", b"(~z +get)", b"(%W~y &d +@write)"],
        &[b"skip-sanitize-payload", b"resetkeyspaces", b"allkeys", b"allchannels"],
    ];
    for (name, rules) in [b"u", b"v", b"w"].iter().zip(rules) {
        users.set(*name, rules.iter().copied()).expect("rules");
    }
    let good = users.file_text();
    let fresh = Users::new(None);
    let mut random = types::Rng::with_seed(11);
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..400 {
        let mut text = good.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(0..text.len());
            match random.u8(0..4) {
                0 => text[at] = random.u8(..),
                1 => drop(text.remove(at)),
                2 => text.insert(at, *random.choice(b" \n()+-@~&%|#:>").expect("some")),
                _ => text.truncate(at.max(1)),
            }
        }
        let mut read = fresh.clone();
        match read.load(&text, "f") {
            Err(error) => {
                assert!(error.contains("f:") || error.contains("on line"), "{error}");
                refused += 1;
            }
            Ok(()) => {
                let written = read.file_text();
                let mut again = fresh.clone();
                again.load(&written, "f").expect("it was written");
                assert_eq!(again.file_text(), written, "{:?}", String::from_utf8_lossy(&text));
                taken += 1;
            }
        }
    }
    assert!(refused > 20 && taken > 20, "{refused} {taken}");
}
