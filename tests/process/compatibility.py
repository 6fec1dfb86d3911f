"""Every command on data under every model: a call of each, what it finds, and how concurrent calls converge.

The source of docs/reference/compatibility.md: `test_compatibility.py` makes every call in keyspaces of all three models and
on redis-server, compares the replies and writes the page.
"""

# What is there before each call.
SETUP = """
    SET number 10
    SET text hello
    SET volatile x EX 1000
    SET bits abc
    HSET hash f 1 g two
    RPUSH list a b c a
    RPUSH numbers 3 1 2
    SADD set a b
    SADD other b c
    SADD single m
    ZADD zset 1 a 2 b 3 c
    ZADD ranks 10 b 20 d
    ZADD letters 0 a 0 b 0 c
    GEOADD places 13.361389 38.115556 Palermo 15.087269 37.502669 Catania
    PFADD visits a b c
    PFADD guests c d
    XADD stream 1-1 f a
    XADD stream 2-1 f b
    XGROUP CREATE stream group 0
    XREADGROUP GROUP group ann COUNT 1 STREAMS stream >
"""

# By command: calls, separated by semicolons. `-` for commands that Redis 7.0 lacks, which are only made here.
CALLS = {
    "Keys": """
        del: DEL text hash missing
        unlink: UNLINK text
        exists: EXISTS text text missing
        type: TYPE hash; TYPE missing
        keys: KEYS tex*
        scan: SCAN 0 MATCH tex* COUNT 1000
        randomkey: RANDOMKEY
        rename: RENAME text name; RENAME missing name
        renamenx: RENAMENX text name; RENAMENX text number
        copy: COPY text name; COPY text number; COPY text number REPLACE
        move: MOVE text 1
        swapdb: SWAPDB 0 1
        touch: TOUCH text missing
        object: OBJECT ENCODING number; OBJECT REFCOUNT text; OBJECT ENCODING hash
        sort: SORT numbers; SORT list ALPHA LIMIT 0 2 DESC; SORT numbers STORE sorted
        sort_ro: SORT_RO numbers DESC
        dump: DUMP missing
        restore: RESTORE name 0 "\\x00\\xc0\\n\\n\\x00n\\x9fWE\\x0e\\xaec\\xbb"; RESTORE name 0 x
        wait: WAIT 0 0
        waitaof: - WAITAOF 0 0 0
        expire: EXPIRE text 100; EXPIRE volatile 10 GT; EXPIRE missing 1
        pexpire: PEXPIRE text 100000
        expireat: EXPIREAT text 4000000000
        pexpireat: PEXPIREAT text 4000000000000
        ttl: TTL text; TTL volatile; TTL missing
        pttl: PTTL text
        expiretime: EXPIRETIME text
        pexpiretime: PEXPIRETIME text
        persist: PERSIST volatile; PERSIST text
        dbsize: DBSIZE
        flushdb: FLUSHDB
    """,
    "Strings": """
        get: GET text; GET hash
        set: SET text x; SET text x NX; SET text x XX GET; SET name x EX 100
        mget: MGET text number hash missing
        mset: MSET text a name b
        msetnx: MSETNX text a name b; MSETNX one a two b
        setnx: SETNX text x; SETNX name x
        setex: SETEX text 100 x
        psetex: PSETEX text 100000 x
        getset: GETSET text x
        getdel: GETDEL text
        getex: GETEX text EX 100; GETEX volatile PERSIST
        getrange: GETRANGE text 1 -2
        substr: SUBSTR text 0 1
        setrange: SETRANGE text 1 XX; SETRANGE name 2 x
        append: APPEND text x
        strlen: STRLEN text
        incr: INCR number; INCR text
        decr: DECR number
        incrby: INCRBY number 5
        decrby: DECRBY number 5
        incrbyfloat: INCRBYFLOAT number 0.1; INCRBYFLOAT text 1
        lcs: LCS text bits; LCS text text LEN; LCS text text IDX
    """,
    "Bits": """
        setbit: SETBIT bits 7 0
        getbit: GETBIT bits 1; GETBIT bits 1000
        bitcount: BITCOUNT bits; BITCOUNT bits 0 9 BIT
        bitpos: BITPOS bits 1; BITPOS bits 0 1 -1
        bitop: BITOP XOR name bits text; BITOP NOT name bits
        bitfield: BITFIELD bits GET u4 0 INCRBY u8 8 200 OVERFLOW SAT INCRBY u8 8 200
        bitfield_ro: BITFIELD_RO bits GET i8 0
    """,
    "HyperLogLog": """
        pfadd: PFADD visits d e; PFADD name
        pfcount: PFCOUNT visits guests; PFCOUNT visits
        pfmerge: PFMERGE all visits guests
    """,
    "Hashes": """
        hset: HSET hash f 2 h 3
        hsetnx: HSETNX hash f 2
        hmset: HMSET hash f 2
        hget: HGET hash f; HGET hash missing
        hmget: HMGET hash f missing
        hgetall: HGETALL missing; HGETALL hash
        hdel: HDEL hash f missing
        hexists: HEXISTS hash f
        hlen: HLEN hash
        hstrlen: HSTRLEN hash g
        hkeys: HKEYS hash
        hvals: HVALS hash
        hincrby: HINCRBY hash f 5; HINCRBY hash g 1
        hincrbyfloat: HINCRBYFLOAT hash f 0.5
        hrandfield: HRANDFIELD hash 0; HRANDFIELD missing
        hscan: HSCAN hash 0
    """,
    "Fields that expire": """
        hexpire: - HEXPIRE hash 100 FIELDS 2 f missing; HEXPIRE missing 100 FIELDS 1 f
        hpexpire: - HPEXPIRE hash 100000 NX FIELDS 1 f
        hexpireat: - HEXPIREAT hash 0 FIELDS 1 f
        hpexpireat: - HPEXPIREAT hash 9999999999999 LT FIELDS 1 f
        httl: - HTTL hash FIELDS 2 f missing
        hpttl: - HPTTL hash FIELDS 1 f
        hexpiretime: - HEXPIRETIME hash FIELDS 1 f
        hpexpiretime: - HPEXPIRETIME hash FIELDS 1 f
        hpersist: - HPERSIST hash FIELDS 2 f missing
        hgetex: - HGETEX hash EX 100 FIELDS 2 f missing; HGETEX hash FIELDS 1 f
        hgetdel: - HGETDEL hash FIELDS 2 f missing
        hsetex: - HSETEX hash EX 100 FIELDS 1 f 2; HSETEX hash FNX FIELDS 1 f 2
    """,
    "Lists": """
        lpush: LPUSH list x y
        rpush: RPUSH list x y
        lpushx: LPUSHX missing x; LPUSHX list x
        rpushx: RPUSHX list x
        lpop: LPOP list; LPOP list 2
        rpop: RPOP list
        llen: LLEN list
        lrange: LRANGE list 0 -1
        lindex: LINDEX list -1
        lset: LSET list 0 x; LSET list 100 x
        ltrim: LTRIM list 1 2
        lrem: LREM list 0 a
        linsert: LINSERT list BEFORE b x
        lmove: LMOVE list numbers LEFT RIGHT; LMOVE missing list LEFT LEFT
        rpoplpush: RPOPLPUSH list list
        lpos: LPOS list a RANK 2; LPOS list a COUNT 0
        lmpop: LMPOP 2 missing list LEFT COUNT 2
        blpop: BLPOP missing list 0; BLPOP missing 0.01
        brpop: BRPOP list numbers 0
        blmove: BLMOVE list numbers LEFT RIGHT 0; BLMOVE missing list LEFT LEFT 0.01
        brpoplpush: BRPOPLPUSH list list 0
        blmpop: BLMPOP 0 2 missing list LEFT COUNT 2; BLMPOP 0.01 1 missing LEFT
    """,
    "Sets": """
        sadd: SADD set c a
        srem: SREM set a missing
        sismember: SISMEMBER set a
        smismember: SMISMEMBER set a z
        smembers: SMEMBERS single
        scard: SCARD set
        spop: SPOP single
        srandmember: SRANDMEMBER single
        sinter: SINTER set other
        sunion: SUNION single missing
        sdiff: SDIFF set other
        sinterstore: SINTERSTORE name set other
        sunionstore: SUNIONSTORE name set other
        sdiffstore: SDIFFSTORE name set other
        sintercard: SINTERCARD 2 set other LIMIT 1
        smove: SMOVE set other a
        sscan: SSCAN single 0
    """,
    "Sorted sets": """
        zadd: ZADD zset 5 d 1 a; ZADD zset GT CH 0 a 9 b; ZADD zset INCR 2 a
        zrem: ZREM zset a missing
        zscore: ZSCORE zset a
        zmscore: ZMSCORE zset a missing
        zcard: ZCARD zset
        zcount: ZCOUNT zset (1 +inf
        zlexcount: ZLEXCOUNT letters [a (c
        zrank: ZRANK zset b
        zrevrank: ZREVRANK zset b
        zrange: ZRANGE zset 0 -1 WITHSCORES; ZRANGE zset (1 3 BYSCORE LIMIT 0 1
        zrevrange: ZREVRANGE zset 0 -1
        zrangebyscore: ZRANGEBYSCORE zset 1 2
        zrevrangebyscore: ZREVRANGEBYSCORE zset 2 1
        zrangebylex: ZRANGEBYLEX letters - [b
        zrevrangebylex: ZREVRANGEBYLEX letters + [b
        zincrby: ZINCRBY zset 1.5 a
        zpopmin: ZPOPMIN zset
        zpopmax: ZPOPMAX zset 2
        zmpop: ZMPOP 2 missing zset MIN
        bzpopmin: BZPOPMIN missing zset 0; BZPOPMIN missing 0.01
        bzpopmax: BZPOPMAX zset 0
        bzmpop: BZMPOP 0 2 missing zset MIN COUNT 2
        zremrangebyrank: ZREMRANGEBYRANK zset 0 0
        zremrangebyscore: ZREMRANGEBYSCORE zset 1 2
        zremrangebylex: ZREMRANGEBYLEX letters [a [b
        zrandmember: ZRANDMEMBER zset 0; ZRANDMEMBER missing
        zrangestore: ZRANGESTORE name zset 0 1
        zunion: ZUNION 2 zset ranks WITHSCORES
        zinter: ZINTER 2 zset ranks AGGREGATE MAX WITHSCORES
        zdiff: ZDIFF 2 zset ranks WITHSCORES
        zunionstore: ZUNIONSTORE name 2 zset set WEIGHTS 2 1
        zinterstore: ZINTERSTORE name 2 zset ranks
        zdiffstore: ZDIFFSTORE name 2 zset ranks
        zintercard: ZINTERCARD 2 zset ranks
        zscan: ZSCAN ranks 0
    """,
    "Streams": """
        xadd: XADD stream 3-1 f c; XADD stream 1-1 f c; XADD stream MAXLEN 1 4-* f c; XADD missing NOMKSTREAM 1 f c
        xlen: XLEN stream; XLEN missing
        xrange: XRANGE stream - +; XRANGE stream (1-1 3 COUNT 1
        xrevrange: XREVRANGE stream + -
        xdel: XDEL stream 1-1 9-9
        xtrim: XTRIM stream MAXLEN 1; XTRIM stream MINID 2-1
        xsetid: XSETID stream 5-0; XSETID stream 1-0
        xread: XREAD STREAMS stream 1-1; XREAD COUNT 1 STREAMS stream missing 0 0; XREAD STREAMS stream $
        xreadgroup: XREADGROUP GROUP group bob STREAMS stream >; XREADGROUP GROUP group ann STREAMS stream 0; XREADGROUP GROUP none ann STREAMS stream >
        xack: XACK stream group 1-1 2-1; XACK stream none 1-1
        xpending: XPENDING stream group; XPENDING stream group IDLE 100000 - + 10
        xclaim: XCLAIM stream group bob 0 1-1; XCLAIM stream group bob 100000 1-1; XCLAIM stream group bob 0 2-1 FORCE JUSTID
        xautoclaim: XAUTOCLAIM stream group bob 0 0; XAUTOCLAIM stream group bob 100000 0 JUSTID
        xgroup: XGROUP CREATE stream other $; XGROUP CREATE stream group 0; XGROUP SETID stream group 0; XGROUP CREATECONSUMER stream group cho; XGROUP DELCONSUMER stream group ann; XGROUP DESTROY stream group
        xinfo: XINFO STREAM stream; XINFO GROUPS stream; XINFO CONSUMERS stream none
    """,
    "Geo": """
        geoadd: GEOADD places 2.35 48.85 Paris
        geodist: GEODIST places Palermo Catania km
        geohash: GEOHASH places Palermo missing
        geopos: GEOPOS places Palermo missing
        geosearch: GEOSEARCH places FROMLONLAT 15 37 BYRADIUS 200 km ASC WITHDIST
        geosearchstore: GEOSEARCHSTORE name places FROMMEMBER Palermo BYBOX 400 400 km
        georadius: GEORADIUS places 15 37 200 km ASC
        georadius_ro: GEORADIUS_RO places 15 37 100 km
        georadiusbymember: GEORADIUSBYMEMBER places Palermo 200 km ASC
        georadiusbymember_ro: GEORADIUSBYMEMBER_RO places Palermo 10 km
    """,
    "Counters, summaries, tops, identifiers": """
        counter.add: - COUNTER.ADD c 5
        counter.incr: - COUNTER.INCR c
        counter.decr: - COUNTER.DECR c 2
        counter.take: - COUNTER.TAKE c 2
        counter.get: - COUNTER.GET c
        counter.atleast: - COUNTER.ATLEAST c 1
        summary.add: - SUMMARY.ADD m 1.5 2
        summary.get: - SUMMARY.GET m
        summary.count: - SUMMARY.COUNT m
        summary.sum: - SUMMARY.SUM m
        summary.mean: - SUMMARY.MEAN m
        summary.min: - SUMMARY.MIN m
        summary.max: - SUMMARY.MAX m
        top.add: - TOP.ADD t 3 a 4 b
        top.list: - TOP.LIST t
        top.range: - TOP.RANGE t 0 -1
        top.len: - TOP.LEN t
        top.rank: - TOP.RANK t a
        top.score: - TOP.SCORE t a
        top.capacity: - TOP.CAPACITY t
        top.reserve: - TOP.RESERVE t 2
        uid.next: - UID.NEXT u
    """,
}

