"""Random command sequences from a seed: every command with its options, and everything that can be wrong with it.

A template is a line such as `SET <string> <value> {NX|XX|} {GET|}`: `<name>` is replaced by a random value of that
sort, `{a|b|}` by one of the alternatives, and `(...)+` stands one to three times.
"""

import random
import re
from dataclasses import dataclass

CONNECTIONS = 3

TEMPLATES = {
    "strings": """
        GET <string>
        SET <string> <value>
        SET <string> <value> {EX <seconds>|PX <millis>|EXAT <at>|PXAT <at-millis>|KEEPTTL|} {NX|XX|} {GET|}
        SET <string> <value> {NX|XX|GET|KEEPTTL} {NX|XX|GET|KEEPTTL|EX <seconds>}
        MGET <string>+
        MSET (<string> <value>)+
        SETNX <string> <value>
        SETEX <string> <seconds> <value>
        PSETEX <string> <millis> <value>
        GETSET <string> <value>
        GETDEL <string>
        APPEND <string> <value>
        STRLEN <string>
        INCR <string>
        DECR <string>
        INCRBY <string> <integer>
        DECRBY <string> <integer>
        INCRBYFLOAT <string> <float>
        GETEX <string> {EX <seconds>|PX <millis>|EXAT <at>|PXAT <at-millis>|PERSIST|}
        GETRANGE <string> <index> <index>
        SUBSTR <string> <index> <index>
        SETRANGE <string> <offset> <value>
        MSETNX (<string> <value>)+
        LCS <string> <string> {LEN|IDX|IDX WITHMATCHLEN|IDX MINMATCHLEN 2|LEN IDX|}
    """,
    "bits": """
        SETBIT <string> <offset> {0|1|1|2}
        GETBIT <string> <offset>
        BITCOUNT <string> {<index> <index>|<index> <index> BYTE|<index> <index> BIT|}
        BITPOS <string> {0|1} {<index>|<index> <index>|<index> <index> BIT|}
        BITOP {AND|OR|XOR} <string> <string>+
        BITOP NOT <string> <string>
        BITFIELD <string> {SET|INCRBY} <field> <offset> <integer> {GET <field> <offset>|}
        BITFIELD <string> OVERFLOW {WRAP|SAT|FAIL|NEVER} INCRBY <field> {<offset>|#1} <integer> SET <field> <offset> <integer>
        BITFIELD_RO <string> GET <field> <offset>
        SET <string> <value>
        GET <string>
        DEL <string>
    """,
    "hyperloglogs": """
        PFADD <hyperloglog> <member>+
        PFADD <hyperloglog> <value>+
        PFADD <hyperloglog>
        PFADD <string> <member>
        PFCOUNT <hyperloglog>+
        PFCOUNT <hyperloglog>+ <string>
        PFMERGE <hyperloglog> <hyperloglog>+
        DEL <hyperloglog>
    """,
    "keys": """
        DEL <key>+
        UNLINK <key>+
        EXISTS <key>+
        TYPE <key>
        KEYS <pattern>
        SCAN 0 {MATCH <pattern>|} {COUNT <count>|} {TYPE <type>|}
        RENAME <key> <key>
        RENAMENX <key> <key>
        COPY <key> <key> {REPLACE|DB 0|DB 0 REPLACE|DB 99|DB|}
        MOVE <key> {99|-1|abc}
        SWAPDB {0 0|0 99|abc 0|0 abc}
        TOUCH <key>+
        OBJECT FREQ <key>
        OBJECT {ENCODING|NONSENSE <key>}
        SORT <key> {DESC|ASC|} {LIMIT <index> <index>|}
        SORT <key> ALPHA {DESC|} {LIMIT <index> <index>|} STORE <list>
        SORT <list> BY nosort {DESC|} {LIMIT <index> <index>|} {GET #|}
        SORT <list> BY s* {DESC|} GET # GET s*
        SORT_RO <zset> BY nosort {DESC|} LIMIT <index> <index>
        SORT_RO <list> {STORE <key>|GET s*|BY}
        RESTORE <key> {0|<millis>} <payload> REPLACE
        RESTORE <key> {0|-1|abc} <payload> REPLACE {ABSTTL|IDLETIME <seconds>|FREQ <seconds>|NONSENSE}
        RESTORE <key> 0 <value> REPLACE
        WAIT 0 {0|-1|abc}
        EXPIRE <key> <seconds> {NX|XX|GT|LT|NX GT|XX LT|GT LT|}
        PEXPIRE <key> <millis> {NX|XX|GT|LT|}
        EXPIREAT <key> <at> {NX|XX|GT|LT|}
        PEXPIREAT <key> <at-millis> {NX|XX|GT|LT|}
        EXPIRE <key> {0|-1|-1000}
        TTL <key>
        PTTL <key>
        EXPIRETIME <key>
        PEXPIRETIME <key>
        PERSIST <key>
        DBSIZE
    """,
    "hashes": """
        HSET <hash> (<field> <value>)+
        HSETNX <hash> <field> <value>
        HMSET <hash> (<field> <value>)+
        HGET <hash> <field>
        HMGET <hash> <field>+
        HGETALL <hash>
        HDEL <hash> <field>+
        HEXISTS <hash> <field>
        HLEN <hash>
        HSTRLEN <hash> <field>
        HINCRBY <hash> <field> <integer>
        HINCRBYFLOAT <hash> <field> <float>
        HKEYS <hash>
        HVALS <hash>
        HSCAN <hash> {0|<count>} {MATCH <pattern>|} {COUNT <count>|}
        HRANDFIELD <hash> {<count>|-3|} {WITHVALUES|}
    """,
    "lists": """
        LPUSH <list> <value>+
        RPUSH <list> <value>+
        LPUSHX <list> <value>+
        RPUSHX <list> <value>+
        LPOP <list> {<count>|}
        RPOP <list> {<count>|}
        LRANGE <list> <index> <index>
        LRANGE <list> 0 -1
        LLEN <list>
        LINDEX <list> <index>
        LSET <list> <index> <value>
        LTRIM <list> <index> <index>
        LREM <list> <index> <value>
        LINSERT <list> {BEFORE|AFTER} <value> <value>
        LPOS <list> <value> {RANK <index>|} {COUNT <count>|} {MAXLEN <count>|}
        LMOVE <list> <list> {LEFT|RIGHT} {LEFT|RIGHT}
        RPOPLPUSH <list> <list>
        LMPOP {1|2|3} <list>+ {LEFT|RIGHT} {COUNT <count>|}
        {BLPOP|BRPOP} <list>+ 0.001
        BLMOVE <list> <list> {LEFT|RIGHT} {LEFT|RIGHT} 0.001
        BLMPOP 0.001 {1|2|3} <list>+ {LEFT|RIGHT} {COUNT <count>|}
    """,
    "sets": """
        SADD <set> <member>+
        SREM <set> <member>+
        SISMEMBER <set> <member>
        SMISMEMBER <set> <member>+
        SMEMBERS <set>
        SCARD <set>
        SPOP <set> {<count>|}
        SRANDMEMBER <set> {<count>|-3|}
        SINTER <set>+
        SUNION <set>+
        SDIFF <set>+
        SINTERCARD {1|2|3} <set>+ {LIMIT <count>|}
        SINTERSTORE <set> <set>+
        SUNIONSTORE <set> <set>+
        SDIFFSTORE <set> <set>+
        SMOVE <set> <set> <member>
        SSCAN <set> {0|<count>} {MATCH <pattern>|} {COUNT <count>|}
    """,
    "sorted sets": """
        ZADD <zset> (<score> <member>)+
        ZADD <zset> {NX|XX|} {GT|LT|} {CH|} {INCR|} <score> <member>
        ZADD <zset> {NX|XX|GT|LT|CH} {CH|} (<score> <member>)+
        ZREM <zset> <member>+
        ZSCORE <zset> <member>
        ZMSCORE <zset> <member>+
        ZINCRBY <zset> <score> <member>
        ZCARD <zset>
        ZRANK <zset> <member>
        ZREVRANK <zset> <member>
        ZRANGE <zset> <index> <index> {REV|} {WITHSCORES|}
        ZRANGE <zset> 0 -1 WITHSCORES
        ZRANGE <zset> <bound> <bound> BYSCORE {REV|} {LIMIT <index> <index>|} {WITHSCORES|}
        ZRANGE <zset> <lex> <lex> BYLEX {REV|} {LIMIT <index> <index>|}
        ZREVRANGE <zset> <index> <index> {WITHSCORES|}
        ZRANGEBYSCORE <zset> <bound> <bound> {WITHSCORES|} {LIMIT <index> <index>|}
        ZREVRANGEBYSCORE <zset> <bound> <bound> {WITHSCORES|} {LIMIT <index> <index>|}
        ZRANGEBYLEX <zset> <lex> <lex> {LIMIT <index> <index>|}
        ZREVRANGEBYLEX <zset> <lex> <lex> {LIMIT <index> <index>|}
        ZCOUNT <zset> <bound> <bound>
        ZLEXCOUNT <zset> <lex> <lex>
        ZREMRANGEBYSCORE <zset> <bound> <bound>
        ZREMRANGEBYRANK <zset> <index> <index>
        ZREMRANGEBYLEX <zset> <lex> <lex>
        ZPOPMIN <zset> {<count>|}
        ZPOPMAX <zset> {<count>|}
        ZREVRANK <zset> <member>
        ZRANDMEMBER <zset> {<count>|-3|} {WITHSCORES|}
        ZSCAN <zset> {0|<count>} {MATCH <pattern>|} {COUNT <count>|}
        ZMPOP {1 <zset>|2 <zset> <zset>|<count> <zset>+} {MIN|MAX} {COUNT <count>|}
        {BZPOPMIN|BZPOPMAX} <zset>+ 0.001
        ZRANGESTORE <zset> <zset> <index> <index> {REV|}
        ZRANGESTORE <zset> <zset> <bound> <bound> BYSCORE {REV|} {LIMIT <index> <index>|}
        ZUNION <sources> {AGGREGATE SUM|AGGREGATE MIN|AGGREGATE MAX|} {WITHSCORES|}
        ZINTER <sources> {AGGREGATE SUM|AGGREGATE MIN|AGGREGATE MAX|} {WITHSCORES|}
        ZDIFF <sources> {WITHSCORES|}
        ZUNION 2 <zset> <zset> WEIGHTS <weight> <weight> {AGGREGATE MIN|AGGREGATE MAX|} WITHSCORES
        ZINTER 2 <zset> <zset> WEIGHTS <weight> <weight> {AGGREGATE MIN|AGGREGATE MAX|} WITHSCORES
        ZINTERCARD <sources> {LIMIT <count>|}
        ZUNIONSTORE <zset> <sources> {AGGREGATE MIN|AGGREGATE MAX|}
        ZINTERSTORE <zset> 2 <zset> <zset> {WEIGHTS <weight> <weight>|}
        ZDIFFSTORE <zset> <sources>
    """,
    "geo": """
        GEOADD <geo> {NX|XX|} {CH|} (<longitude> <latitude> <member>)+
        GEOADD <geo> (<longitude> <latitude> <member>)+
        GEOADD <geo> (<longitude> <latitude> <member>)+
        GEODIST <geo> <member> <member> {<unit>|}
        GEOHASH <geo> <member>+
        GEOPOS <geo> <member>+
        GEOPOS <zset> <member>+
        GEOSEARCH <geo> <center> <shape> {ASC|DESC|} {COUNT <count>|COUNT <count> ANY|} {WITHCOORD|} {WITHDIST|} {WITHHASH|}
        GEOSEARCHSTORE <zset> <geo> <center> <shape> {ASC|DESC|} {COUNT <count>|} {STOREDIST|}
        GEORADIUS <geo> <longitude> <latitude> <size> <unit> {WITHDIST|} {COUNT <count>|} {ASC|DESC|} {STORE <zset>|STOREDIST <zset>|}
        GEORADIUS_RO <geo> <longitude> <latitude> <size> <unit> {WITHCOORD|} {ASC|DESC|} {STORE <zset>|}
        GEORADIUSBYMEMBER <geo> <member> <size> <unit> {WITHHASH|} {COUNT <count>|} {ASC|DESC|} {STORE <zset>|STOREDIST <zset>|}
        GEORADIUSBYMEMBER_RO <geo> <member> <size> <unit> {WITHDIST|} {ASC|DESC|}
        ZRANGE <geo> 0 -1 WITHSCORES
    """,
    "streams": """
        XADD <stream> <entry> (<field> <value>)+
        XADD <stream> <entry> <field> <value>
        XADD <stream> <entry> <field> <value>
        XADD <stream> {NOMKSTREAM|} {MAXLEN|MINID} {=|~|} <count> {LIMIT <count>|} <entry> <field> <value>
        XLEN <stream>
        XRANGE <stream> <from> <to> {COUNT <count>|}
        XRANGE <stream> - +
        XREVRANGE <stream> <to> <from> {COUNT <count>|}
        XDEL <stream> <entry>+
        XTRIM <stream> {MAXLEN|MINID} {=|~|} <count> {LIMIT <count>|}
        XREAD {COUNT <count>|} STREAMS <stream> <after>
        XREAD STREAMS <stream> <stream> <after> <after>
        XSETID <stream> <entry> {ENTRIESADDED <count>|} {MAXDELETEDID <entry>|}
        XGROUP CREATE <stream> <group> {$|0|<entry>} {MKSTREAM|} {ENTRIESREAD <count>|}
        XGROUP CREATE <stream> <group> 0 MKSTREAM
        XGROUP SETID <stream> <group> {$|0|<entry>} {ENTRIESREAD <count>|}
        XGROUP DESTROY <stream> <group>
        XGROUP CREATECONSUMER <stream> <group> <consumer>
        XGROUP DELCONSUMER <stream> <group> <consumer>
        XREADGROUP GROUP <group> <consumer> {COUNT <count>|} {NOACK|} STREAMS <stream> <new>
        XREADGROUP GROUP <group> <consumer> COUNT {1|2} STREAMS <stream> <new>
        XREADGROUP GROUP <group> <consumer> STREAMS <stream> <stream> <new> <new>
        XACK <stream> <group> <entry>+
        XPENDING <stream> <group>
        XPENDING <stream> <group> {IDLE {0|100000}|} <from> <to> <count> {<consumer>|}
        XCLAIM <stream> <group> <consumer> {0|0|100000|-1} <entry>+ {IDLE <millis>|TIME 5|} {RETRYCOUNT <count>|} {FORCE|} {JUSTID|} {LASTID <entry>|}
        XAUTOCLAIM <stream> <group> <consumer> {0|100000} <from> {COUNT <count>|} {JUSTID|}
        XINFO STREAM <stream> {FULL|FULL COUNT <count>|}
        XINFO GROUPS <stream>
        XINFO CONSUMERS <stream> <group>
    """,
    "transactions": """
        MULTI
        MULTI
        EXEC
        EXEC
        EXEC
        DISCARD
        WATCH <key>+
        WATCH <key>+
        UNWATCH
    """,
    "connection": """
        PING {<value>|}
        ECHO <value>
        SELECT {0|0|0|1|15|16|-1|abc}
        QUIT
        RESET
        HELLO {2|3|1|4|abc|} {AUTH default <value>|AUTH nobody <value>|SETNAME <name>|SETNAME|NONSENSE|}
        AUTH {default <value>|nobody <value>|<value>}
        CLIENT ID
        CLIENT SETNAME <name>
        CLIENT GETNAME
        CLIENT INFO
        CLIENT LIST {TYPE normal|TYPE pubsub|TYPE nonsense|ID 999999|ID abc|NONSENSE|}
        CLIENT KILL {ID <client>|ID 999999|ID 0|ID abc|TYPE nonsense|ADDR 1.2.3.4:5|1.2.3.4:5}
        CLIENT NONSENSE
    """,
    "scripting": """
        EVAL <script> 1 <key> <value>
        EVAL <script> 1 <string> <value>
        EVAL <script> 1 <list> <value>
        EVAL_RO <script> 1 <key> <value>
        EVALSHA <value> 0
        SCRIPT EXISTS <value>
    """,
    "server": """
        TIME
        INFO {server|memory|nonsense|}
        CONFIG GET {maxmemory|databases nonsense|nonsense|DATABASE?}
        COMMAND COUNT
        COMMAND DOCS {get|nonsense}
        COMMAND INFO {get|set nonsense|zadd client}
        FLUSHDB {ASYNC|SYNC|NONSENSE|}
        FLUSHALL {ASYNC|SYNC|NONSENSE|}
        NONSENSE <value>
    """,
}

