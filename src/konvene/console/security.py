"""Which requests are answered, and the headers of every response.

    Host      must be an address of the server: a name that an attacker's DNS makes point here is refused
    token     is required if others than this machine can connect; the page gets it as a cookie from its
              first URL
    origin    requests that change anything must come from the page: no other site's forms, links or scripts
    headers   a content security policy without inline code; no framing, no sniffing, no referrer, no caching

Every check happens before the application sees the request.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["COOKIE", "HEADER", "Access", "Guard", "is_loopback"]

HEADER = "x-konvene-console"
"""Header of every request of the page that is not a GET; forms of other sites cannot send it."""
COOKIE = "konvene_console"
SAFE_METHODS = ("GET", "HEAD")
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
RESPONSE_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Return True if only this machine can connect to a server that listens on `host`."""
    if host in ("localhost", ""):
        return host == "localhost"
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Access(NamedTuple):
    """Conditions under which requests are answered."""

    hosts: Collection[str]
    """Names and addresses by which the server may be addressed, without ports; `*` allows any. With a token,
    any address is allowed besides."""
    token: str | None = None
    """Token that every request needs; None if only this machine can connect."""

    def refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        """Return the status, error and hint with which a request is refused; None if it is answered."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = _host_name(host)
        # An address is no name that another site's DNS can make point here; a token is needed in any case.
        known = name in self.hosts or "*" in self.hosts or (self.token is not None and _is_address(name))
        if not known:
            names = ", ".join(sorted(self.hosts))
            hint = f"Use one of {names}, or start it with --allowed-host {name or 'NAME'}."
            return 421, f"this server is not {host or 'named in the request'}", hint
        if self.token is not None and not self._has_token(headers):
            return 401, "a token is required", "Open the URL that konvene console printed."
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            navigates = headers.get("sec-fetch-mode") == "navigate" and scope["method"] in SAFE_METHODS
            if not navigates or scope["path"].startswith("/api/"):
                return 403, "requests of other sites are refused", "Open the page itself."
        if scope["method"] not in SAFE_METHODS:
            origin = headers.get("origin")
            if headers.get(HEADER) != "1" or (origin is not None and urlsplit(origin).netloc != host):
                return 403, "only the page itself may request changes", f"Send the header {HEADER}: 1."
        return None

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = [bearer.strip()] if scheme.lower() == "bearer" else []
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            cookie = None
        given += [cookie.value] if cookie is not None else []
        return any(self.matches(each) for each in given)

    def matches(self, given: str) -> bool:
        """Return True if `given` is the token."""
        token = self.token or ""
        return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _host_name(host: str) -> str:
    """Return the name in a Host header without its port, in lower case."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


class Guard:
    """ASGI middleware that refuses requests by `Access` and adds the headers of every response."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in RESPONSE_HEADERS.items():
                    headers[name] = value
            await send(message)

        response = self._login(scope) or self._refusal(scope)
        await (self._app if response is None else response)(scope, receive, guarded)

    def _login(self, scope: Scope) -> Response | None:
        """Return a redirect that sets the cookie, if the URL of a page has the token."""
        access = self._access
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if access.token is None or scope["method"] != "GET" or not given or not access.matches(given[0]):
            return None
        if access._replace(token=None).refusal(scope) is not None:
            return None
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        path = "/" + scope["path"].lstrip("/")  # Never another host: `//host` is a URL of its own.
        response = RedirectResponse(path + (f"?{rest}" if rest else ""), 303)
        response.set_cookie(COOKIE, access.token, httponly=True, samesite="strict")
        return response

    def _refusal(self, scope: Scope) -> Response | None:
        refusal = self._access.refusal(scope)
        if refusal is None:
            return None
        status, error, hint = refusal
        return JSONResponse({"error": error, "hint": hint}, status)
