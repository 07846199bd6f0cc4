"""Errors of the codec, raised for hostile or damaged bytes.

A peer's bytes never cause any other exception; one that escapes from a reader is a bug.
"""


class CodecError(ValueError):
    """Invalid bytes. The connection or the record is rejected."""


class Truncated(CodecError):
    """The bytes end before the value does."""


class Malformed(CodecError):
    """A length, count, tag, marker or text that the format does not allow."""


class CorruptBatch(CodecError):
    """A record batch whose checksum or arithmetic does not hold (CORRUPT_MESSAGE)."""


class TooLarge(CodecError):
    """A value larger than the caller's limit."""


class CannotEncode(CodecError):
    """A value that this version of the message cannot represent (UNSUPPORTED_VERSION)."""
