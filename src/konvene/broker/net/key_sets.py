"""Fetches the key set that verifies access tokens, at the start, periodically, and for unknown key ids.

The fetch runs in a thread. A failure keeps the keys and is tried again after a backoff that doubles, as in
Kafka's `RefreshingHttpsJwks`. A file is read once, and again when the settings change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import unquote, urlsplit

from konvene.security.oauth.jwt import AccessToken, InvalidToken, JwtSettings, JwtValidator, unverified_key_id
from konvene.security.oauth.keys import MAX_KEY_SET_BYTES, JsonWebKeySet, RefreshPolicy
from konvene.security.oauth.urls import ALLOWED_URLS, NoRedirect, check_url

__all__ = ["KeySetSource", "fetch"]

log = logging.getLogger("konvene.oauth")

FETCH_TIMEOUT_S = 10.0
URL = "sasl.oauthbearer.jwks.endpoint.url"


def fetch(url: str) -> bytes:
    """Return the document at an https or file URL. Raises OSError or ValueError; blocks for 10 s at most."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with open(unquote(parts.path), "rb") as file:
            return file.read(MAX_KEY_SET_BYTES + 1)
    opener = urllib.request.build_opener(NoRedirect)
    with opener.open(url, timeout=FETCH_TIMEOUT_S) as response:
        document: bytes = response.read(MAX_KEY_SET_BYTES + 1)
        return document


class KeySetSource:
    """Validates access tokens of one listener with a key set that it keeps current."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        loop: asyncio.AbstractEventLoop,
        wall_clock_ms: Callable[[], int],
        fetch: Callable[[str], bytes] = fetch,
    ) -> None:
        """Check the settings. Raises ValueError if the issuer, the audience or the URL is not acceptable."""
        self._validator = JwtValidator(JwtSettings.of(settings), lambda: self._keys)
        parts = check_url(URL, settings[URL], settings[ALLOWED_URLS])
        self._url = settings[URL]
        self._is_file = parts.scheme == "file"
        self._refresh_ms: int = settings["sasl.oauthbearer.jwks.endpoint.refresh.ms"]
        self._backoff_ms: int = settings["sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"]
        self._max_backoff_ms: int = settings["sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"]
        self._loop = loop
        self._wall_clock_ms = wall_clock_ms
        self._fetch = fetch
        self._keys = JsonWebKeySet()
        self._policy = RefreshPolicy()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<key set of {self._url}: {self._keys!r}>"

    async def start(self) -> None:
        """Fetch the keys for the first time, then keep them current. Raises OSError or ValueError."""
        self._keys = await self._read()
        if not self._is_file:
            self._task = self._loop.create_task(self._refresh())

    async def close(self) -> None:
        """Stop the periodic fetch."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def validate(self, token: str) -> AccessToken:
        """Return the validated token. Raises `InvalidToken`; an unknown key id may cause a fetch."""
        now_ms = self._wall_clock_ms()
        try:
            return self._validator.validate(token, now_ms)
        except InvalidToken:
            key_id = unverified_key_id(token)
            is_unknown = key_id is not None and not self._keys.has(key_id)
            if is_unknown and self._policy.should_refresh(key_id or "", now_ms):
                self._wanted.set()
            raise

    async def _read(self) -> JsonWebKeySet:
        return JsonWebKeySet.parse(await self._loop.run_in_executor(None, self._fetch, self._url))

    async def _refresh(self) -> None:
        backoff_ms = self._backoff_ms
        pause_ms = self._refresh_ms
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_ms / 1000):
                    await self._wanted.wait()
            self._wanted.clear()
            try:
                self._keys = await self._read()
                pause_ms, backoff_ms = self._refresh_ms, self._backoff_ms
            except (OSError, ValueError, HTTPException) as error:
                log.warning("cannot fetch the key set %s, the old one is kept: %s", self._url, error)
                pause_ms, backoff_ms = backoff_ms, min(2 * backoff_ms, self._max_backoff_ms)
