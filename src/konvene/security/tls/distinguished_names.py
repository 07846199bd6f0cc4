"""Distinguished names of certificates, written as Java's `X500Principal.getName()` does (RFC 2253).

Kafka's principals of SSL clients are these texts, so they have to be equal character by character: the last
component comes first, the types of RFC 2253 have short names, others are an OID with the value in
hexadecimal."""

from __future__ import annotations

from typing import Final, NamedTuple

from konvene.security.tls.der import Element, InvalidDer, elements, read_element

__all__ = ["CertificateNames", "certificate_names", "rfc2253"]

SHORT_NAMES: Final = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O",
    "2.5.4.11": "OU", "0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
}  # fmt: skip
"""Attribute types that RFC 2253 names."""

_ENCODINGS: Final = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x16: "ascii",
    0x14: "latin-1",
    0x1E: "utf-16-be",
    0x1C: "utf-32-be",
}
"""Character encodings by tag: UTF8String, PrintableString, IA5String, T61String, BMPString,
UniversalString."""
_DIRECTLY_SHOWN: Final = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E))

_SUBJECT_ALTERNATIVE_NAME: Final = bytes.fromhex("551d11")
_SEQUENCE, _SET, _OID = 0x30, 0x31, 0x06
_SPECIAL: Final = frozenset(',=\n+<>#;\\"')


class CertificateNames(NamedTuple):
    """The names in a certificate."""

    subject: str
    """Distinguished name as Java writes it; empty if the certificate has none."""
    alternatives: frozenset[bytes]
    """Encoded subject alternative names."""


def certificate_names(certificate: bytes) -> CertificateNames:
    """Return the names of a certificate in DER. Raises `InvalidDer`."""
    try:
        return _certificate_names(certificate)
    except IndexError:
        raise InvalidDer("a certificate without all its fields") from None


def _certificate_names(certificate: bytes) -> CertificateNames:
    outer, _ = read_element(certificate)
    fields = outer.children[0].children
    if fields and fields[0].tag == 0xA0:  # The version.
        del fields[0]
    if len(fields) < 6:
        raise InvalidDer("a certificate without all its fields")
    return CertificateNames(rfc2253(fields[4].encoded), _alternatives(fields[6:]))


def _alternatives(fields: list[Element]) -> frozenset[bytes]:
    for field in fields:
        if field.tag != 0xA3:
            continue
        for extension in field.children[0].children:
            parts = extension.children
            if parts[0].content == _SUBJECT_ALTERNATIVE_NAME:
                names, _ = read_element(parts[-1].content)
                return frozenset(name.encoded for name in names.children)
    return frozenset()


def rfc2253(name: bytes) -> str:
    """Return a distinguished name in DER as text. Raises `InvalidDer`."""
    sequence, _ = read_element(name)
    if sequence.tag != _SEQUENCE:
        raise InvalidDer("a name that is not a sequence")
    parts = []
    for relative in sequence.children:
        if relative.tag != _SET or not relative.content:
            raise InvalidDer("a name with a part that is not a set")
        parts.append("+".join(map(_attribute, elements(relative.content))))
    return ",".join(reversed(parts))


def _attribute(attribute: Element) -> str:
    pair = attribute.children
    if attribute.tag != _SEQUENCE or len(pair) != 2 or pair[0].tag != _OID:
        raise InvalidDer("an attribute that is not a type and a value")
    oid, value = _object_id(pair[0].content), pair[1]
    short = SHORT_NAMES.get(oid)
    if short is None or value.tag not in _DIRECTLY_SHOWN:
        return f"{short or oid}=#{value.encoded.hex()}"
    try:
        text = value.content.decode(_ENCODINGS.get(value.tag, "latin-1"))
    except UnicodeDecodeError:
        return f"{short}=#{value.encoded.hex()}"
    return f"{short}={_escaped(text)}"


def _object_id(content: bytes) -> str:
    numbers, value = [], 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    if not numbers or content[-1] & 0x80:
        raise InvalidDer("an object id that does not end")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    """Return a value with RFC 2253's escapes: special characters, and spaces and `#` where they matter."""
    escaped = "".join(f"\\{character}" if character in _SPECIAL else character for character in text)
    stripped = escaped.strip(" ")
    if not stripped:
        return "\\ " * len(escaped)
    leading = len(escaped) - len(escaped.lstrip(" "))
    trailing = len(escaped) - len(escaped.rstrip(" "))
    return "\\ " * leading + stripped + "\\ " * trailing
