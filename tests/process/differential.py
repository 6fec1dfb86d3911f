"""Plays one sequence of commands on two servers and compares every reply.

Replies are compared byte for byte, except where Redis itself promises less: unordered collections, random choices,
times, numbers of clients, texts about the process. `agrees` says what must agree there; `_random` and `_scan` see
to the commands whose replies are right in many ways.
"""

from dataclasses import dataclass, field

from differences import INTENDED
from resp import Raw, Reply, encode
from sequences import CONNECTIONS, Step

UNORDERED = {b"SMEMBERS", b"SUNION", b"SINTER", b"SDIFF", b"HKEYS", b"HVALS", b"KEYS"}
# Visits piece by piece, and which argument is the cursor.
SCANS = {b"SCAN": 1, b"HSCAN": 2, b"SSCAN": 2, b"ZSCAN": 2}
# Random choices, and what lists what they may choose.
LISTINGS = {
    b"SPOP": (b"SMEMBERS",),
    b"SRANDMEMBER": (b"SMEMBERS",),
    b"HRANDFIELD": (b"HKEYS",),
    b"ZRANDMEMBER": (b"ZRANGE", b"0", b"-1"),
}
UNORDERED_PAIRS = {b"HGETALL", b"CONFIG"}
# What these say belongs to the server that says it; only the kind of reply must agree.
OWN_TEXTS = {b"TIME", b"INFO", b"CLIENT", b"COMMAND"}
LEXICAL = {b"ZRANGEBYLEX", b"ZREVRANGEBYLEX", b"ZREMRANGEBYLEX", b"ZLEXCOUNT"}
# A deadline is set at slightly different moments on the two servers; in the unit of the command.
TIME_TOLERANCE = {b"TTL": 2, b"EXPIRETIME": 2, b"PTTL": 2000, b"PEXPIRETIME": 2000}
# What 7.0 has not: refused before it is queued, which ends the transaction.
NEWER = {b"ZRANK": 3, b"ZREVRANK": 3}
# What they refuse on purpose, while Redis writes (see the table of differences).
REFUSALS = {
    b"XSETID": b"-ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
    b"PFADD": b"-INVALIDOBJ ",
    b"GEORADIUSBYMEMBER": (b"-ERR need numeric radius", b"-ERR radius cannot be", b"-ERR unsupported unit"),
}
# They tell how long ago something was, or when.
TIMED = {b"XPENDING", b"XINFO"}
CLOSED = Reply(b"closed", b"", None, b"(closed)")


class Mismatch(Exception):
    """The servers disagree; the text shows both replies."""


@dataclass
class Connection:
    """The same client on both servers."""

    ours: Raw
    theirs: Raw
    ids: tuple[bytes, bytes]
    # What was answered with QUEUED since MULTI; `None` outside.
    queued: list | None = None
    watches: bool = False


class LeftOut:
    """Which steps are not played: none. Those of `names` are asked about, given whether they would be part of MULTI, and
    whether some connection watches keys."""

    names = frozenset()

    def __call__(self, step: Step, in_transaction: bool, watched: bool) -> bool:
        return False


