"""Hosts of ACLs: Java's notation of addresses, and ranges."""

from __future__ import annotations

import ipaddress
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.security.hosts import check_range, is_in_range, java_address


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::ff00:42:8329", "2001:db8:0:0:0:ff00:42:8329"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("local", "local"),
        ("", ""),
    ],
)
def test_addresses_are_written_as_in_java(address: str, text: str) -> None:
    assert java_address(address) == text


@pytest.mark.parametrize(
    ("host", "text", "inside"),
    [
        ("192.168.1.5", "192.168.1.0/24", True),
        ("192.168.1.0", "192.168.1.0/24", True),
        ("192.168.1.255", "192.168.1.0/24", True),
        ("192.168.2.0", "192.168.1.0/24", False),
        ("192.168.1.5", "192.168.1.77/24", True),
        ("10.0.0.1", "10.0.0.1/32", True),
        ("10.0.0.2", "10.0.0.1/32", False),
        ("10.0.0.1", "10.0.0.0/31", True),
        ("8.8.8.8", "0.0.0.0/0", True),
        ("0.0.0.0", "0.0.0.0/0", False),
        ("0:0:0:0:0:0:0:0", "::/0", True),
        ("2001:db8:0:0:0:0:0:7", "2001:db8::/32", True),
        ("2001:db9:0:0:0:0:0:7", "2001:db8::/32", False),
        ("10.0.0.1", "::/0", False),
        ("0:0:0:0:0:0:0:1", "0.0.0.0/0", False),
        ("10.0.0.1", "10.0.0.1", False),
        ("10.0.0.1", "*", False),
        ("10.0.0.1", "10.0.0.0/33", False),
        ("10.0.0.1", "10.0.0.256/8", False),
        ("local", "0.0.0.0/0", False),
    ],
)
def test_ranges(host: str, text: str, inside: bool) -> None:
    assert is_in_range(host, text) is inside


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Could not parse []"),
        ("/", "Could not parse [/]"),
        ("1.2.3.4", "Could not parse [1.2.3.4]"),
        ("1.2.3/8", "Could not parse [1.2.3/8]"),
        ("1.2.3.4/33", "Value [33] not in range [0,32]"),
        ("1.2.3.256/33", "Value [256] not in range [0,255]"),
        ("1.2.3.4/-1", "Could not parse [1.2.3.4/-1]"),
        ("a/8", "Could not parse [a/8]"),
        ("١.2.3.4/8", "Could not parse [١.2.3.4/8]"),
        ("::1", "Could not parse [::1] - missing prefix length"),
        ("::1/", "Could not parse [::1/] - invalid prefix length"),
        ("::/1/2", "Could not parse [::/1/2] - invalid prefix length"),
        ("::/129", "Could not parse [::/129] - prefix length must be between 0 and 128"),
        ("::/-1", "Could not parse [::/-1] - prefix length must be between 0 and 128"),
        ("g::/8", "Could not parse [g::]"),
        ("::1%nope/8", "Could not parse [::1%nope]"),
        ("::ffff:10.0.0.0/120", "Could not parse [::ffff:10.0.0.0] - not an IPv6 address"),
    ],
)
def test_other_texts_are_no_ranges(text: str, message: str) -> None:
    """The message is Kafka's."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_range(text)


@given(st.ip_addresses(v=4), st.ip_addresses(v=4), st.integers(0, 32))
def test_ipv4_ranges_are_those_of_ipaddress(
    host: ipaddress.IPv4Address, base: ipaddress.IPv4Address, bits: int
) -> None:
    expected = host in ipaddress.ip_network(f"{base}/{bits}", strict=False) and int(host) != 0
    assert is_in_range(str(host), f"{base}/{bits}") is expected


@given(st.text(max_size=30))
def test_any_text_is_handled(text: str) -> None:
    java_address(text)
    is_in_range(text, text)
