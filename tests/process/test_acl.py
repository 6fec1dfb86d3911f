"""Users: what they may do is what Redis lets them do; the file that keeps them; one keyspace for a team."""

import os
import shlex
import stat
import subprocess

import pytest

from harness import Anabranch, product, wait_until
from resp import encode

# What an operator says (op), and what clients of users say, who have said AUTH before. Each reply is that of Redis.
SCRIPT = r"""
op: ACL SETUSER lim on >pw +get +set +sort +sort_ro +eval +multi +exec +rename +subscribe +psubscribe +lpush +publish +acl|whoami +acl|dryrun ~a* &ch*
lim: AUTH lim wrong
lim: AUTH lim pw
lim: ACL WHOAMI
lim: GET b
lim: DEL a
lim: CONFIG GET x
lim: CLIENT KILL ID 1
lim: ACL LIST
lim: SORT a BY w_*
lim: SORT a GET #
lim: SORT a STORE b
lim: SORT_RO a BY nosort GET x
lim: RENAME a b
lim: EVAL "return redis.call('get', 'b')" 0
lim: EVAL "return redis.call('del', 'b')" 0
lim: EVAL "return redis.pcall('del', 'b')" 0
lim: EVAL "return redis.pcall('publish', 'x', 'y')" 0
lim: EVAL "return {redis.acl_check_cmd('get', 'a'), redis.acl_check_cmd('get', 'b'), redis.acl_check_cmd('get')}" 0
lim: EVAL "return redis.acl_check_cmd('nope')" 0
lim: PUBLISH x y
lim: PSUBSCRIBE cha*
lim: SUBSCRIBE x
lim: ACL DRYRUN lim GET b
lim: ACL DRYRUN lim PUBLISH x y
lim: ACL DRYRUN lim CONFIG GET
lim: ACL DRYRUN lim DEL a
lim: ACL DRYRUN nobody GET a
lim: ACL DRYRUN lim NOPE
lim: MULTI
lim: GET b
lim: EXEC
lim: MULTI
lim: SET a 1
lim: GET ab
op: ACL SETUSER lim -set resetkeys ~a
lim: EXEC
op: ACL LOG -1
op: ACL LOG x
op: ACL LOG RESET
op: ACL SETUSER rw on nopass %R~r* %W~w* +@all
rw: AUTH rw x
rw: GET r1
rw: GET w1
rw: SET w1 v
rw: SET r1 v
rw: SET w1 v GET
rw: EXISTS w1
rw: EXISTS x
rw: COPY r1 w1
rw: COPY w1 r1
rw: BITFIELD w1 GET u8 0
rw: BITFIELD r1 GET u8 0
rw: BITFIELD r1 SET u8 0 1
rw: SORT r1 STORE w2
rw: SORT w1 STORE w1
rw: ZUNIONSTORE w1 2 r1 r2
rw: ZUNIONSTORE r1 1 r2
rw: XREAD STREAMS r1 w1 0 0
rw: EVAL "return 1" 1 r1
rw: EVAL_RO "return 1" 1 r1
rw: GETDEL w1
rw: DEL w1
rw: DEL r1
rw: LMOVE w5 w6 LEFT LEFT
rw: GEORADIUS r1 1 1 1 km STORE r2
rw: OBJECT ENCODING r1
rw: MEMORY USAGE w1
rw: MSET w1 1 r2 2
rw: MGET r1 w1
rw: DUMP w1
rw: PFCOUNT w1
rw: WATCH w1
rw: XADD w8 1-1 a b
rw: XADD r8 * a b
rw: XGROUP CREATE w8 g 0
op: ACL CAT
op: ACL CAT nope
op: ACL GENPASS 0
op: ACL GENPASS 5000
op: ACL GENPASS x
op: ACL DELUSER default
op: ACL DELUSER nobody
op: ACL GETUSER nobody
op: ACL SETUSER "a b"
op: ACL SETUSER q (+get
op: ACL SETUSER q +nope
op: ACL SETUSER q +config|nope
op: ACL SETUSER q +get|x
op: ACL SETUSER q +config|get|x
op: ACL SETUSER q -get|x
op: ACL SETUSER q +@nope
op: ACL SETUSER q nope
op: ACL SETUSER q allkeys ~x
op: ACL SETUSER q allchannels &x
op: ACL SETUSER q <x
op: ACL SETUSER q #abc
op: ACL SETUSER q %X~a
op: ACL SETUSER q %~a
op: ACL SETUSER q (on)
op: ACL GETUSER q
op: ACL SETUSER q reset on >x +@all -@dangerous +config|get ~a* %R~b* %RW~c &ch (+get ~z -@write)
op: ACL GETUSER q
op: ACL DELUSER lim
op: ACL LIST
op: ACL NOPE
op: ACL SETUSER
op: ACL WHOAMI x
op: ACL LOAD
op: CLIENT KILL USER nobody
op: CLIENT KILL USER rw
op: AUTH x
op: AUTH nobody x
op: AUTH a b c
op: CONFIG SET requirepass foo
new: GET a
new: AUTH bar
new: AUTH default foo
new: GET nope
op: CONFIG SET requirepass ""
op: ACL SETUSER default off
other: PING
other: AUTH x
op: ACL SETUSER default on
other: PING
"""


