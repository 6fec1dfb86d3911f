"""Where Anabranch answers otherwise than Redis 7.0 on purpose, and why.

The table is the source of docs/reference/differences.md: `python tests/process/differences.py > docs/reference/differences.md`.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """One intended difference. The last command of `example` shows it; where that takes several clients, another test does."""

    what: str
    redis: str
    anabranch: str
    reason: str
    example: tuple[str, ...]
    # The names of the commands whose replies it explains, and how ours begins there.
    commands: tuple[str, ...]
    ours: bytes | tuple[bytes, ...]
    # How Redis's begins there, where that matters.
    theirs: bytes | tuple[bytes, ...] = b""

    def covers(self, arguments: tuple, ours: bytes, theirs: bytes) -> bool:
        """True if this explains why the replies to a command are not the same."""
        named = arguments[0].upper().decode("latin-1") in self.commands
        return named and ours != theirs and ours.startswith(self.ours) and theirs.startswith(self.theirs)


class Quotation(Difference):
    """Errors that quote arguments, of any command: nothing else may differ."""

    def covers(self, arguments: tuple, ours: bytes, theirs: bytes) -> bool:
        text = ours
        for argument in arguments:
            line = argument.replace(b"\r", b" ").replace(b"\n", b" ")
            text = text.replace(line.decode(errors="replace").encode(), line.partition(b"\0")[0])
        is_quoted = theirs == text or ours == theirs.decode(errors="replace").encode()
        return ours.startswith(b"-") and ours != theirs and is_quoted


class Spelling(Difference):
    """The same data written otherwise, in replies of any command: equal where all that matches `ours` is left out."""

    def covers(self, arguments: tuple, ours: bytes, theirs: bytes) -> bool:
        plain = [re.sub(self.ours, b"", reply) for reply in (ours, theirs)]
        return not ours.startswith(b"-") and ours != theirs and plain[0] == plain[1]


INTENDED = [
    Difference(
        what="`PUBLISH` to a channel that the client itself has subscribed to, in RESP3",
        redis="sends the message before the reply, and inside of `EXEC` into the middle of its array",
        anabranch="sends it behind the reply, as Redis 7.2 does",
        reason="A message is sent when its command, or its transaction, is done.",
        example=("HELLO 3", "SUBSCRIBE c", "PUBLISH c 1"),
        commands=("PUBLISH",),
        ours=b":",
        theirs=b">",
    ),
    Difference(
        what="`SELECT` of another number inside `MULTI`",
        redis="changes the database in the middle of the transaction",
        anabranch="`CROSSKEYSPACE`, and `EXEC` is refused",
        reason="A transaction has one keyspace, because each keyspace chooses its own consistency model.",
        example=("MULTI", "SELECT 1"),
        commands=("SELECT",),
        ours=b"-CROSSKEYSPACE ",
    ),
    Difference(
        what="`FLUSHALL` inside `MULTI`",
        redis="empties all databases at once",
        anabranch="`CROSSKEYSPACE`; `FLUSHDB` is allowed",
        reason="The same. Outside of a transaction `FLUSHALL` empties keyspace by keyspace.",
        example=("MULTI", "FLUSHALL"),
        commands=("FLUSHALL",),
        ours=b"-CROSSKEYSPACE ",
    ),
    Difference(
        what="`MULTI` after `WATCH` in another database",
        redis="watches keys of several databases",
        anabranch="`CROSSKEYSPACE` until `UNWATCH`",
        reason="The same: what a transaction watches belongs to the transaction.",
        example=("WATCH key", "SELECT 1", "MULTI"),
        commands=("MULTI",),
        ours=b"-CROSSKEYSPACE ",
    ),
    Difference(
        what="`MOVE` to another database",
        redis="moves the key",
        anabranch="`CROSSKEYSPACE`; `DUMP`, then `RESTORE` in the other keyspace, then `DEL` does it in steps",
        reason="A transaction has one keyspace, and half a move would lose the key or double it.",
        example=("SET key 1", "MOVE key 1"),
        commands=("MOVE",),
        ours=b"-CROSSKEYSPACE ",
    ),
    Difference(
        what="`COPY` with `DB` of another database",
        redis="copies the key there",
        anabranch="`CROSSKEYSPACE`; `DUMP`, then `RESTORE` in the other keyspace does it",
        reason="The same.",
        example=("SET key 1", "COPY key other DB 1"),
        commands=("COPY",),
        ours=b"-CROSSKEYSPACE ",
    ),
    Difference(
        what="`SWAPDB` of two databases",
        redis="swaps them",
        anabranch="`CROSSKEYSPACE`; let clients `SELECT` the other one",
        reason="The same; keyspaces also have models and places that do not swap.",
        example=("SWAPDB 0 1",),
        commands=("SWAPDB",),
        ours=b"-CROSSKEYSPACE ",
    ),
    Difference(
        what="`OBJECT IDLETIME`",
        redis="tells the seconds since the last access",
        anabranch="an error: no times of access are kept, as `OBJECT FREQ` says in both",
        reason="A number that nobody measured would let a program delete keys that are in use, or keep all for ever.",
        example=("SET key 1", "OBJECT IDLETIME key"),
        commands=("OBJECT",),
        ours=b"-ERR idle time not tracked",
    ),
    Difference(
        what="`OBJECT REFCOUNT` of a small integer",
        redis="2147483647, because small integers are one shared object",
        anabranch="1",
        reason="No value is shared.",
        example=("SET key 1", "OBJECT REFCOUNT key"),
        commands=("OBJECT",),
        ours=b":1\r\n",
    ),
    Difference(
        what="`OBJECT ENCODING`",
        redis="how the value is stored, which depends on the key's past too",
        anabranch="how Redis 7.2 with its default limits stores a new value like this one",
        reason="Values are stored in other ways here; programs ask to learn whether a value is small.",
        example=("RPUSH key a", "OBJECT ENCODING key"),
        commands=("OBJECT",),
        ours=b"$8\r\nlistpack\r\n",
    ),
    Difference(
        what="the payload of `DUMP`",
        redis="version 10 of the format",
        anabranch="version 11, that of Redis 7.2, which 7.0 refuses; `RESTORE` takes all versions up to 11",
        reason="The same commands as in 7.2 read it.",
        example=("SET key a", "DUMP key"),
        commands=("DUMP",),
        ours=b"$",
    ),
    Difference(
        what="`WAITAOF`",
        redis="unknown in 7.0, there since 7.2",
        anabranch="at once: what is certain of every answered write of the keyspace, as `WAIT` does",
        reason="A write is answered when it is as safe as its keyspace makes it.",
        example=("WAITAOF 0 0 0",),
        commands=("WAITAOF",),
        ours=b"*2\r\n",
    ),
    Difference(
        what="`CLIENT SETINFO`",
        redis="unknown in 7.0, there since 7.2",
        anabranch="as in 7.2",
        reason="Current client libraries introduce themselves with it.",
        example=("CLIENT SETINFO LIB-NAME mine",),
        commands=("CLIENT",),
        ours=b"+OK",
    ),
    Difference(
        what="`HSCAN` with `NOVALUES`",
        redis="unknown in 7.0, there since 7.4",
        anabranch="as in 7.4",
        reason="Current client libraries offer it.",
        example=("HSET key field value", "HSCAN key 0 NOVALUES"),
        commands=("HSCAN",),
        ours=b"*2\r\n",
    ),
    Difference(
        what="`LPOS` with the lowest integer as `RANK`",
        redis="7.0 negates it, which it cannot; 7.2 refuses it",
        anabranch="as in 7.2",
        reason="There is no such rank.",
        example=("RPUSH key a", "LPOS key a RANK -9223372036854775808"),
        commands=("LPOS",),
        ours=b"-ERR value is out of range, value must between",
    ),
    Difference(
        what="several errors in one command",
        redis="`LINDEX`, `LSET`, `GETEX`, `SETRANGE`, `INCRBYFLOAT`, `LCS` and `RESTORE` look at the key first",
        anabranch="the arguments are checked before any key is looked at",
        reason="A command becomes an operation before the keyspace is asked.",
        example=("LINDEX missing first",),
        commands=("LINDEX", "LSET", "GETEX", "SETRANGE", "INCRBYFLOAT", "LCS", "RESTORE"),
        ours=(
            b"-ERR value is not ",
            b"-ERR invalid expire time",
            b"-ERR string exceeds maximum allowed size",
            b"-ERR increment would produce NaN or Infinity",
            b"-ERR syntax error",
            b"-ERR If you want both",
            b"-ERR Invalid TTL value",
            b"-ERR DUMP payload version or checksum are wrong",
        ),
    ),
    Difference(
        what="several errors in one command on streams",
        redis="`XREAD`, `XREADGROUP`, `XCLAIM`, `XGROUP` and `XINFO` look at key and group before ids and some options",
        anabranch="the arguments are checked before any key is looked at",
        reason="The same.",
        example=("XGROUP CREATE missing group first",),
        commands=("XREAD", "XREADGROUP", "XCLAIM", "XGROUP", "XINFO"),
        ours=(
            b"-ERR Invalid ",
            b"-ERR syntax error",
            b"-ERR value is not an integer",
            b"-ERR Unrecognized XCLAIM option",
            b"-ERR The $ ID",
            b"-ERR The > ID",
            b"-ERR unknown subcommand or wrong number of arguments for 'STREAM'",
        ),
    ),
    Difference(
        what="`XSETID` to an id before that of an entry that was deleted",
        redis="7.0 takes it; 7.2 refuses it",
        anabranch="as in 7.2",
        reason="The id of the deleted entry would be given again.",
        example=("XADD key 5 field value", "XDEL key 5-0", "XSETID key 3-0"),
        commands=("XSETID",),
        ours=b"-ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        theirs=b"+OK",
    ),
    Difference(
        what="several errors in one command on points, or on several sorted sets",
        redis="looks at keys and members before the options, and at no option of an absent key",
        anabranch="the arguments are checked before any key is looked at",
        reason="The same.",
        example=("GEORADIUSBYMEMBER missing member far km",),
        commands=(
            "GEOSEARCH",
            "GEOSEARCHSTORE",
            "GEORADIUS",
            "GEORADIUS_RO",
            "GEORADIUSBYMEMBER",
            "GEORADIUSBYMEMBER_RO",
            "ZUNION",
            "ZINTER",
            "ZDIFF",
            "ZINTERCARD",
            "ZUNIONSTORE",
            "ZINTERSTORE",
            "ZDIFFSTORE",
        ),
        ours=b"-ERR ",
        theirs=(
            b"-WRONGTYPE",
            b"-ERR could not decode",
            b"-ERR syntax error",
            b"-ERR COUNT must be > 0",
            b"-ERR value is not an integer",
            b"-ERR STORE option in GEORADIUS",
            b"*0",
            b":0",
        ),
    ),
    Difference(
        what="`ZRANK` and `ZREVRANK` with `WITHSCORE`",
        redis="unknown in 7.0, there since 7.2",
        anabranch="as in 7.2",
        reason="Current client libraries offer it.",
        example=("ZADD key 1 member", "ZRANK key member WITHSCORE"),
        commands=("ZRANK", "ZREVRANK"),
        ours=(b"*", b"_", b"-ERR syntax error", b"-WRONGTYPE"),
        theirs=b"-ERR wrong number of arguments",
    ),
    Difference(
        what="wrong arguments of `BITCOUNT` and `BITPOS` on a missing key",
        redis="are not looked at in 7.0",
        anabranch="are errors, as in 7.2",
        reason="What is wrong is wrong without a key, too.",
        example=("BITCOUNT missing 1",),
        commands=("BITCOUNT", "BITPOS"),
        ours=b"-ERR ",
    ),
    Spelling(
        what="the bytes of a HyperLogLog",
        redis="`PFCOUNT` writes the count into the string, and a dense string stays dense",
        anabranch="`PFCOUNT` only reads, and the string is the same for the same registers, in whatever order they came",
        reason="So additions commute. Both read the strings of each other and count the same.",
        example=("PFADD key a", "PFCOUNT key", "GET key"),
        commands=(),
        # What stands before the registers.
        ours=rb"(?<=HYLL\x01)[\s\S]{11}",
    ),
    Difference(
        what="`PFADD` to a damaged HyperLogLog",
        redis="refuses it where the element's register is behind the damage, else changes it",
        anabranch="`INVALIDOBJ`",
        reason="Nothing could read what was added: both refuse to count it.",
        example=("PFADD key a", "APPEND key 0", "PFADD key b"),
        commands=("PFADD",),
        ours=b"-INVALIDOBJ ",
        theirs=b":",
    ),
    Spelling(
        what="minus zero as a score",
        redis="`-0` where the set is large or was sorted, or a weight made it; else `0`",
        anabranch="`0`",
        reason="Minus zero is zero wherever scores are kept.",
        example=("ZADD key 1 member", "ZUNION 1 key WEIGHTS -0 WITHSCORES"),
        commands=(),
        ours=rb"(?<=\$)[12]\r\n-?(?=0\r\n)|(?<=,)-(?=0\r\n)",
    ),
    Difference(
        what="undocumented options of `ZINCRBY`",
        redis="takes options of `ZADD`, then misses the rest",
        anabranch="takes none",
        reason="The documentation knows no options.",
        example=("ZINCRBY key NX 1",),
        commands=("ZINCRBY",),
        ours=b"-ERR value is not a valid float",
    ),
    Difference(
        what="a NUL byte in a bound of `ZRANGEBYSCORE` and its like",
        redis="ends the number",
        anabranch="`ERR min or max is not a float`",
        reason="Half a number is a mistake.",
        example=("ZCOUNT key \0 1",),
        commands=("ZCOUNT",),
        ours=b"-ERR min or max is not a float",
    ),
    Difference(
        what="`HELLO` inside `MULTI`",
        redis="changes the protocol in the middle of the reply of `EXEC`",
        anabranch="the whole reply is in the new protocol",
        reason="A reply has one protocol.",
        example=("MULTI", "GET missing", "HELLO 3", "EXEC"),
        commands=("EXEC",),
        ours=b"*2\r\n_\r\n%7\r\n",
    ),
    Quotation(
        what="errors that quote bytes of the client",
        redis="end the quotation at a NUL byte",
        anabranch="quote all, with replacement characters for what is no UTF-8",
        reason="Error messages are text.",
        example=("NONSENSE a\0b",),
        commands=(),
        ours=b"-",
    ),
    Difference(
        what="`BYLEX` ranges of members with different scores",
        redis="unspecified",
        anabranch="unspecified, and may be other members",
        reason="Both look for the ends of the range as if the names were in order, which they are only within one score.",
        example=("ZADD key inf 1 -0 f", "ZRANGE key (c + BYLEX"),
        commands=("ZRANGE",),
        ours=b"*2\r\n$1\r\nf\r\n$1\r\n1\r\n",
    ),
    Difference(
        what="`SCAN` and its like with a cursor that none replied, such as nothing or `-1`",
        redis="takes it as some number",
        anabranch="`ERR invalid cursor`",
        reason="A mistake should not look like an end of the iteration.",
        example=("SCAN -1",),
        commands=("SCAN", "HSCAN", "SSCAN", "ZSCAN"),
        ours=b"-ERR invalid cursor",
    ),
    Difference(
        what="a script that fails",
        redis="what it has written stays",
        anabranch="nothing of it stays; inside `MULTI` nothing of the whole transaction does (`EXECABORT`)",
        reason="A script is a transaction, and `MULTI` is one.",
        example=("MULTI", "EVAL redis.call('SET','key',1)error('no') 0", "EXEC"),
        commands=("EXEC",),
        ours=b"-EXECABORT Transaction discarded because of: ERR user_script:",
    ),
    Difference(
        what="`SELECT` of another number in a script",
        redis="changes the database until the script ends",
        anabranch="`CROSSKEYSPACE`",
        reason="A transaction has one keyspace.",
        example=("EVAL return(redis.call('SELECT',1)) 0",),
        commands=("EVAL",),
        ours=b"-CROSSKEYSPACE ",
    ),
    Difference(
        what="`redis.set_repl` of less than `REPL_ALL` in a script",
        redis="what the script writes then is not replicated",
        anabranch="the script fails",
        reason="A transaction is replicated as a whole.",
        example=("EVAL redis.set_repl(0) 0",),
        commands=("EVAL",),
        ours=b"-ERR this server replicates all that a script writes",
    ),
]

HEADER = """\
# Differences from Redis

What an application or a client library can notice when it is moved from Redis 7.0 to Anabranch, for the commands
that both have. Everything else is compared byte for byte: `tests/process/test_differential.py` sends the same random
command sequences to both servers. Each row is itself tested.

This page is made from `tests/process/differences.py`; change that file and run
`python tests/process/differences.py > docs/reference/differences.md`.

| what | Redis 7.0 | Anabranch | why |
|---|---|---|---|
"""


def render() -> str:
    """The page docs/reference/differences.md."""
    return HEADER + "".join(f"| {d.what} | {d.redis} | {d.anabranch} | {d.reason} |\n" for d in INTENDED)


if __name__ == "__main__":
    print(render(), end="")