# How often a family is chosen. A sequence prefers two of the first ones, so that it gets somewhere.
WEIGHTS = {"strings": 12, "bits": 6, "hyperloglogs": 3, "keys": 8, "hashes": 8, "lists": 8, "sets": 8, "sorted sets": 12, "geo": 8, "streams": 10}
ALWAYS = {"transactions": 8, "connection": 3, "server": 2, "scripting": 4}

# Where blocking commands have their timeouts.
TIMEOUTS = {b"BLPOP": -1, b"BRPOP": -1, b"BLMOVE": -1, b"BZPOPMIN": -1, b"BZPOPMAX": -1, b"BLMPOP": 1}

# What no command expects where it stands.
ODD = [b"", b"-1", b"0", b"-0", b"+1", b"01", b" 1", b"1 ", b"1.5", b"1e3", b"0x10", b"abc", b"inf", b"-inf", b"nan"]
ODD += [b"9223372036854775807", b"-9223372036854775808", b"9223372036854775808", b"1e400", b"\xff\x00\r\n", b"(", b"["]
ODD += [b"NX", b"GET", b"WITHSCORES", b"LIMIT", b"x" * 70, b"-9223372036854775809"]

VALUES = [b"", b"0", b"1", b"-1", b"10", b"5", b"007", b"3.5", b"a", b"b", b"c", b"\x00\xff\r\n", b"x" * 70]
VALUES += [b"9223372036854775807", b"-9223372036854775808"]
SCORES = [b"0", b"1", b"1", b"2", b"-1", b"1.5", b"-0", b"3.0", b"inf", b"-inf", b"1e3", b"0.1", b"1e-7", b"17976931348623157e292"]
BOUNDS = SCORES + [b"(1", b"(2", b"(-1", b"(inf", b"+inf", b"(-inf", b"-inf", b"+inf"]
LEX = [b"-", b"+", b"[a", b"(a", b"[b", b"(c", b"[", b"(", b"-", b"+", b"[e"]
# A string of 7.0, a list of 2.8, a string whose checksum is wrong.
PAYLOADS = [
    b"\x00\xc0\n\n\x00n\x9fWE\x0e\xaec\xbb",
    b"\n\x17\x17\x00\x00\x00\x12\x00\x00\x00\x03\x00\x00\xc0\x01\x00\x04\xc0\x02\x00\x04\xc0\x03\x00\xff"
    b"\x04\x00u#<\xc0;.\xe9\xdd",
    b"\x00\xc0\n\n\x00n\x9fWE\x0e\xaec\xbc",
]
PATTERNS = [b"*", b"s*", b"?1", b"[sh]1", b"[^s]*", b"s[0-2]", b"\\s1", b"", b"**1", b"[", b"z?", b"*\\"]
# They raise nothing: what becomes of the writes before that is a difference.
SCRIPTS = [
    b"return redis.pcall('INCRBY', KEYS[1], ARGV[1])",
    b"return redis.pcall('GET', KEYS[1])",
    b"return {redis.pcall('TYPE', KEYS[1]), redis.pcall('LLEN', KEYS[1]), redis.pcall('EXISTS', KEYS[1], ARGV[1])}",
    b"local v = redis.pcall('GET', KEYS[1]) if type(v) ~= 'string' then return v end "
    b"return redis.pcall('SET', KEYS[1], v .. tostring(ARGV[1]), 'KEEPTTL')",
    b"for i = 1, 100 do redis.pcall('RPUSH', KEYS[1], i / 2) end return redis.pcall('LRANGE', KEYS[1], -3, -1)",
    b"redis.pcall('SADD', KEYS[1], ARGV[1]) return redis.pcall('DEL', KEYS[1])",
    b"return redis.pcall('RENAME', KEYS[1], ARGV[1])",
    b"return redis.pcall('MULTI').err",
]


