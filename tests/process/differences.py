"""Where Anabranch answers otherwise than Redis 7.0 on purpose, and why.

The table is the source of docs/differences.md: `python tests/process/differences.py > docs/differences.md`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """One intended difference. The last command of `example` shows it."""

    what: str
    redis: str
    anabranch: str
    reason: str
    example: tuple[str, ...]
    # The names of the commands whose replies it explains, and how ours begins there.
    commands: tuple[str, ...]
    ours: bytes | tuple[bytes, ...]

    def covers(self, arguments: tuple, ours: bytes, theirs: bytes) -> bool:
        """True if this explains why the replies to a command are not the same."""
        named = arguments[0].upper().decode("latin-1") in self.commands
        return named and ours != theirs and ours.startswith(self.ours)


INTENDED = [
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
        what="`CLIENT SETINFO`",
        redis="unknown in 7.0, there since 7.2",
        anabranch="as in 7.2",
        reason="Current client libraries introduce themselves with it.",
        example=("CLIENT SETINFO LIB-NAME mine",),
        commands=("CLIENT",),
        ours=b"+OK",
    ),
    Difference(
        what="several errors in one command",
        redis="`LINDEX` and `LSET` look at the key first",
        anabranch="the arguments are checked before any key is looked at",
        reason="A command becomes an operation before the keyspace is asked.",
        example=("LINDEX missing first",),
        commands=("LINDEX", "LSET"),
        ours=b"-ERR value is not an integer or out of range",
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
    Difference(
        what="errors that quote bytes of the client",
        redis="end the quotation at a NUL byte",
        anabranch="quote all, with replacement characters for what is no UTF-8",
        reason="Error messages are text.",
        example=("NONSENSE a\0b",),
        commands=("NONSENSE", "CLIENT", "CONFIG", "COMMAND", "SCRIPT", "HELLO", "EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT"),
        ours=(b"-ERR unknown ", b"-ERR Unsupported option ", b"-ERR Syntax error in HELLO option ", b"-ERR No such user "),
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
        what="`SCAN` with a cursor that no `SCAN` replied, such as nothing or `-1`",
        redis="takes it as some number",
        anabranch="`ERR invalid cursor`",
        reason="A mistake should not look like an end of the iteration.",
        example=("SCAN -1",),
        commands=("SCAN",),
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
command sequences to both servers. Each row is itself tested: its example shows the difference.

This page is made from `tests/process/differences.py`; change that file and run
`python tests/process/differences.py > docs/differences.md`.

| what | Redis 7.0 | Anabranch | why |
|---|---|---|---|
"""


def render() -> str:
    """The page docs/differences.md."""
    return HEADER + "".join(f"| {d.what} | {d.redis} | {d.anabranch} | {d.reason} |\n" for d in INTENDED)


if __name__ == "__main__":
    print(render(), end="")