@pytest.mark.parametrize("protocol", [2, 3])
def test_users_may_do_what_redis_lets_them_do(protocol, peer):
    with Anabranch(config="[server]\nthreads = 2\n") as server:
        ours, theirs = {}, {}
        try:
            with peer.raw() as admin:
                admin.call("FLUSHALL")
            for line in SCRIPT.strip().splitlines():
                name, command = line.split(": ", 1)
                for server_of, clients in ((server, ours), (peer, theirs)):
                    if name not in clients:
                        clients[name] = server_of.raw()
                        if name in ("op", "lim", "rw"):
                            clients[name].call("HELLO", protocol)
                words = shlex.split(command)
                got, wanted = ours[name].call(*words), theirs[name].call(*words)
                assert got.raw == wanted.raw, (line, got, wanted)
        finally:
            with peer.raw() as admin:
                admin.call("ACL", "DELUSER", "lim", "rw", "q")
            for client in [*ours.values(), *theirs.values()]:
                client.close()


def test_the_categories_of_commands_are_those_of_redis(server, peer):
    with server.raw() as ours, peer.raw() as theirs:
        known = set(ours.call("COMMAND", "LIST").texts())
        for category in theirs.call("ACL", "CAT").texts():
            has = set(ours.call("ACL", "CAT", category).texts())
            wanted = set(theirs.call("ACL", "CAT", category).texts())
            commands = {name for name in wanted if name in known or b"|" in name and name.split(b"|")[0] in known}
            subcommands = {name for name in commands if b"|" in name}
            assert commands - subcommands <= has, category
            redis_has = {name for name in has if theirs.call("COMMAND", "INFO", name).items[0].items}
            assert redis_has <= wanted, category


@pytest.fixture
def threads():
    """A server with several workers, of its own."""
    with Anabranch(config="[server]\nthreads = 3\n") as server:
        yield server


def is_closed(raw) -> bool:
    try:
        return raw.call("PING").raw == b""
    except (EOFError, ConnectionError):
        return True


def test_a_change_holds_at_every_worker_at_once(threads):
    with threads.raw() as op:
        assert op.call("ACL", "SETUSER", "u", "on", "nopass", "+@all", "~*", "&*").raw == b"+OK\r\n"
        clients = [threads.raw() for _ in range(6)]
        for client in clients:
            assert client.call("AUTH", "u", "x").raw == b"+OK\r\n"
            assert client.call("SET", "k", "v").raw == b"+OK\r\n"
        assert op.call("CLIENT", "LIST").text.count(b" user=u ") == 6
        assert op.call("ACL", "SETUSER", "u", "-set").raw == b"+OK\r\n"
        for client in clients:
            assert client.call("SET", "k", "v").raw.startswith(b"-NOPERM ")
        # In one pipeline, behind the change itself.
        assert op.call("ACL", "SETUSER", "u", "+@all").raw == b"+OK\r\n"
        clients[0].send(encode(["ACL", "SETUSER", "u", "-get"]) + encode(["GET", "k"]) + encode(["PING"]))
        assert clients[0].read().raw == b"+OK\r\n"
        assert clients[0].read().raw.startswith(b"-NOPERM ")
        assert clients[0].read().raw == b"+PONG\r\n"
        # Subscribers without the right channels go, and blocked clients with their user.
        for client in clients[:3]:
            client.call("SUBSCRIBE", "a")
        clients[3].send(encode(["BLPOP", "nothing", "0"]))
        op.call("ACL", "SETUSER", "u", "resetchannels", "&a")
        assert op.call("PUBLISH", "a", "m").raw == b":3\r\n"
        assert all(client.read().items[2].text == b"m" for client in clients[:3])
        op.call("ACL", "SETUSER", "u", "resetchannels", "&b")
        assert all(is_closed(client) for client in clients[:3])
        assert clients[4].call("PING").raw == b"+PONG\r\n"
        wait_until(lambda: op.call("INFO", "clients").text.count(b"blocked_clients:1") == 1)
        assert op.call("ACL", "DELUSER", "u").raw == b":1\r\n"
        with pytest.raises((EOFError, ConnectionError)):
            clients[3].read()
        assert all(is_closed(client) for client in clients[4:])
        wait_until(lambda: op.call("CLIENT", "LIST").text.count(b"id=") == 1)
        # Another user of that name is another one.
        assert op.call("ACL", "SETUSER", "u", "on", "nopass", "+ping").raw == b"+OK\r\n"
        with threads.raw() as again:
            again.call("AUTH", "u", "x")
            assert again.call("GET", "k").raw == b"-NOPERM this user has no permissions to run the 'get' command\r\n"
            assert op.call("CLIENT", "KILL", "USER", "u").raw == b":1\r\n"
            assert is_closed(again)
        for client in clients:
            client.close()


