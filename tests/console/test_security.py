"""Requests that other sites, other names and others than the user can make are refused."""

from __future__ import annotations

from typing import Any

import pytest

from konvene.console.security import COOKIE, HEADER, Access, is_loopback

LOCAL = Access(frozenset({"localhost", "127.0.0.1", "::1"}))
GUARDED = Access(frozenset({"console.example"}), "s3cret")


def scope(method: str = "GET", path: str = "/", **headers: str) -> dict[str, Any]:
    rows = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "path": path, "query_string": b"", "headers": rows}


def status(access: Access, *args: str, **headers: str) -> int:
    refusal = access.refusal(scope(*args, **headers))
    return 200 if refusal is None else refusal[0]


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST"])
def test_own_names_are_answered(host: str) -> None:
    assert status(LOCAL, host=host) == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "[::", "127.0.0.1.evil:8080"])
def test_other_names_are_refused_against_dns_rebinding(host: str) -> None:
    assert status(LOCAL, host=host) == 421


@pytest.mark.parametrize("host", ["192.0.2.7:8080", "[2001:db8::7]:8080"])
def test_with_a_token_any_address_is_a_host(host: str) -> None:
    """The addresses of a machine are not always known to it; no DNS can make an address point elsewhere."""
    assert status(GUARDED, host=host, authorization="Bearer s3cret") == 200
    assert status(GUARDED, host=host) == 401
    assert status(LOCAL, host=host) == 421


def test_any_name_if_allowed() -> None:
    assert status(Access(frozenset({"*"})), host="any.example") == 200


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({HEADER: "1"}, 200),
        ({HEADER: "1", "origin": "http://localhost:8080"}, 200),
        ({HEADER: "1", "origin": "http://evil.example"}, 403),
        ({HEADER: "1", "origin": "http://localhost:9999"}, 403),
        ({HEADER: "1", "origin": "null"}, 403),
        ({HEADER: "1", "sec_fetch_site": "cross-site"}, 403),
        ({HEADER: "1", "sec_fetch_site": "same-site"}, 403),
        ({}, 403),
    ],
)
def test_changes_must_come_from_the_page(headers: dict[str, str], expected: int) -> None:
    assert status(LOCAL, "POST", "/api/produce", host="localhost:8080", **headers) == expected


def test_another_site_may_link_to_the_page_but_not_read_its_data() -> None:
    navigation = {"host": "localhost:8080", "sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert status(LOCAL, "GET", "/groups/g", **navigation) == 200
    assert status(LOCAL, "GET", "/api/messages", **navigation) == 403
    assert status(LOCAL, "GET", "/static/live.js", **navigation | {"sec_fetch_mode": "no-cors"}) == 403


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 401),
        ({"authorization": "Bearer s3cret"}, 200),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Basic s3cret"}, 401),
        ({"cookie": f"{COOKIE}=s3cret"}, 200),
        ({"cookie": f"{COOKIE}=s3cre"}, 401),
        ({"cookie": "\x7f=;;"}, 401),
    ],
)
def test_a_token_is_required(headers: dict[str, str], expected: int) -> None:
    assert status(GUARDED, host="console.example", **headers) == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True),
     ("0.0.0.0", False), ("::", False), ("", False), ("192.0.2.1", False), ("localhost.example", False)],
)  # fmt: skip
def test_loopback_addresses(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
