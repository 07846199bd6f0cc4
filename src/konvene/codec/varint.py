"""Variable-length integers: seven bits in each byte, lowest first; the top bit means that more bytes follow.

Flexible messages use *unsigned* numbers (compact lengths, tags). Record batches use *zigzag* numbers, which
store the sign in the lowest bit, so that -1 takes one byte. A 32-bit number has at most 5 bytes and a
64-bit number at most 10: a longer one, or one with bits beyond its width, is `Malformed`. Overlong forms of
small numbers are accepted, as Kafka does.

Readers take `(buf, pos)` and return `(value, next position)`; writers return bytes.
"""

from __future__ import annotations

from konvene.codec.errors import CannotEncode, Malformed, Truncated

Buffer = bytes | bytearray | memoryview

_U32 = 0xFFFF_FFFF
_U64 = 0xFFFF_FFFF_FFFF_FFFF


def read_unsigned_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read an unsigned 32-bit number of at most 5 bytes."""
    return _read(buf, pos, 5, _U32)


def read_unsigned_varlong(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read an unsigned 64-bit number of at most 10 bytes."""
    return _read(buf, pos, 10, _U64)


def read_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read a signed 32-bit number (zigzag) of at most 5 bytes."""
    raw, pos = _read(buf, pos, 5, _U32)
    return (raw >> 1) ^ -(raw & 1), pos


def read_varlong(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read a signed 64-bit number (zigzag) of at most 10 bytes."""
    raw, pos = _read(buf, pos, 10, _U64)
    return (raw >> 1) ^ -(raw & 1), pos


def write_unsigned_varint(value: int) -> bytes:
    """Encode an unsigned number in up to 5 bytes. Raises `CannotEncode` outside 0 .. 2^32-1."""
    if not 0 <= value <= _U32:
        raise CannotEncode(f"{value} is not an unsigned 32-bit number")
    return _write(value)


def write_unsigned_varlong(value: int) -> bytes:
    """Encode an unsigned number in up to 10 bytes. Raises `CannotEncode` outside 0 .. 2^64-1."""
    if not 0 <= value <= _U64:
        raise CannotEncode(f"{value} is not an unsigned 64-bit number")
    return _write(value)


def write_varint(value: int) -> bytes:
    """Encode a signed number (zigzag) in up to 5 bytes. Raises `CannotEncode` outside the 32-bit range."""
    if -0x8000_0000 <= value <= 0x7FFF_FFFF:
        return _write((value << 1) ^ (value >> 31))
    raise CannotEncode(f"{value} is not a signed 32-bit number")


def write_varlong(value: int) -> bytes:
    """Encode a signed number (zigzag) in up to 10 bytes. Raises `CannotEncode` outside the 64-bit range."""
    if -0x8000_0000_0000_0000 <= value <= 0x7FFF_FFFF_FFFF_FFFF:
        return _write((value << 1) ^ (value >> 63))
    raise CannotEncode(f"{value} is not a signed 64-bit number")


def _read(buf: Buffer, pos: int, most: int, limit: int) -> tuple[int, int]:
    try:
        byte = buf[pos]
        if byte < 0x80:
            return byte, pos + 1
        value = byte & 0x7F
        shift = 7
        for at in range(pos + 1, pos + most):
            byte = buf[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > limit:
                    raise Malformed(f"variable-length number at {pos} is wider than it may be")
                return value, at + 1
            shift += 7
    except IndexError:
        raise Truncated(f"variable-length number at {pos} has no end") from None
    raise Malformed(f"variable-length number at {pos} is longer than {most} bytes")


def _write(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]