@dataclass
class Play:
    """The state of one comparison."""

    servers: tuple
    left_out: "LeftOut" = field(default_factory=lambda: LeftOut())
    connections: list[Connection] = field(default_factory=list)
    compared: int = 0

    def __enter__(self):
        for server in self.servers:
            with server.raw() as raw:
                raw.call("FLUSHALL")
        self.connections = [self._connect() for _ in range(CONNECTIONS)]
        return self

    def __exit__(self, *_):
        for connection in self.connections:
            connection.ours.close()
            connection.theirs.close()

    def _connect(self) -> Connection:
        ours, theirs = (server.raw() for server in self.servers)
        return Connection(ours, theirs, (ours.call("CLIENT", "ID").text, theirs.call("CLIENT", "ID").text))

    def run(self, steps: list[Step]) -> None:
        """Plays all steps; raises `Mismatch` at the first disagreement."""
        batch = []
        for step in steps:
            handling = special(step)
            alone = handling or step.arguments[0].upper() in self.left_out.names
            if batch and (alone or not step.joined or step.connection != batch[-1].connection):
                self._flush(batch)
                batch = []
            if alone:
                self._alone(step, handling)
            else:
                batch.append(step)
        self._flush(batch)

    def _flush(self, batch: list[Step]) -> None:
        if not batch:
            return
        connection = self.connections[batch[0].connection]
        for raw in (connection.ours, connection.theirs):
            send(raw, [step.arguments for step in batch])
        for step in batch:
            if not self._compare(connection, step.arguments, step):
                self.connections[step.connection] = self._connect()
                return

    def _compare(self, connection: Connection, arguments: tuple, step: Step) -> bool:
        """Reads and compares one reply; false if both servers closed the connection instead."""
        try:
            ours, theirs = read_or_closed(connection.ours), read_or_closed(connection.theirs)
        except TimeoutError as error:
            raise AssertionError(f"no reply to {step}") from error
        self.compared += 1
        name = arguments[0].upper()
        queued = connection.queued
        if name == b"EXEC" and queued is not None and ours.items is not None and theirs.items is not None:
            agree = len(ours.items) == len(theirs.items) == len(queued) and ours.raw[:1] == theirs.raw[:1]
            agree = agree and all(map(agrees, queued, ours.items, theirs.items))
        else:
            agree = agrees(arguments, ours, theirs)
        if not agree:
            raise Mismatch(disagreement(step, ours, theirs))
        self._follow(connection, name, arguments, theirs)
        return ours is not CLOSED

    def _follow(self, connection: Connection, name: bytes, arguments: tuple, reply: Reply) -> None:
        """Remembers what the replies say about the state of the connection."""
        if reply.raw == b"+QUEUED\r\n" and connection.queued is not None:
            connection.queued.append(arguments)
        elif name in (b"EXEC", b"DISCARD", b"RESET") and (not reply.is_error or reply.text.startswith(b"EXECABORT")):
            connection.queued, connection.watches = None, False
        elif name == b"MULTI" and not reply.is_error:
            connection.queued = []
        elif name == b"WATCH" and not reply.is_error:
            connection.watches = True
        elif name == b"UNWATCH" and connection.queued is None:
            connection.watches = False

    def _alone(self, step: Step, handling: str | None) -> None:
        """A command that needs care: it chooses at random, answers piece by piece, names a client or is left out."""
        connection = self.connections[step.connection]
        in_transaction = connection.queued is not None
        if self.left_out(step, in_transaction, any(other.watches for other in self.connections)):
            return
        if handling == "keyspace" and (in_transaction or connection.watches):
            return
        if in_transaction and handling in ("random", "lexical", "unsorted", "hello", "newer", "strict"):
            return
        if handling == "lexical" and has_several_scores(connection.ours, step.arguments):
            return
        if handling == "unsorted" and ask(connection.ours, b"TYPE", *step.arguments[1:2]).text == b"set":
            return
        if handling == "client":
            # Each server has its own numbers of clients.
            target = self.connections[int(step.arguments[-1].split()[1][:-1])]
            words = [step.arguments[:-1] + (client,) for client in target.ids]
        else:
            words = [step.arguments] * 2
        if handling in ("random", "strict") or (handling == "scan" and not in_transaction):
            alive = getattr(self, f"_{handling}")(step, connection)
        else:
            send(connection.ours, [words[0]])
            send(connection.theirs, [words[1]])
            alive = self._compare(connection, step.arguments, step)
        if not alive:
            self.connections[step.connection] = self._connect()

    def _random(self, step: Step, connection: Connection) -> bool:
        """SPOP and what only reads at random: equally many members; what SPOP leaves is made equal again."""
        pair = (connection.ours, connection.theirs)
        key = step.arguments[1] if len(step.arguments) > 1 else b""
        listing, *place = LISTINGS[step.arguments[0].upper()]
        before = [ask(raw, listing, key, *place) for raw in pair]
        replies = [ask(raw, *step.arguments) for raw in pair]
        self.compared += 1
        ours, theirs = replies
        if before[0].items is None or ours.is_error or ours.is_null or ours.raw == theirs.raw:
            if not agrees(step.arguments, ours, theirs):
                raise Mismatch(disagreement(step, ours, theirs))
            return ours is not CLOSED
        with_values = len(step.arguments) > 3
        chosen = [chosen_names(reply, with_values) for reply in replies]
        members, removes = set(before[0].texts()), step.arguments[0].upper() == b"SPOP"
        distinct = removes or not (len(step.arguments) > 2 and step.arguments[2].startswith(b"-"))
        plausible = ours.kind == theirs.kind and len(chosen[0]) == len(chosen[1]) and members.issuperset(chosen[0])
        if not plausible or (distinct and len(set(chosen[0])) < len(chosen[0])):
            raise Mismatch(disagreement(step, ours, theirs) + f"\n  of the members {sorted(members)}")
        if removes:
            self._equalize(step, connection, key, members - set(chosen[0]))
        return True

    def _equalize(self, step: Step, connection: Connection, key: bytes, expected: set[bytes]) -> None:
        """Checks what an SPOP of ours left, and gives Redis the same set."""
        left, other = (set(ask(raw, b"SMEMBERS", key).texts()) for raw in (connection.ours, connection.theirs))
        if left != expected:
            raise Mismatch(f"{step}\n  anabranch left {sorted(left)}\n  it should be  {sorted(expected)}")
        # First what is missing: a set that becomes empty in between would lose its deadline.
        for name, members in ((b"SADD", left - other), (b"SREM", other - left)):
            if members:
                ask(connection.theirs, name, key, *sorted(members))

    def _strict(self, step: Step, connection: Connection) -> bool:
        """What ours may refuse and Redis not: then Redis is not asked, so that both have the same data."""
        ours = ask(connection.ours, *step.arguments)
        self.compared += 1
        if ours.raw.startswith(REFUSALS[step.arguments[0].upper()]):
            return True
        theirs = ask(connection.theirs, *step.arguments)
        if not agrees(step.arguments, ours, theirs):
            raise Mismatch(disagreement(step, ours, theirs))
        return ours is not CLOSED

    def _scan(self, step: Step, connection: Connection) -> bool:
        """SCAN and its like: whatever the pieces, both visit the same keys or elements."""
        pair = (connection.ours, connection.theirs)
        ours, theirs = (ask(raw, *step.arguments) for raw in pair)
        self.compared += 1
        if ours.is_error or theirs.is_error or ours is CLOSED or theirs is CLOSED:
            if not agrees(step.arguments, ours, theirs):
                raise Mismatch(disagreement(step, ours, theirs))
            return ours is not CLOSED
        if step.arguments[SCANS[step.arguments[0].upper()]] == b"0":
            visited = [visit_all(raw, reply, step.arguments) for raw, reply in zip(pair, (ours, theirs))]
            if visited[0] != visited[1]:
                raise Mismatch(f"{step}\n  anabranch visits {visited[0]}\n  redis visits     {visited[1]}")
        return True