def test_what_was_refused_is_listed(threads):
    with threads.raw() as op, threads.raw() as client:
        op.call("ACL", "SETUSER", "u", "on", ">p", "+get", "~a")
        client.call("AUTH", "u", "wrong")
        client.call("AUTH", "u", "p")
        for _ in range(3):
            client.call("GET", "b")
        client.call("DEL", "a")
        seen = [dict(zip(entry.texts()[::2], entry.items[1::2])) for entry in op.call("ACL", "LOG").items]
        told = [(entry[b"reason"].text, entry[b"object"].text, entry[b"username"].text) for entry in seen]
        assert told == [(b"command", b"del", b"u"), (b"key", b"b", b"u"), (b"auth", b"AUTH", b"u")]
        assert seen[1][b"count"].raw == b":3\r\n" and b" user=u " in seen[1][b"client-info"].text
        assert len(op.call("ACL", "LOG", "1").items) == 1
        # Nobody is shown a password.
        op.call("CONFIG", "SET", "slowlog-log-slower-than", "0")
        op.call("ACL", "SETUSER", "u", ">hidden")
        assert b"hidden" not in op.call("SLOWLOG", "GET", "10").raw


def test_the_file_keeps_users(tmp_path):
    path = tmp_path / "users.acl"
    path.write_text("user default on >secret ~* &* +@all\nuser app on >x ~app:* resetchannels -@all +@read +@write\n")
    config = f'[server]\nacl_file = "{path}"\npassword = "ignored"\n'
    with Anabranch(config=config) as server:
        with server.raw() as op:
            assert op.call("GET", "k").raw.startswith(b"-NOAUTH")
            assert op.call("AUTH", "ignored").is_error
            assert op.call("AUTH", "secret").raw == b"+OK\r\n"
            assert op.call("CONFIG", "GET", "aclfile").items[1].text == str(path).encode()
            op.call("ACL", "SETUSER", "team", "on", ">t", "keyspace:team", "allkeys", "+@all", "-@dangerous")
            assert op.call("ACL", "SAVE").raw == b"+OK\r\n"
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            saved = path.read_text()
            assert len(saved.splitlines()) == 3 and "resetkeyspaces keyspace:team" in saved
            before = op.call("ACL", "LIST").raw
            with server.raw() as app:
                assert app.call("AUTH", "app", "x").raw == b"+OK\r\n"
                # All or nothing.
                path.write_text("user app on >x ~* +get\nuser b +nope\n")
                reply = op.call("ACL", "LOAD")
                assert reply.is_error and f"{path}:2: Error in applying operation '+nope'".encode() in reply.text
                assert op.call("ACL", "LIST").raw == before
                path.write_text("user app on >x ~* +get\n")
                assert op.call("ACL", "LOAD").raw == b"+OK\r\n"
                assert app.call("GET", "any").is_null
                assert app.call("SET", "any", "v").raw.startswith(b"-NOPERM")
                # `default` is not in the file: it stays as it was, and with a password.
                assert op.call("ACL", "USERS").texts() == [b"app", b"default"]
            path.write_text("user app on >x ~app:* +@read\nuser default on >secret ~* &* +@all\n")
        server.kill()
        server.start()
        with server.raw() as op:
            assert op.call("AUTH", "secret").raw == b"+OK\r\n"
            assert op.call("ACL", "USERS").texts() == [b"app", b"default"]
            path.unlink()
            assert b"No such file" in op.call("ACL", "LOAD").text
            os.chmod(tmp_path, 0o500)
            if os.geteuid() != 0:
                assert op.call("ACL", "SAVE").is_error
            os.chmod(tmp_path, 0o700)


