"""Distinguished names as Java writes them, and the principals that rules make of them."""

from __future__ import annotations

import sys

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier
from hypothesis import given
from hypothesis import strategies as st

from konvene.security.principal import ANONYMOUS, KafkaPrincipal
from konvene.security.tls.der import InvalidDer
from konvene.security.tls.distinguished_names import certificate_names, rfc2253
from konvene.security.tls.principal_mapping import PrincipalMapper
from konvene.testing.certificates import CertificateAuthority

N = x509.NameAttribute


def name(*attributes: x509.NameAttribute[str]) -> bytes:
    return x509.Name(attributes).public_bytes()


@pytest.mark.parametrize(
    ("encoded", "text"),
    [
        (name(N(NameOID.COUNTRY_NAME, "DE"), N(NameOID.COMMON_NAME, "alice")), "CN=alice,C=DE"),
        (name(), ""),
        (name(N(NameOID.COMMON_NAME, 'a,b+c"d\\e<f>g;h=i#j')), 'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h\\=i\\#j'),
        (name(N(NameOID.COMMON_NAME, " a ")), "CN=\\ a\\ "),
        (name(N(NameOID.COMMON_NAME, "Zoë")), "CN=Zoë"),
        (name(N(NameOID.USER_ID, "u"), N(NameOID.DOMAIN_COMPONENT, "com")), "DC=com,UID=u"),
        (
            name(N(NameOID.EMAIL_ADDRESS, "a@b.c", _ASN1Type.IA5String)),
            "1.2.840.113549.1.9.1=#16056140622e63",
        ),
        (name(N(NameOID.SERIAL_NUMBER, "7", _ASN1Type.PrintableString)), "2.5.4.5=#130137"),
        (name(N(ObjectIdentifier("1.3.6.1.4.1.99999.1"), "x")), "1.3.6.1.4.1.99999.1=#0c0178"),
        (name(N(NameOID.COMMON_NAME, "b", _ASN1Type.BMPString)), "CN=b"),
    ],
)
def test_names_are_written_as_in_java(encoded: bytes, text: str) -> None:
    assert rfc2253(encoded) == text


def test_a_part_with_several_values() -> None:
    both = x509.RelativeDistinguishedName([N(NameOID.COMMON_NAME, "a"), N(NameOID.USER_ID, "u")])
    assert sorted(rfc2253(x509.Name([both]).public_bytes()).split("+")) == ["CN=a", "UID=u"]


def test_names_of_a_certificate() -> None:
    authority = CertificateAuthority()
    names = certificate_names(authority.server(("localhost", "127.0.0.1")).der)
    assert names.subject == "CN=localhost"
    assert names.alternatives == {b"\x82\x09localhost", b"\x87\x04\x7f\0\0\x01"}
    assert certificate_names(authority.client("CN=alice,O=a b").der).subject == "CN=alice,O=a b"
    loaded = x509.load_pem_x509_certificate(authority.certificate.encode())
    assert certificate_names(loaded.public_bytes(Encoding.DER)).alternatives == frozenset()


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_rejected(data: bytes) -> None:
    for read in (rfc2253, certificate_names):
        try:
            read(data)
        except InvalidDer:
            continue


DN = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "dn", "expected"),
    [
        ("DEFAULT", DN, DN),
        ("", DN, DN),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", DN, "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT", DN, "duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U", DN, "DUKE"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/", DN, "Duke@ServiceUsers"),
        ("RULE:^cn=(.*?),ou=(.*?)$/$1/L, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT", DN, "duke"),
        ("RULE:^CN=nobody$/x/, DEFAULT", DN, DN),
        (r"RULE:^CN=(.*?)\/(.*?)$/$1\/$2/", "CN=a/b", "a/b"),
    ],
)
def test_rules_of_kafka(rules: str, dn: str, expected: str) -> None:
    assert PrincipalMapper(rules).name_of(dn) == expected


def test_no_rule_applies() -> None:
    with pytest.raises(ValueError, match="No rules apply to CN=x"):
        PrincipalMapper("RULE:^CN=a$/a/").name_of("CN=x")
    with pytest.raises(ValueError, match="No rules apply"):
        PrincipalMapper().name_of("CN=" + "x" * 5_000)


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAULT/L",
        "RULE:",
        "RULE:^CN=a$",
        "RULE:^CN=a$/",
        "RULE:^CN=a$/b/X",
        "RULE:[/b/",
        "RULE:a/$1/",
    ],
)
def test_invalid_rules(rules: str) -> None:
    with pytest.raises(ValueError, match=r"[Ii]nvalid|syntax|no group|valid pattern"):
        PrincipalMapper(rules)


def test_the_principal_of_a_certificate() -> None:
    mapper = PrincipalMapper("RULE:^CN=([^,]*).*$/$1/")
    assert mapper.principal_of(None) == ANONYMOUS
    assert mapper.principal_of(CertificateAuthority().client("bob").der) == KafkaPrincipal("User", "bob")


@pytest.mark.parametrize("pattern", ["(a+)+$", "^CN=([a-z]*)*$", "((x|y+),)*z", "(a{2,}b?){3,}"])
def test_slow_patterns_need_re2(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without google-re2 a repeated repetition could keep the broker busy for years."""
    name = f"CN={'a' * 60}!"
    assert PrincipalMapper(f"RULE:{pattern}/x/,DEFAULT").name_of(name) == name
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(ValueError, match="repeats a repetition"):
        PrincipalMapper(f"RULE:{pattern}/x/")


@pytest.mark.parametrize(
    "pattern", ["^CN=(.*?),OU=(.*?)$", r"(a\+)+", "([(*+]+)=", "(ab)*", "(a+)?(b+)", r"[])*+](\)*)b"]
)
def test_other_patterns_do_not(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But they are for short names only, since Python's patterns try all ways to match."""
    monkeypatch.setitem(sys.modules, "re2", None)
    mapper = PrincipalMapper(f"RULE:{pattern}/x/,DEFAULT")
    assert mapper.name_of("none") == "none"
    with pytest.raises(ValueError, match="No rules apply"):
        mapper.name_of(f"CN={'a' * 300},OU=b")