@dataclass(frozen=True)
class Step:
    """One command on one of the connections. A joined one is sent together with the one before it."""

    connection: int
    arguments: tuple[bytes, ...]
    joined: bool = False

    def __str__(self) -> str:
        words = " ".join(repr(word)[1:] for word in self.arguments)
        return f"connection {self.connection}: {'(joined) ' if self.joined else ''}{words}"


def generate(seed: int, length: int) -> list[Step]:
    """The sequence of this seed."""
    rng = random.Random(seed)
    weights = dict(ALWAYS)
    for family in rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=2):
        weights[family] = 60
    for family, weight in WEIGHTS.items():
        weights.setdefault(family, weight / 4)
    steps = []
    for connection in range(CONNECTIONS):
        if rng.random() < 0.4:
            steps.append(Step(connection, (b"HELLO", b"3")))
    connection = 0
    while len(steps) < length:
        changed = rng.random() < 0.25
        if changed:
            connection = rng.randrange(CONNECTIONS)
        family = rng.choices(list(weights), list(weights.values()))[0]
        arguments = spoil(rng, expand(rng, rng.choice(PARSED[family])))
        if waits(arguments):
            continue
        steps.append(Step(connection, tuple(arguments), not changed and rng.random() < 0.5))
    return steps


def spoil(rng: random.Random, arguments: list[bytes]) -> list[bytes]:
    """Most commands as they are; some with a word too few, too many or odd, or in another case."""
    luck = rng.random()
    place = rng.randrange(len(arguments))
    if luck < 0.02:
        del arguments[max(place, 1) :]
    elif luck < 0.04:
        arguments.insert(place + 1, rng.choice(ODD + VALUES))
    elif luck < 0.08 and place > 0:
        arguments[place] = rng.choice(ODD)
    elif luck < 0.12:
        arguments = [word.swapcase() if word.isalpha() and len(word) > 1 else word for word in arguments]
    return arguments


