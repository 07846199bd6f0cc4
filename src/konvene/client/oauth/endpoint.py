"""The request of the client credentials grant to a token endpoint (RFC 6749, section 4.4).

It blocks, and runs in a thread. It follows no redirect, which would lead to a URL that is not allowed. Error
messages contain the endpoint's own error, as RFC 6749, section 5.2 has it, and never a secret or a token."""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.request
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from typing import Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote_plus, urlsplit

from konvene.client.errors import AuthenticationFailed
from konvene.security.oauth.urls import NoRedirect, is_loopback

__all__ = ["TokenRequest", "request_token"]

MAX_RESPONSE_BYTES: Final = 256 * 1024
MAX_SHOWN: Final = 300
DEFAULT_TIMEOUT_MS: Final = 10_000
FINAL_STATUS: Final = frozenset(
    (300, 301, 302, 303, 307, 308, 400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414,
     415, 501, 505)
)  # fmt: skip
"""Status codes after which the request is not repeated, as in Kafka's `HttpJwtRetriever`; and redirects."""


class TokenRequest(NamedTuple):
    """What is requested, from where, and how often it is tried."""

    url: str
    client_id: str
    client_secret: str
    scope: str = ""
    is_encoded: bool = False
    """Whether id, secret and scope are URL-encoded (`sasl.oauthbearer.header.urlencode`)."""
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000
    """Longest pause, and the time after which no further attempt is made."""

    def __repr__(self) -> str:
        return f"<TokenRequest {self.url} for {self.client_id}, secret [hidden]>"

    @property
    def authorization(self) -> str:
        """Return the value of the Authorization header, which is a secret."""
        encode = quote_plus if self.is_encoded else str
        pair = f"{encode(self.client_id)}:{encode(self.client_secret)}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"

    @property
    def body(self) -> bytes:
        scope = quote_plus(self.scope) if self.is_encoded else self.scope
        return f"grant_type=client_credentials{f'&scope={scope}' if scope else ''}".encode()

    def without_secrets(self, text: str) -> str:
        """Return a text of the endpoint without the client's secret, shortened to one line."""
        for secret in (self.client_secret, self.authorization.removeprefix("Basic ")):
            text = text.replace(secret, "[hidden]")
        return " ".join(text.split())[:MAX_SHOWN]


class _Retriable(Exception):
    pass


def request_token(
    request: TokenRequest,
    context: Callable[[], ssl.SSLContext],
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> str:
    """Return the access token of the endpoint's response. Raises `AuthenticationFailed`.

    `context` makes the TLS context of an https URL. Failures that may pass are tried again."""
    deadline_s = monotonic() + request.retry_backoff_max_ms / 1000
    pause_s = request.retry_backoff_ms / 1000
    while True:
        try:
            return _attempt(request, context, monotonic)
        except _Retriable as failure:
            if monotonic() + pause_s >= deadline_s:
                raise AuthenticationFailed(str(failure)) from None
        sleep(pause_s)
        pause_s = min(2 * pause_s, request.retry_backoff_max_ms / 1000)


def _attempt(
    request: TokenRequest, context: Callable[[], ssl.SSLContext], monotonic: Callable[[], float]
) -> str:
    where = f"no access token from {request.url}"
    handlers: list[urllib.request.BaseHandler] = [NoRedirect()]
    if is_loopback(urlsplit(request.url).hostname or ""):
        handlers.append(urllib.request.ProxyHandler({}))
    if request.url.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=context()))
    message = urllib.request.Request(
        request.url,
        data=request.body,
        headers={
            "Accept": "application/json",
            "Authorization": request.authorization,
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        },
        method="POST",
    )
    timeout_s = request.timeout_ms / 1000
    deadline_s = monotonic() + timeout_s
    try:
        with urllib.request.build_opener(*handlers).open(message, timeout=timeout_s) as response:
            return _token(request, _read(response, deadline_s, monotonic))
    except HTTPError as error:
        with error:
            reason = _error_of(request, error.read(MAX_RESPONSE_BYTES))
        text = f"{where}: response code {error.code}{reason}"
        if error.code in FINAL_STATUS:
            raise AuthenticationFailed(text) from None
        raise _Retriable(text) from None
    except URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            text = f"{where}: its certificate is not trusted ({error.reason.verify_message})"
            raise AuthenticationFailed(text) from None
        raise _Retriable(f"{where}: {_reason(error.reason)}") from None
    except (OSError, HTTPException) as error:
        raise _Retriable(f"{where}: {_reason(error)}") from None


def _read(response: HTTPResponse, deadline_s: float, monotonic: Callable[[], float]) -> bytes:
    """Read a response of a limited size within a limited time, however slowly it arrives."""
    parts, size = [], 0
    while part := response.read1(16 * 1024):
        parts.append(part)
        size += len(part)
        if size > MAX_RESPONSE_BYTES:
            raise OSError("the response is too large")
        if monotonic() > deadline_s:
            raise TimeoutError("timed out")
    return b"".join(parts)


def _token(request: TokenRequest, body: bytes) -> str:
    """Return the token in a response: `access_token`, else `id_token`, as in Kafka."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict):
        for name in ("access_token", "id_token"):
            value = document.get(name)
            if isinstance(value, str) and value.strip():
                return value.strip()
    raise AuthenticationFailed(f"no access token from {request.url}: the response does not contain one")


def _error_of(request: TokenRequest, body: bytes) -> str:
    """Return the error of a response as RFC 6749 or Okta write it, after a colon; empty if it has none."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(document, dict):
        return ""
    for name, details in (("error", "error_description"), ("errorCode", "errorSummary")):
        if isinstance(document.get(name), str):
            more = document.get(details)
            text = f"{document[name]} - {more}" if isinstance(more, str) else document[name]
            return f": {request.without_secrets(text)}"
    return ""


def _reason(error: object) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:1].lower() + error.strerror[1:]
    return type(error).__name__ if isinstance(error, HTTPException) else str(error)