# What becomes of a write in a causal keyspace while another region writes the same key (docs/internals/merging.md), and in a branch
# keyspace when two heads that both wrote it are merged (docs/internals/tardis.md).
RULES = {
    "last": (
        "the last write of a value stays, and `CONFLICTS` lists what it replaced; a deletion loses to a concurrent write",
        "the key is a conflict, unless both wrote the same",
    ),
    "sum": ("both count", "both count"),
    "increments": (
        "both count",
        "both count where both heads only incremented elements of this key; else an element that both changed is a conflict",
    ),
    "fields": (
        "by field: the last value stays, and `CONFLICTS` lists what it replaced; a removal loses to a concurrent write",
        "by field; a field that both wrote differently is a conflict",
    ),
    "members": ("by member: an addition wins over a removal; two may take the same member", "by member"),
    "scores": (
        "by member: the last score stays, and `CONFLICTS` lists what it replaced; a removal loses to a concurrent write",
        "by member; a member that both scored differently is a conflict",
    ),
    "list": (
        "what is pushed stays; what is removed goes once, and two may take the same element; the last `LSET` of a place stays",
        "what one side removed goes, what it inserted stays",
    ),
    "deadline": ("the last deadline stays", "the later deadline stays"),
    "append": ("both, in the order of their times", "the key is a conflict"),
    "stream": (
        "by entry: what was added stays, under ids that differ; a removal removes what it saw",
        "by entry; where both gave one id, the newer entry gets the next free one",
    ),
    "group": (
        "a group reads on behind the later place; what somebody acknowledged is; both consumers keep what both got",
        "a group reads on behind the later place; what somebody acknowledged is; both consumers keep what both got",
    ),
}
CONVERGES = {
    "last": """
        del unlink flushdb getdel rename renamenx copy move restore sort set mset msetnx setnx setex psetex getset
        bitop sinterstore sunionstore sdiffstore zunionstore zinterstore zdiffstore zrangestore geosearchstore
        georadius georadiusbymember top.reserve
    """,
    "sum": "incr decr incrby decrby counter.add counter.incr counter.decr counter.take summary.add top.add uid.next",
    "increments": "hincrby zincrby",
    "fields": "hset hsetnx hmset hdel hincrbyfloat hsetex hgetdel",
    "members": "sadd srem spop smove",
    "scores": "zadd zrem zpopmin zpopmax zmpop bzpopmin bzpopmax bzmpop zremrangebyrank zremrangebyscore zremrangebylex geoadd",
    "list": "lpush rpush lpushx rpushx lpop rpop lset ltrim lrem linsert lmove rpoplpush lmpop blpop brpop blmove brpoplpush blmpop",
    "stream": "xadd xdel xtrim xsetid",
    "group": "xreadgroup xack xclaim xautoclaim",
    "deadline": """
        expire pexpire expireat pexpireat persist getex hexpire hpexpire hexpireat hpexpireat hpersist hgetex
    """,
    "append": "append setrange incrbyfloat setbit bitfield pfadd pfmerge",
}
RULE_OF = {name: rule for rule, names in CONVERGES.items() for name in names.split()}

