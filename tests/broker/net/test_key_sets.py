"""The key set of a listener: fetched at the start, for unknown key ids, and kept if a fetch fails."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.security.oauth.tokens import NOW_MS, ec_key, key_set, token

from konvene.broker.net.key_sets import KeySetSource, fetch
from konvene.configs import BrokerConfig
from konvene.security.oauth.jwt import InvalidToken

URL = "https://issuer/jwks"


def config(url: str = URL, **changed: str) -> BrokerConfig:
    settings = {
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "1",
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": url,
    } | changed
    return BrokerConfig.load(overrides=list(settings.items()))[0]


class Issuer:
    """Documents that are fetched one after the other; an exception is raised. The last one stays."""

    def __init__(self, *documents: bytes | Exception) -> None:
        self.documents = list(documents)
        self.fetched = 0

    def __call__(self, url: str) -> bytes:
        self.fetched += 1
        document = self.documents.pop(0) if len(self.documents) > 1 else self.documents[0]
        if isinstance(document, Exception):
            raise document
        return document


def without(*key_ids: str) -> bytes:
    """Return the key set of the tests without some of its keys."""
    rows = json.loads(key_set())["keys"]
    return json.dumps({"keys": [row for row in rows if row["kid"] not in key_ids]}).encode()


async def started(issuer: Issuer, settings: Any = None) -> KeySetSource:
    source = KeySetSource(settings or config(), asyncio.get_running_loop(), lambda: NOW_MS, issuer)
    await source.start()
    return source


EC_TOKEN = token(algorithm="ES256", key=ec_key(), header={"kid": "k2"})


def test_an_unknown_key_id_fetches_the_set_again() -> None:
    """The token itself is rejected; the client's next attempt finds the key. A failed fetch is repeated."""

    async def scenario() -> None:
        issuer = Issuer(without("k2"), OSError("down"), b"no JSON", key_set())
        source = await started(issuer)
        assert source.validate(token()).principal_name == "alice"
        with pytest.raises(InvalidToken):
            source.validate(EC_TOKEN)
        async with asyncio.timeout(60):
            while "k2" not in repr(source):  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(0.001)
        assert issuer.fetched == 4
        assert source.validate(EC_TOKEN).principal_name == "alice"
        await source.close()

    asyncio.run(scenario())


def test_a_bad_signature_causes_no_fetch() -> None:
    async def scenario() -> None:
        issuer = Issuer(key_set())
        source = await started(issuer)
        for _ in range(5):
            with pytest.raises(InvalidToken):
                source.validate(token()[:-8] + "AAAAAAAA")
        for _ in range(10):
            await asyncio.sleep(0)
        assert issuer.fetched == 1
        await source.close()

    asyncio.run(scenario())


def test_a_broker_does_not_start_without_keys() -> None:
    async def scenario() -> None:
        for document in (OSError("down"), b"{}"):
            with pytest.raises((OSError, ValueError)):
                await started(Issuer(document))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "changed",
    [
        {"sasl.oauthbearer.expected.issuer": ""},
        {"sasl.oauthbearer.expected.audience": ""},
        {"sasl.oauthbearer.jwks.endpoint.url": "https://elsewhere/jwks"},
        {"org.apache.kafka.sasl.oauthbearer.allowed.urls": ""},
    ],
)
def test_open_settings_are_rejected(changed: dict[str, str]) -> None:
    async def scenario() -> None:
        with pytest.raises(ValueError, match="sasl"):
            await started(Issuer(key_set()), config(**changed))

    asyncio.run(scenario())


def test_a_key_set_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(key_set())
    url = path.as_uri()

    async def scenario() -> None:
        source = KeySetSource(config(url), asyncio.get_running_loop(), lambda: NOW_MS)
        await source.start()
        assert source.validate(token()).principal_name == "alice"
        await source.close()

    asyncio.run(scenario())


def test_redirects_are_not_followed() -> None:
    """They would lead around the allow-list."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(OSError, match="302"):
            await asyncio.to_thread(fetch, f"http://127.0.0.1:{port}/jwks")
        server.close()

    asyncio.run(scenario())