def visit_all(raw: Raw, reply: Reply, arguments: tuple) -> list[bytes]:
    """All that a SCAN or the like visits from its first reply on: keys, members, fields with their values."""
    keys, place = set(), SCANS[arguments[0].upper()]
    for _ in range(10_000):
        cursor, piece = reply.items
        keys.update(elements(arguments, piece))
        if cursor.text == b"0":
            return sorted(keys)
        reply = ask(raw, *arguments[:place], cursor.text, *arguments[place + 1 :])
    raise Mismatch(f"{arguments} does not end")


def elements(arguments: tuple, piece: Reply) -> list:
    return pairs(piece) if arguments[0].upper() in (b"HSCAN", b"ZSCAN") else raws(piece)


def chosen_names(reply: Reply, with_values: bool) -> list[bytes]:
    """The members or fields that a reply names, without the values beside them."""
    if reply.items is None:
        return [reply.text]
    if any(item.items is not None for item in reply.items):
        return [item.items[0].text for item in reply.items]
    return reply.texts()[::2] if with_values else reply.texts()


def special(step: Step) -> str | None:
    """How a command that needs care is handled, or nothing for most."""
    name = step.arguments[0].upper()
    if step.arguments[-1].startswith(b"{client "):
        return "client"
    if name in LISTINGS:
        return "random"
    if len(step.arguments) > SCANS.get(name, len(step.arguments)):
        return "scan"
    if len(step.arguments) > NEWER.get(name, len(step.arguments)):
        return "newer"
    if may_write(step.arguments):
        return "strict"
    if name == b"HELLO":
        return "hello"
    if name in LEXICAL or b"BYLEX" in (word.upper() for word in step.arguments[1:]):
        return "lexical"
    if name in (b"SORT", b"SORT_RO") and b"nosort" in (word.lower() for word in step.arguments[1:]):
        return "unsorted"
    # A transaction of ours has one keyspace: see the table of differences.
    return "keyspace" if name in (b"SELECT", b"FLUSHALL") else None


def may_write(arguments: tuple) -> bool:
    """Whether Redis may write what ours refuses. The keys of HyperLogLogs are never damaged."""
    name, words = arguments[0].upper(), {word.upper() for word in arguments[1:]}
    if name == b"GEORADIUSBYMEMBER":
        return not words.isdisjoint((b"STORE", b"STOREDIST"))
    return name in REFUSALS and not (name == b"PFADD" and b"".join(arguments[1:2]).startswith(b"p"))


