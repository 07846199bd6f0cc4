"""The request to a token endpoint: what is sent, what is tried again, what errors contain."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.client.oauth.token_endpoint import TokenEndpoint, token_endpoint

from konvene.client.errors import AuthenticationFailed
from konvene.client.oauth.endpoint import MAX_RESPONSE_BYTES, TokenRequest, request_token
from konvene.testing.certificates import CertificateAuthority

SECRET = "marked-secret"
FOUND = (200, {"access_token": "a.b.c", "token_type": "Bearer"})


def request(
    endpoint: TokenEndpoint, context: Callable[[], ssl.SSLContext] | None = None, **changed: Any
) -> str:
    """Request a token; pauses take no time, and 10 s of them are permitted."""
    clock_s = [0.0]

    def sleep(duration_s: float) -> None:
        clock_s[0] += duration_s

    wanted = TokenRequest(endpoint.url, "client", SECRET)._replace(**changed)
    return request_token(
        wanted, context or ssl.create_default_context, sleep=sleep, monotonic=lambda: clock_s[0]
    )


@pytest.mark.parametrize(
    ("changed", "credentials", "body"),
    [
        ({}, f"client:{SECRET}", "grant_type=client_credentials"),
        ({"scope": "a b"}, f"client:{SECRET}", "grant_type=client_credentials&scope=a b"),
        (
            {"client_id": "c:1", "scope": "a b", "is_encoded": True},
            f"c%3A1:{SECRET}",
            "grant_type=client_credentials&scope=a+b",
        ),
    ],
)
def test_the_request(changed: dict[str, Any], credentials: str, body: str) -> None:
    with token_endpoint(FOUND) as endpoint:
        assert request(endpoint, **changed) == "a.b.c"
    (received,) = endpoint.received
    assert received.body == body
    assert received.headers["Authorization"] == f"Basic {base64.b64encode(credentials.encode()).decode()}"
    assert received.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert received.headers["Accept"] == "application/json"


def test_an_id_token_is_taken_if_there_is_no_access_token() -> None:
    with token_endpoint((200, {"id_token": " a.b.c "})) as endpoint:
        assert request(endpoint) == "a.b.c"


def test_failures_that_may_pass_are_tried_again() -> None:
    with token_endpoint((503, b""), (429, b"slower"), FOUND) as endpoint:
        assert request(endpoint) == "a.b.c"
    assert len(endpoint.received) == 3


@pytest.mark.parametrize(
    ("response", "message", "attempts"),
    [
        ((401, {"error": "invalid_client", "error_description": f"no {SECRET}"}),
         r"response code 401: invalid_client - no \[hidden\]$", 1),
        ((400, {"errorCode": "E1", "errorSummary": "bad scope"}), "response code 400: E1 - bad scope$", 1),
        ((403, b"<html>"), "response code 403$", 1),
        ((302, b""), "response code 302$", 1),
        ((500, b""), "response code 500$", 7),
        ((200, {"token": SECRET}), "does not contain one$", 1),
        ((200, SECRET.encode()), "does not contain one$", 1),
        ((200, b"[" * 100_000), "does not contain one$", 1),
        ((200, b" " * (MAX_RESPONSE_BYTES + 1)), "the response is too large$", 7),
    ],
)  # fmt: skip
def test_errors(response: tuple[int, Any], message: str, attempts: int) -> None:
    """They name the endpoint, and contain neither the client's secret nor the response."""
    with (
        token_endpoint(response) as endpoint,
        pytest.raises(AuthenticationFailed, match=message) as raised,
    ):
        request(endpoint)
    assert endpoint.url in str(raised.value)
    assert SECRET not in str(raised.value)
    assert len(endpoint.received) == attempts


def test_an_endpoint_that_is_not_there() -> None:
    with token_endpoint(FOUND) as endpoint:
        pass
    with pytest.raises(AuthenticationFailed, match="connection refused"):
        request(endpoint)


def test_the_certificate_of_an_https_endpoint_is_checked(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    files = authority.server().write(tmp_path, "endpoint")
    with token_endpoint(FOUND, certificate=(files[0], files[1])) as endpoint:
        with pytest.raises(AuthenticationFailed, match="certificate is not trusted"):
            request(endpoint)
        assert request(endpoint, lambda: ssl.create_default_context(cadata=authority.certificate)) == "a.b.c"


def test_nothing_shows_the_secret() -> None:
    assert (
        repr(TokenRequest("https://x", "client", SECRET))
        == "<TokenRequest https://x for client, secret [hidden]>"
    )
