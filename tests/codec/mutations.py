"""Bytes that were once valid, changed by chance; and bytes that never were. The same seed, the same bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

INTERESTING = (
    b"\0", b"\1", b"\x7f", b"\x80", b"\xff", b"\xff\xff", b"\x7f\xff", b"\x80\0", b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\1", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x80\x01", b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\xff" * 10, b"\xc3\x28",
    b"\xed\xa0\x80", b"-1", b"99999999999999999999", b"\n", b" ", b"=", b'"', b"[[",
    b"{", b"null", b"1e999", b"NaN",
)  # fmt: skip
"""Lengths, counts, markers and texts at the ends of what there is."""

LONGEST = 4096


def mutated(seeds: Sequence[bytes], count: int, chance: random.Random) -> Iterator[bytes]:
    """So many inputs: mostly a seed changed in one to four places, sometimes noise, first of all nothing."""
    yield b""
    for number in range(count - 1):
        if not seeds or number % 16 == 15:
            yield chance.randbytes(chance.randrange(64))
            continue
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            _change(data, seeds, chance)
        yield bytes(data[:LONGEST])


def _change(data: bytearray, seeds: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    upto = min(len(data), at + chance.choice((1, 1, 2, 4, 8, 64)))
    kind = chance.randrange(8)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 1 and at < len(data):
        data[at] = chance.randrange(256)
    elif kind == 2:
        some = chance.choice(INTERESTING)
        data[at : at + len(some)] = some
    elif kind == 3:
        data[at:at] = chance.choice(INTERESTING)
    elif kind == 4:
        del data[at:upto]
    elif kind == 5:
        del data[at:]
    elif kind == 6:
        data[at:at] = data[at:upto] * chance.choice((1, 2, 30))
    else:
        other = chance.choice(seeds)
        cut = chance.randrange(len(other) + 1)
        data[at:upto] = other[cut : cut + 64]
