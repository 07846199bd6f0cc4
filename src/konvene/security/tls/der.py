"""A reader of DER (X.690): the part of it that names in certificates need.

Lengths are definite and checked against the input; nothing is decoded recursively.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Element", "InvalidDer", "elements", "read_element"]


class InvalidDer(ValueError):
    """The bytes are not DER of the expected structure."""


class Element(NamedTuple):
    """A tag, its content, and the whole element with its header."""

    tag: int
    content: bytes
    encoded: bytes

    @property
    def children(self) -> list[Element]:
        """Return the elements within a constructed element. Raises `InvalidDer`."""
        return list(elements(self.content))


def read_element(data: bytes, position: int = 0) -> tuple[Element, int]:
    """Return the element at a position and the position after it. Raises `InvalidDer`."""
    try:
        tag, length = data[position], data[position + 1]
    except IndexError:
        raise InvalidDer("an element without a length") from None
    start = position + 2
    if tag & 0x1F == 0x1F:
        raise InvalidDer("an element with a long tag")
    if length >= 0x80:
        count = length & 0x7F
        if not 1 <= count <= 4 or len(data) < start + count:
            raise InvalidDer("an element with an indefinite or too long length")
        length = int.from_bytes(data[start : start + count], "big")
        start += count
    end = start + length
    if end > len(data):
        raise InvalidDer("an element longer than its container")
    return Element(tag, data[start:end], data[position:end]), end


def elements(data: bytes) -> Iterator[Element]:
    """Yield the elements that follow each other in `data`. Raises `InvalidDer`."""
    position = 0
    while position < len(data):
        element, position = read_element(data, position)
        yield element