MODELS = ("strict", "causal", "branch")

HEADER = """\
# Commands under each model

`tests/process/test_compatibility.py` makes this page: it makes each call of
`tests/process/compatibility.py` in a keyspace of each model and on Redis, and compares the replies.
*exact*: the reply is that of Redis. *ours*: Redis 7.0 has no such command. *differs*: in a way that
is intended. *refused*: with this error. A rule in brackets says what comes of concurrent writes.

| rule | causal: two regions write at once | branch: two heads are merged |
|---|---|---|
"""


def calls() -> dict[str, tuple[str, list[str], bool]]:
    """By command: its family, its calls, and whether Redis has it."""
    found = {}
    for family, text in CALLS.items():
        for line in text.strip().splitlines():
            name, _, rest = line.strip().partition(": ")
            ours = rest.startswith("- ")
            found[name] = (family, [call.strip() for call in rest.removeprefix("- ").split("; ")], not ours)
    return found


def render(cells: dict[str, dict[str, str]]) -> str:
    """The page, from what each command was found to be under each model."""
    page = HEADER + "".join(f"| {name} | {causal} | {branch} |\n" for name, (causal, branch) in RULES.items())
    family = None
    for name, (of_family, _, _) in calls().items():
        if of_family != family:
            family = of_family
            page += f"\n## {family}\n\n| command | strict | causal | branch |\n|---|---|---|---|\n"
        rule = f" [{RULE_OF[name]}]" if name in RULE_OF else ""
        row = [cells[name][model] for model in MODELS]
        row = [cell if model == "strict" or cell.startswith("refused") else cell + rule for model, cell in zip(MODELS, row)]
        page += f"| `{name.upper()}` | {' | '.join(row)} |\n"
    return page