def has_several_scores(raw: Raw, arguments: tuple) -> bool:
    """Whether the order of names means nothing: Redis leaves open what it then replies."""
    reply = ask(raw, b"ZRANGE", arguments[1] if len(arguments) > 1 else b"", b"0", b"-1", b"WITHSCORES")
    if not reply.items:
        return False
    scores = [item.items[1].raw for item in reply.items] if reply.items[0].items else reply.texts()[1::2]
    return len(set(scores)) > 1


def agrees(arguments: tuple, ours: Reply, theirs: Reply) -> bool:
    """True if ours is a reply that Redis could have given here, or if the difference is intended."""
    if ours.raw == theirs.raw:
        return True
    name = arguments[0].upper()
    if ours.is_error or theirs.is_error or CLOSED in (ours, theirs):
        return any(difference.covers(arguments, ours.raw, theirs.raw) for difference in INTENDED)
    same_kind = ours.kind == theirs.kind
    if name in UNORDERED:
        return same_kind and sorted(raws(ours)) == sorted(raws(theirs))
    if name in SCANS and same_kind:
        return agree_on_scan(arguments, ours, theirs)
    if name in UNORDERED_PAIRS:
        return same_kind and sorted(pairs(ours)) == sorted(pairs(theirs))
    if name in TIME_TOLERANCE and same_kind and int(ours.text) > 0 and int(theirs.text) > 0:
        return abs(int(ours.text) - int(theirs.text)) <= TIME_TOLERANCE[name]
    if name in TIMED:
        return near(ours, theirs)
    if name == b"HELLO":
        return same_kind and without_id(ours) == without_id(theirs)
    if name in OWN_TEXTS and same_kind:
        return True
    return any(difference.covers(arguments, ours.raw, theirs.raw) for difference in INTENDED)


def agree_on_scan(arguments: tuple, ours: Reply, theirs: Reply) -> bool:
    """In a transaction: the same keys where both visit all of them at once, else another piece each."""
    (our_next, our_keys), (their_next, their_keys) = ours.items, theirs.items
    cursor = arguments[SCANS[arguments[0].upper()]]
    if (cursor, our_next.text, their_next.text) != (b"0", b"0", b"0"):
        return our_keys.kind == their_keys.kind
    return sorted(set(elements(arguments, our_keys))) == sorted(set(elements(arguments, their_keys)))


def near(ours: Reply, theirs: Reply) -> bool:
    """Equal but for times, which may be two seconds apart."""
    if ours.items is None or theirs.items is None:
        is_number = ours.kind == theirs.kind == b":"
        return ours.raw == theirs.raw or (is_number and abs(int(ours.text) - int(theirs.text)) <= 2000)
    return ours.kind == theirs.kind and len(ours.items) == len(theirs.items) and all(map(near, ours.items, theirs.items))


def raws(reply: Reply) -> list[bytes]:
    return [item.raw for item in reply.items]


def pairs(reply: Reply) -> list[tuple]:
    return list(zip(raws(reply)[::2], raws(reply)[1::2]))


def without_id(greeting: Reply) -> list[tuple]:
    return [pair for pair in pairs(greeting) if pair[0] != b"$2\r\nid\r\n"]


def disagreement(step: Step, ours: Reply, theirs: Reply) -> str:
    return f"{step}\n  anabranch: {ours}\n  redis:     {theirs}"


def send(raw: Raw, commands: list[tuple]) -> None:
    """Sends commands; if the server has closed, reading will tell."""
    try:
        raw.send(b"".join(encode(words) for words in commands))
    except ConnectionError:
        pass


def ask(raw: Raw, *words) -> Reply:
    send(raw, [words])
    return read_or_closed(raw)


def read_or_closed(raw: Raw) -> Reply:
    try:
        return raw.read()
    except (EOFError, ConnectionError):
        return CLOSED


def find_mismatch(servers: tuple, steps: list[Step], **options) -> Mismatch | None:
    """Plays the steps on emptied servers; returns the first disagreement."""
    with Play(servers, **options) as play:
        try:
            play.run(steps)
        except Mismatch as mismatch:
            return mismatch
    return None


def shrink(steps: list[Step], fails, attempts: int = 400) -> list[Step]:
    """Deletes steps, many at a time at first, as long as `fails(steps)` holds."""
    size = len(steps) // 2
    while size >= 1 and attempts > 0:
        start = 0
        while start < len(steps) and attempts > 0:
            candidate = steps[:start] + steps[start + size :]
            attempts -= 1
            if candidate and fails(candidate):
                steps = candidate
            else:
                start += size
        size //= 2
    return steps
