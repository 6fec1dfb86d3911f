"""WebAssembly modules put together byte by byte, for what no compiler writes."""

from pathlib import Path

AUCTION = (Path(__file__).resolve().parents[2] / "examples" / "auction" / "auction.wasm").read_bytes()

# Where a module's constants and the questions to it lie in its memory.
CONSTANTS, QUESTIONS = 1024, 8192

# What a call does beyond describing itself.
ENDLESS = b"\x03\x40\x0c\x00\x0b\x00"  # loop br 0 end unreachable
GROWING = b"\x03\x40\x41\xe8\x07\x40\x00\x1a\x0c\x00\x0b\x00"  # grows its memory by 1000 pages, over and over


def length(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def signed(number: int) -> bytes:
    out = b""
    while True:
        low, number = number & 0x7F, number >> 7
        if (number == 0 and not low & 0x40) or (number == -1 and low & 0x40):
            return out + bytes([low])
        out += bytes([low | 0x80])


def name(text: str) -> bytes:
    return length(len(text)) + text.encode()


def u32(number: int) -> bytes:
    return number.to_bytes(4, "little")


def text(value: str) -> bytes:
    return u32(len(value)) + value.encode()


def specification(operation: str, *integers: str) -> bytes:
    """One operation that writes, with arguments that are integers."""
    arguments = b"".join(text(argument) + b"\x00" + u32(0) for argument in integers)
    return b"\x01" + u32(1) + text(operation) + b"\x00" + u32(len(integers)) + arguments


def place(offset: int, size: int) -> bytes:
    """Returns what lies there."""
    return b"\x42" + signed(CONSTANTS + offset << 32 | size) + b"\x0f"


def when(entry: int, then: bytes) -> bytes:
    return b"\x20\x00\x41" + signed(entry) + b"\x46\x04\x40" + then + b"\x0b"


def module(constants: bytes, call: bytes, imports: bytes = b"") -> bytes:
    exports = name("memory") + b"\x02\x00" + name("anabranch_allocate") + b"\x00\x00"
    exports += name("anabranch_call") + b"\x00\x01"
    bodies = [b"\x00\x41" + signed(QUESTIONS) + b"\x0b", b"\x00" + call + b"\x0b"]
    sections = [
        (1, b"\x02\x60\x01\x7f\x01\x7f\x60\x03\x7f\x7f\x7f\x01\x7e"),
        (2, imports),
        (3, b"\x02\x00\x01"),
        (5, b"\x01\x00\x01"),
        (7, b"\x03" + exports),
        (10, b"\x02" + b"".join(length(len(body)) + body for body in bodies)),
        (11, b"\x01\x00\x41" + signed(CONSTANTS) + b"\x0b" + length(len(constants)) + constants),
    ]
    content = b"".join(bytes([number]) + length(len(part)) + part for number, part in sections if part)
    return b"\0asm\x01\0\0\0" + content


def hostile(otherwise: bytes) -> bytes:
    """Describes itself, and does this when it is asked anything else."""
    about = specification("go")
    return module(about, when(0, place(0, len(about))) + otherwise)


def importing() -> bytes:
    return module(b"", b"\x42\x00", b"\x01" + name("env") + name("clock") + b"\x03\x7f\x00")


def last_writer(says_that_writes_commute: bool) -> bytes:
    """A number that `put` replaces."""
    about = specification("put", "number")
    answer, yes = len(about), len(about) + 15
    constants = about + b"\x00\x01" + u32(9) + bytes(9) + bytes([says_that_writes_commute, 0])
    # The argument, tag and number, is the end of the question: it becomes the effect.
    execute = b"\x41" + signed(CONSTANTS + answer + 6) + b"\x20\x01\x20\x02\x6a\x41\x09\x6b\x41\x09\xfc\x0a\x00\x00"
    execute += place(answer, 15)
    # The effect becomes the state: it lies behind the state's length, the state, and its own length.
    state = b"\x20\x01\x28\x02\x00"
    after = b"\x20\x01" + state + b"\x6a\x41\x08\x6a\xad\x42\x20\x86"
    size = b"\x20\x01" + state + b"\x6a\x28\x02\x04\xad"
    apply = after + size + b"\x84\x0f"
    # Whoever replies OK has seen nothing; whether writes commute is what this type may be wrong about.
    constants += b"\x01"
    commute, blind, unchanged = place(yes, 1), place(yes + 1, 1), place(yes + 2, 1)
    call = when(0, place(0, len(about))) + when(1, execute) + when(2, apply) + when(4, unchanged) + when(5, blind)
    return module(constants, call + commute)