def waits(arguments: list[bytes]) -> bool:
    """True if it may wait for long, by a timeout that was spoilt."""
    place = TIMEOUTS.get(arguments[0].upper(), 0)
    return len(arguments) > 2 and place != 0 and arguments[place] not in (b"0.001", b"-1", b"abc", b"nan")


TOKEN = re.compile(r"<([\w-]+)>(\+)?|([{(|]|\}|\)\+)|([^\s{}()|<>]+)")


# Parts of templates that come in several.
SHORTHANDS = {
    "<sources>": "{1 <zset>|2 <zset> <zset>|2 <zset> <set>|3 <zset> <set> <zset>|<count> <zset>+}",
    "<center>": "{FROMMEMBER <member>|FROMLONLAT <longitude> <latitude>}",
    "<shape>": "{BYRADIUS <size> <unit>|BYBOX <size> <size> <unit>}",
}


def parse(template: str) -> list:
    """Nested lists: words, `("value", name)`, `("many", parts)` and `("either", [parts, ...])`."""
    for name, parts in SHORTHANDS.items():
        template = template.replace(name, parts)
    stack = [[]]
    for name, many, mark, word in TOKEN.findall(template):
        if name:
            value = ("value", name)
            stack[-1].append(("many", [value]) if many else value)
        elif word:
            stack[-1].append(word.encode())
        elif mark == "{":
            alternatives = [[]]
            stack[-1].append(("either", alternatives))
            stack += [alternatives, alternatives[-1]]
        elif mark == "|":
            stack.pop()
            stack[-1].append([])
            stack.append(stack[-1][-1])
        elif mark == "}":
            del stack[-2:]
        elif mark == "(":
            parts = []
            stack[-1].append(("many", parts))
            stack.append(parts)
        else:
            stack.pop()
    return stack[0]


