"""Errors of the codec, raised for hostile or damaged bytes.

No bytes of a peer cause any other exception: if a reader raises one, that is a bug.
"""


class CodecError(ValueError):
    """Base of the codec's errors: the connection or the record that carried the bytes is rejected."""


class Truncated(CodecError):
    """The bytes end before the value does."""


class Malformed(CodecError):
    """A length, count, tag, marker or text that the format does not allow."""


class CorruptBatch(CodecError):
    """A batch with a wrong checksum, or with lengths, counts or offsets that disagree (CORRUPT_MESSAGE)."""


class TooLarge(CodecError):
    """A decompressed value that is larger than the caller's limit."""


class CannotEncode(CodecError):
    """A value that this version of the message cannot represent (UNSUPPORTED_VERSION)."""
