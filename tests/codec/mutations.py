"""Mutation of valid bytes for fuzz tests, and random bytes; the same seed gives the same inputs."""

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
"""Boundary values of lengths, counts, markers and texts."""

MAX_LENGTH = 4096


def mutated(seeds: Sequence[bytes], count: int, rng: random.Random) -> Iterator[bytes]:
    """Yield `count` inputs: empty bytes first, then seeds mutated in one to four places, and some noise."""
    yield b""
    for number in range(count - 1):
        if not seeds or number % 16 == 15:
            yield rng.randbytes(rng.randrange(64))
            continue
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            _mutate(data, seeds, rng)
        yield bytes(data[:MAX_LENGTH])


def _mutate(data: bytearray, seeds: Sequence[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice((1, 1, 2, 4, 8, 64)))
    mutation = rng.randrange(8)
    if mutation == 0 and at < len(data):
        data[at] ^= 1 << rng.randrange(8)
    elif mutation == 1 and at < len(data):
        data[at] = rng.randrange(256)
    elif mutation == 2:
        value = rng.choice(INTERESTING)
        data[at : at + len(value)] = value
    elif mutation == 3:
        data[at:at] = rng.choice(INTERESTING)
    elif mutation == 4:
        del data[at:end]
    elif mutation == 5:
        del data[at:]
    elif mutation == 6:
        data[at:at] = data[at:end] * rng.choice((1, 2, 30))
    else:
        other = rng.choice(seeds)
        cut = rng.randrange(len(other) + 1)
        data[at:end] = other[cut : cut + 64]
