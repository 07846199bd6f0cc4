"""The one error family of the codec: what hostile or damaged bytes raise.

A peer's bytes never raise anything but a `CodecError`; anything else that escapes from a
reader is our mistake.
"""


class CodecError(ValueError):
    """Bytes that are not what they claim to be. The connection or the record is refused."""


class Truncated(CodecError):
    """The bytes end before the value does."""


class Malformed(CodecError):
    """A length, count, tag, marker or text that the format does not allow."""


class CorruptBatch(CodecError):
    """A record batch whose checksum or arithmetic does not hold (CORRUPT_MESSAGE)."""


class TooLarge(CodecError):
    """A value that would grow past the limit its caller set."""


class CannotEncode(CodecError):
    """A value that this version of the message has no place for (UNSUPPORTED_VERSION)."""
