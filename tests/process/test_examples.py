"""The examples of the users' pages are run, page by page, against real servers.

A fenced block is one of these, or stands below a comment that says why it is not run: `<!-- not run: why -->`.

- Lines of shell: `anabranch ...` and `cargo run --release -- ...`; a server or a cluster stays for the rest of its page.
- Typed lines: `7600> GET key` with the reply as redis-cli prints it below (`...` for anything), `7600b> ` for a second
  client, `$ heal` for the cluster. Without a reply, any but an error will do; a remark `# replies ...` names numbers and
  texts of the reply.
- Commands alone, each in capitals.
- ```console: shell, with what it prints. ```toml: a configuration. ```lua: a handler. ```python: see test_porting.py.
- ```text: a diagram, which is not run, unless it begins as one of these.
"""

import json
import os
import re
import shlex
import subprocess
import time
from pathlib import Path

import pytest

import test_porting
from cluster import Cluster
from harness import Anabranch, product, wait_until
from resp import Raw, Reply

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "consistency").glob("*.md")),
    *sorted((ROOT / "docs" / "operations").glob("*.md")),
    ROOT / "docs" / "internals" / "cops.md",
    ROOT / "docs" / "internals" / "pocc.md",
    ROOT / "docs" / "reference" / "configuration.md",
]
BLOCK = re.compile(r"(?:^ *<!-- not run: (?P<why>.+?) -->\n\n?)?^ *```(?P<kind>\w*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
TYPED = re.compile(r"^(?:127\.0\.0\.1:)?(\d+)([a-z]?)> (.*)$")
SERVER = re.compile(r"^(?:cargo run --release(?: --)?|anabranch)(?= |$)")
# Commands that see what other clients and regions did, only a little later.
READS = ("GET", "MGET", "CONFLICTS", "KEYSPACE")
SECONDS_TO_SEE = 20.0


# A state of a branch keyspace; in a command that is typed it stands for one that the reply before names.
STATE = re.compile(r"\d+@\d+\.\d+")
# A session's token, which a page shortens where it is typed.
TOKEN = re.compile(r"\b[0-9a-f]{16,}\b")
SHORT_TOKEN = re.compile(r"\b[0-9a-f]{4}\.\.\.")


class Block:
    """An example: what it says it is, and its lines."""

    def __init__(self, page: Path, match: re.Match):
        self.kind, self.why = match["kind"], match["why"]
        self.lines = match["text"].splitlines()
        self.place = f"{page.relative_to(ROOT)}:{page.read_text().count(chr(10), 0, match.start('text')) + 1}"


def blocks(page: Path) -> list[Block]:
    return [Block(page, match) for match in BLOCK.finditer(page.read_text())]


class Documented(Anabranch):
    """A server with the options of a page, but its port and its data."""

    def __init__(self, options: list[str]):
        super().__init__()
        self.options = options

    def _command(self) -> list[str]:
        where = [] if "--memory" in self.options else ["--data", str(self.data)]
        return [product(), "serve", *self.options, "--listen", "127.0.0.1:0", *where, "--json"]


class Stage:
    """The servers and clients of a page."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.servers, self.ports, self.clients = [], {}, {}
        self.cluster = None
        # The states that a reply has named last, and the tokens.
        self.states: list[str] = []
        self.tokens: list[str] = []

    def close(self) -> None:
        for client in self.clients.values():
            client.close()
        for server in self.servers:
            server.close()

    def port(self, documented: int) -> int:
        """The port of the server that the page means; one is started where the page starts none."""
        if documented not in self.ports:
            self.serve([], documented)
        return self.ports[documented]

    def client(self, documented: int = 6379, which: str = "") -> Raw:
        name = (documented, which)
        if name not in self.clients:
            self.clients[name] = Raw(self.port(documented))
        return self.clients[name]

    def serve(self, arguments: list[str], documented: int) -> None:
        """Starts a server with the options of the page; files that they name are in its folder."""
        server = Documented(arguments)
        self.servers.append(server)
        here = os.getcwd()
        os.chdir(self.folder)
        try:
            self.ports[documented] = server.start().port
        finally:
            os.chdir(here)

    def start_cluster(self, arguments: list[str]) -> None:
        options = dict(zip(arguments[::2], arguments[1::2], strict=True))
        regions, processes = options.pop("--regions"), options.pop("--processes")
        base = int(options.pop("--base-port", 7001))
        self.cluster = Cluster(int(regions), int(processes), *[word for pair in options.items() for word in pair])
        self.servers.append(self.cluster)
        for place, node in enumerate(self.cluster.start()):
            self.ports[base + place] = node.port

    def shell(self, line: str) -> str:
        """Runs a line; `anabranch` and `redis-cli` are ours and that of the page's server."""
        tools = self.folder / "bin"
        if not tools.exists():
            tools.mkdir()
            (tools / "anabranch").symlink_to(product())
            client = tools / "redis-cli"
            client.write_text(f'#!/bin/sh\nexec /usr/bin/env PATH="{os.environ["PATH"]}" redis-cli --no-raw -p "$PORT" "$@"\n')
            client.chmod(0o755)
            (self.folder / "examples").symlink_to(ROOT / "examples")
        environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"}
        if "redis-cli" in line:
            environment["PORT"] = str(self.port(6379))
        done = subprocess.run(["bash", "-c", line], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        return done.stdout


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_example_runs_or_says_why_not(page, tmp_path):
    stage = Stage(tmp_path)
    try:
        SETUPS.get(str(page.relative_to(ROOT)), lambda _: None)(stage)
        for block in blocks(page):
            if block.why is None:
                run(block, stage)
    finally:
        stage.close()


def run(block: Block, stage: Stage) -> None:
    first = next(line for line in block.lines if line.strip())
    is_typed = SERVER.match(first) or TYPED.match(first) or first.startswith("$ ")
    if block.kind == "text" and not is_typed:
        return
    if block.kind == "python":
        assert block.place.startswith(str(test_porting.PAGE.relative_to(ROOT))), f"{block.place}: only porting.md's are run"
    elif block.kind == "toml":
        run_configuration(block, stage)
    elif block.kind == "lua":
        reply = stage.client().call("KEYSPACE", "CREATE", "handled", "MODEL", "branch", "MERGE", "handler", "HANDLER", "\n".join(block.lines))
        assert not reply.is_error, f"{block.place}: {reply}"
    elif block.kind == "console":
        run_console(block, stage)
    elif is_typed:
        run_transcript(block, stage)
    elif all(re.match(r"[A-Z]{2,}\b", line) for line in block.lines if line.strip()):
        for line in block.lines:
            expect(block, stage, stage.client(), line, [])
    else:
        pytest.fail(f"{block.place}: this example is neither run nor marked; see the beginning of {Path(__file__).name}")


def run_configuration(block: Block, stage: Stage) -> None:
    """The server reads it and knows each of its keys."""
    file = stage.folder / "example.toml"
    file.write_text("\n".join(block.lines))
    stage.shell(f"anabranch serve --config {file} --print-config")


def run_console(block: Block, stage: Stage) -> None:
    steps: list[tuple[list[str], list[str]]] = []
    until = None
    for line in block.lines:
        if until is not None:
            steps[-1][0].append(line)
            until = None if line == until else until
        elif line.startswith("$ "):
            steps.append(([line[2:]], []))
            heredoc = re.search(r"<<'(\w+)'", line)
            until = heredoc and heredoc[1]
        else:
            steps[-1][1].append(line)
    for typed, expected in steps:
        printed = stage.shell("\n".join(typed)).splitlines()
        assert matches("\n".join(printed), expected), f"{block.place}: {typed[0]}\n{printed}, not {expected}"


def run_transcript(block: Block, stage: Stage) -> None:
    lines = block.lines
    place = 0
    while place < len(lines):
        line = lines[place]
        place += 1
        # What is typed goes on in indented lines, replies do not.
        while place < len(lines) and (lines[place].startswith("    ") or line.endswith("\\")):
            line = f"{line.rstrip(chr(92))} {lines[place].strip()}"
            place += 1
        expected = []
        while place < len(lines) and not (TYPED.match(lines[place]) or lines[place].startswith("$ ") or SERVER.match(lines[place])):
            expected.append(lines[place])
            place += 1
        if typed := TYPED.match(line):
            expect(block, stage, stage.client(int(typed[1]), typed[2]), typed[3], expected)
        elif line.startswith("$ "):
            stage.cluster.do(line[2:])
        else:
            run_program(line, stage)


def run_program(line: str, stage: Stage) -> None:
    """A line of shell that runs our binary: what serves goes on meanwhile."""
    line, program = line.split("  #")[0], SERVER.match(line)
    words = shlex.split(line[program.end() :]) if program else []
    if words[:2] == ["cluster", "local"]:
        stage.start_cluster(words[2:])
    elif program and words[:1] in ([], ["serve"]) and ">" not in words and "--print-config" not in words:
        arguments = words[1:]
        documented = 6379
        if "--listen" in arguments:
            at = arguments.index("--listen")
            documented = int(arguments[at + 1].rsplit(":", 1)[1])
            del arguments[at : at + 2]
        stage.serve(arguments, documented)
    else:
        stage.shell(SERVER.sub("anabranch", line))


def expect(block: Block, stage: Stage, client: Raw, typed: str, expected: list[str]) -> None:
    """Sends a command and compares the reply with what the page shows; waits where it is a read."""
    command, _, remark = typed.partition(" #")
    words = [STATE.sub(lambda _: stage.states[0], word) for word in shlex.split(command)]
    words = [SHORT_TOKEN.sub(lambda _: stage.tokens[0], word) for word in words]
    named = re.match(r" replies ([^:;]*)", remark)
    wanted = re.findall(r'"[^"]*"|\b\d+\b', named[1]) if named else []
    deadline = time.monotonic() + (SECONDS_TO_SEE if words[0] in READS else 0)
    while True:
        reply = client.call(*words)
        shown = printed(reply)
        stage.states = STATE.findall(shown) or stage.states
        stage.tokens = TOKEN.findall(shown) or stage.tokens
        fits = matches(shown, expected) if expected else not reply.is_error
        if fits and all(part in shown for part in wanted):
            return
        assert time.monotonic() < deadline, f"{block.place}: {command.strip()}\nreplied {shown}\nnot {expected or wanted}"
        time.sleep(0.1)


def matches(shown: str, expected: list[str]) -> bool:
    """Whether the lines are as the page shows them; `...` stands for anything within a line."""
    lines = [line for line in expected if line.strip()]
    parts = [".*".join(re.escape(part) for part in line.rstrip().split("...")) for line in lines]
    return re.fullmatch("\n".join(parts), shown) is not None if lines else True


def printed(reply: Reply, indent: int = 0) -> str:
    """The reply as redis-cli prints it."""
    if reply.items is not None:
        width = len(str(len(reply.items)))
        lines = [
            f"{place:>{width}}) {printed(item, indent + width + 2)}" for place, item in enumerate(reply.items, 1)
        ]
        return ("\n" + " " * indent).join(lines) or "(empty array)"
    text = (reply.text or b"").decode()
    if reply.is_null:
        return "(nil)"
    if reply.is_error:
        return f"(error) {text}"
    if reply.kind == b":":
        return f"(integer) {text}"
    return text if reply.kind == b"+" else json.dumps(text, ensure_ascii=False)


def accounts(stage: Stage) -> None:
    assert not stage.client().call("SET", "account:1", 100).is_error


def forked_cart(stage: Stage) -> None:
    """A branch keyspace with two branches that disagree on `cart`, and the client that merges in it."""
    client, other = stage.client(), stage.client(6379, "b")
    commands = "KEYSPACE CREATE carts MODEL branch MERGE manual LOCAL branch"
    assert not client.call(*commands.split()).is_error
    for connection in (client, other):
        connection.call("KEYSPACE", "USE", "carts")
    for connection, command in [
        (client, "TXN BEGIN"),
        (client, "SET cart milk"),
        (other, "SET cart bread"),
        (client, "GET cart"),
        (client, "TXN COMMIT"),
    ]:
        reply = connection.call(*command.split())
        assert not reply.is_error, f"{command}: {reply}"


def siblings(stage: Stage) -> None:
    """Two regions that wrote `cart` while they were cut apart."""
    stage.start_cluster("--regions 3 --processes 1 --base-port 7601".split())
    first, second = stage.client(7601), stage.client(7602)
    reply = first.call(*"KEYSPACE CREATE carts MODEL causal PROTOCOL cops CONFLICTS keep".split())
    assert not reply.is_error, reply
    for client in (first, second):
        wait_until(lambda client=client: not client.call("KEYSPACE", "USE", "carts").is_error)
    stage.cluster.do("cut a b")
    for client, value in ((first, "bread"), (second, "milk")):
        wait_until(lambda client=client, value=value: not client.call("SET", "cart", value).is_error)
    stage.cluster.do("heal")


def with_users(stage: Stage) -> None:
    file = stage.folder / "users.acl"
    file.touch()
    (stage.folder / "users.toml").write_text(f'[server]\nacl_file = "{file}"\n')
    stage.serve(["--config", "users.toml"], 6379)


# What a page takes for granted.
SETUPS = {
    "docs/scripts.md": accounts,
    "docs/consistency/branch.md": forked_cart,
    "docs/consistency/causal.md": siblings,
    "docs/operations/access.md": with_users,
}