def test_a_wrong_file_refuses_the_start(tmp_path):
    path, config = tmp_path / "users.acl", tmp_path / "config.toml"
    config.write_text(f'[server]\nacl_file = "{path}"\n')
    command = [product(), "serve", "--config", str(config), "--listen", "127.0.0.1:0", "--memory"]
    for text, reason in [("user a on\nuser b nonsense\n", f"{path}:2: Syntax error"), (None, "No such file")]:
        if text:
            path.write_text(text)
        else:
            path.unlink()
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode != 0 and reason in done.stderr and str(path) in done.stderr, done.stderr


def test_a_team_sees_its_keyspace_only():
    config = "[server]\nthreads = 2\n"
    with Anabranch(config=config) as server, server.raw() as op, server.raw() as team:
        for name, model in (("team", "strict"), ("other", "strict"), ("team-causal", "causal")):
            assert op.call("KEYSPACE", "CREATE", name, "MODEL", model).raw == b"+OK\r\n"
        rules = ["on", ">t", "keyspace:team", "~*", "&*", "+@all", "-@dangerous", "-@admin", "+info", "+memory"]
        op.call("ACL", "SETUSER", "team", *rules)
        op.call("SET", "k", "in default")
        op.call("KEYSPACE", "USE", "other")
        op.call("SET", "k", "in other")
        # It begins in the keyspace that its rules name, whatever client it uses.
        assert team.call("HELLO", "3", "AUTH", "team", "t").kind == b"%"
        assert team.call("GET", "k").is_null
        assert team.call("SET", "k", "in team").raw == b"+OK\r\n"
        assert team.call("KEYSPACE", "LIST").texts() == [b"team"]
        # What it may not see is as if it did not exist.
        for command in ("USE", "INFO", "HOTKEYS", "LOCATE"):
            rest = ["k"] if command == "LOCATE" else []
            seen, missing = (team.call("KEYSPACE", command, name, *rest) for name in ("other", "nowhere"))
            assert seen.is_error and seen.raw == missing.raw.replace(b"nowhere", b"other"), command
            truly = op.call("KEYSPACE", command, "nowhere", *rest)
            assert truly.text == missing.text, command
        for command in (["SELECT", "0"], ["COPY", "k", "k2", "DB", "0"], ["MOVE", "k", "0"]):
            missing = [*command[:-1], "999"]
            assert team.call(*command).raw == team.call(*missing).raw, command
        told = team.call("INFO", "everything").text + team.call("MEMORY", "STATS").raw
        assert b"other" not in told.replace(b"mem_not_counted", b"") and b"db0:" not in told and b"db.0" not in told
        # In transactions and scripts.
        team.call("MULTI")
        assert team.call("SELECT", "0").is_error or team.call("EXEC").items[0].is_error
        team.call("DISCARD")
        assert team.call("EVAL", "return redis.call('get', 'k')", "0").text == b"in team"
        # Functions and scripts are those of all.
        for command in (["FUNCTION", "FLUSH"], ["FUNCTION", "DELETE", "x"], ["SCRIPT", "FLUSH"], ["SCRIPT", "KILL"]):
            op.call("ACL", "SETUSER", "team", "+function", "+script")
            assert team.call(*command).text.startswith(b"NOPERM functions and scripts are those of all"), command
        # Whoever asks is told the same.
        op.call("ACL", "SETUSER", "team", "+flushall")
        assert op.call("ACL", "DRYRUN", "team", "FLUSHALL").text.startswith(b"FLUSHALL empties every keyspace")
        assert op.call("ACL", "DRYRUN", "team", "GET", "k").text == b"OK"
        checked = "return {redis.acl_check_cmd('flushall'), redis.acl_check_cmd('get', 'k')}"
        may_flush, may_get = team.call("EVAL", checked, "0").items
        assert may_flush.is_null and may_get.raw == b":1\r\n"
        # Its keyspace is taken away, and given back with another one.
        assert team.call("TXN", "BEGIN").raw == b"+OK\r\n"
        assert team.call("SET", "k", "late").raw == b"+OK\r\n"
        op.call("ACL", "SETUSER", "team", "resetkeyspaces", "keyspace:team-*")
        for command in (["GET", "k"], ["WATCH", "k"], ["TXN", "BEGIN"], ["EVAL", "return 1", "0"], ["SCAN", "0"]):
            assert team.call(*command).text.startswith(b"NOPERM this user may not use the selected keyspace"), command
        assert team.call("TXN", "COMMIT").text.startswith(b"NOPERM the rules of this user have changed")
        assert team.call("TXN", "ABORT").raw == b"+OK\r\n"
        op.call("KEYSPACE", "USE", "team")
        assert op.call("GET", "k").text == b"in team"
        assert team.call("KEYSPACE", "USE", "team-causal").raw == b"+OK\r\n"
        assert team.call("SET", "k", "v").raw == b"+OK\r\n"
        assert team.call("RESET").raw == b"+RESET\r\n"
        assert team.call("ACL", "WHOAMI").text == b"default"