def expand(rng: random.Random, parts: list) -> list[bytes]:
    words = []
    for part in parts:
        if isinstance(part, bytes):
            words.append(part)
        elif part[0] == "either":
            words += expand(rng, rng.choice(part[1]))
        elif part[0] == "many":
            for _ in range(rng.choice([1, 1, 1, 2, 2, 3])):
                words += expand(rng, part[1])
        else:
            words.append(value(rng, part[1]))
    return words


# Nothing else reads the keys of HyperLogLogs: Redis keeps their counts in them, and Anabranch does not.
KEY_LETTERS = {"string": "s", "hash": "h", "list": "l", "set": "e", "zset": "z", "geo": "g", "stream": "x", "hyperloglog": "p"}


def value(rng: random.Random, sort: str) -> bytes:
    """A random value of this sort."""
    if sort in KEY_LETTERS:
        stray = sort != "hyperloglog" and rng.random() >= 0.93
        letter = rng.choice("shlezx") if stray else KEY_LETTERS[sort]
        return f"{letter}{rng.randrange(3)}".encode()
    if sort == "key":
        return f"{rng.choice('shlezgx')}{rng.randrange(3)}".encode()
    if sort in ("field", "member"):
        return rng.choice([b"a", b"b", b"c", b"d", b"1", b"2", b"-3", b"", b"f\xff"])
    # No two points are at the same distance from a third.
    if sort in ("longitude", "latitude"):
        most = rng.choice([180, 10] if sort == "longitude" else [85, 10])
        return f"{rng.uniform(-most, most):.6f}".encode()
    # Deadlines are far away and hardly ever equal, so that no reply depends on the moment.
    if sort in ("seconds", "millis"):
        return str(rng.randrange(10**4, 10**6) * (1 if sort == "seconds" else 1000)).encode()
    if sort in ("at", "at-millis"):
        return str(rng.randrange(4 * 10**9, 9 * 10**9) * (1 if sort == "at" else 1000)).encode()
    if sort == "client":
        return b"{client %d}" % rng.randrange(CONNECTIONS)
    return rng.choice(CHOICES[sort])


