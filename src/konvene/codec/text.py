"""Decodes text that may not be valid UTF-8, as Java does: with U+FFFD in place of what is malformed.

Kafka's brokers accept any bytes in client ids and in the strings of requests. They go on with the replaced
text, which is also what they store and return.

Java and Python replace the same sequences, with one exception: an encoded surrogate (ED A0..BF and the byte
that follows) is one malformed sequence in Java, and as many as it has bytes in Python.
"""

from __future__ import annotations

import codecs

REPLACEMENT = "\ufffd"
_ERRORS = "konvene-java"


def decode_text(data: bytes | bytearray) -> str:
    """Return the text of UTF-8 `data`, with each malformed sequence replaced as in Java's `new String`."""
    return data.decode("utf-8", _ERRORS)


def _replace(error: UnicodeError) -> tuple[str, int]:
    """Return the replacement of a malformed sequence, and the position after it (an error handler)."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, start, end = error.object, error.start, error.end
    if data[start] == 0xED and 0xA0 <= int.from_bytes(data[start + 1 : start + 2], "big") <= 0xBF:
        end = start + 2
        if data[end : end + 1] and data[end] & 0xC0 == 0x80:
            end += 1
    return REPLACEMENT, end


codecs.register_error(_ERRORS, _replace)