def test_a_heap_of_prefixes_is_refused(server):
    """One word after the other stands for the command behind it: nobody follows them down."""
    with server.raw() as op, server.raw() as raw:
        op.call("ACL", "SETUSER", "lim", "on", "nopass", "~a*", "+@all", "-acl")
        assert raw.call("AUTH", "lim", "x").raw == b"+OK\r\n"
        many = 300_000
        for command in (["BLIND"] * many + ["x"], ["AT", "s"] * many + ["GET", "b"], ["BLIND", "BLIND", "SET", "b", "v"]):
            assert raw.call(*command).is_error
        assert raw.call("EVAL", "return redis.pcall('blind', 'blind', 'set', 'b', 'v')", "0").is_error
        assert op.call("ACL", "DRYRUN", "lim", *["BLIND"] * many, "x").raw
        assert op.call("GET", "b").is_null
        assert op.call("PING").raw == b"+PONG\r\n"


def test_words_that_look_like_keys_or_hide_them(server):
    with server.raw() as op, server.raw() as raw:
        op.call("XGROUP", "CREATE", "secret", "STREAMS", "$", "MKSTREAM")
        op.call("ACL", "SETUSER", "lim", "on", "nopass", "resetkeys", "~a*", "&ch*", "+@all")
        assert raw.call("AUTH", "lim", "x").raw == b"+OK\r\n"
        for group, consumer in (("STREAMS", "a"), ("g", "STREAMS"), ("STREAMS", "STREAMS")):
            refused = raw.call("XREADGROUP", "GROUP", group, consumer, "STREAMS", "secret", ">")
            assert refused.text.startswith(b"NOPERM this user has no permissions to access one of the keys"), refused.raw
        # Shard channels are channels.
        assert raw.call("SPUBLISH", "ch1", "m").raw == b":0\r\n"
        assert b"channels" in raw.call("SPUBLISH", "a1", "m").text
        assert not raw.call("SSUBSCRIBE", "ch1").is_error


def test_a_merge_resolves_keys_that_its_user_may_write(server):
    with server.raw() as op, server.raw() as raw:
        op.call("KEYSPACE", "CREATE", "forks", "MODEL", "branch")
        op.call("ACL", "SETUSER", "lim", "on", "nopass", "~a*", "+@all", "keyspace:forks")
        assert raw.call("AUTH", "lim", "x").raw == b"+OK\r\n"
        for key, is_refused in (("b", True), ("ALL", True), ("all", True), ("a", False)):
            told = raw.call("MERGE", "RESOLVE", key)
            assert told.is_error and told.text.startswith(b"NOPERM") == is_refused, (key, told.raw)
        op.call("ACL", "SETUSER", "lim", "allkeys")
        assert not raw.call("MERGE", "RESOLVE", "ALL").text.startswith(b"NOPERM")


def test_a_broadcast_names_no_keys_of_other_keyspaces(server):
    with server.raw() as op, server.raw() as team:
        op.call("KEYSPACE", "CREATE", "ours", "MODEL", "strict")
        op.call("ACL", "SETUSER", "team", "on", "nopass", "~*", "+@all", "keyspace:ours")
        assert team.call("HELLO", "3", "AUTH", "team", "x").kind == b"%"
        assert team.call("CLIENT", "TRACKING", "ON", "BCAST").raw == b"+OK\r\n"
        op.call("SET", "secret", "v")
        op.call("KEYSPACE", "USE", "ours")
        op.call("SET", "told", "v")
        told = team.read()
        assert told.kind == b">" and told.items[1].texts() == [b"told"]