CHOICES = {
    "value": VALUES,
    "score": SCORES,
    "bound": BOUNDS,
    "lex": LEX,
    # None that makes minus zero of a score: see the table of differences.
    "weight": [b"1", b"2", b"0.5", b"3.0", b"1e3", b"inf", b"abc"],
    "unit": [b"m", b"km", b"ft", b"mi", b"KM", b"yd"],
    "size": [b"0", b"1", b"500", b"2000", b"1000000", b"5000000", b"25000", b"-1", b"1e3", b"inf"],
    "pattern": PATTERNS,
    "integer": [b"1", b"-1", b"10", b"0", b"9223372036854775807", b"-9223372036854775808", b"1.5", b"abc"],
    "index": [b"0", b"1", b"2", b"-1", b"-2", b"5", b"-100", b"100"],
    "float": [b"1.5", b"-0.1", b"3", b"1e3", b"3.0e-3", b"5e-18", b"1e20", b"0x1p-2", b"inf", b"nan", b"abc"],
    "offset": [b"0", b"1", b"7", b"8", b"13", b"100", b"-1", b"4294967296"],
    "field": [b"u8", b"i8", b"i5", b"u1", b"u63", b"i64", b"u64", b"i0", b"x3"],
    "count": [b"0", b"1", b"2", b"3", b"100", b"-1"],
    "script": SCRIPTS,
    "payload": PAYLOADS,
    "type": [b"string", b"hash", b"zset", b"list", b"set", b"stream", b"nonsense"],
    # None that takes the time: those differ.
    "entry": [b"1-1", b"1-2", b"1-*", b"2-1", b"2-2", b"2-*", b"3-1", b"3-*", b"4-1", b"5", b"6-*", b"7-1", b"8-*", b"0-0", b"1-x"],
    "after": [b"0", b"0-0", b"1-1", b"2-1", b"3", b"$", b"5-1"],
    "new": [b">", b">", b">", b">", b"0", b"1-1", b"2", b"$"],
    "from": [b"-", b"-", b"-", b"0", b"1-1", b"(1-1", b"2", b"(2-1", b"("],
    "to": [b"+", b"+", b"+", b"9", b"2-1", b"(2-1", b"3", b"(0-0", b"(5"],
    "group": [b"g", b"g", b"g", b"h"],
    "consumer": [b"ann", b"bob", b"cho"],
    "name": [b"me", b"a:b", b"", b"two words", b"\xff"],
}

PARSED = {
    family: [parse(line) for line in text.splitlines() if line.strip()] for family, text in TEMPLATES.items()
}
