"""The broker answers every version of every API that it serves, for typical and for unusual requests.

The requests are Kafka's own vectors: the `default`, `typical` and `edge` bodies of each version, in the order
of the file. Each request receives a response of its version, and the broker goes on serving.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.broker.running import exchange, running

from konvene.broker.net.router import HANDLERS
from konvene.cluster.acls import has_unknown_codes
from konvene.codec.compile import decode
from konvene.messages import API_KEYS

VECTORS = Path(__file__).parent.parent / "vectors" / "messages.jsonl.gz"


def bodies() -> dict[int, dict[int, list[tuple[str, bytes]]]]:
    """Return the request bodies to send, by API key and version."""
    by_name = {API_KEYS[key].name + "Request": key for key in HANDLERS}
    found: dict[int, dict[int, list[tuple[str, bytes]]]] = defaultdict(lambda: defaultdict(list))
    with gzip.open(VECTORS, "rt") as file:
        for line in file:
            vector: dict[str, Any] = json.loads(line)
            if vector["name"] in by_name and vector["kind"] in ("default", "typical", "edge"):
                key = by_name[vector["name"]]
                found[key][vector["version"]].append((vector["kind"], bytes.fromhex(vector["hex"])))
    return found


BODIES = bodies()
PRODUCE = 0
ACLS = 29, 30, 31


@pytest.mark.parametrize("key", sorted(HANDLERS), ids=lambda k: API_KEYS[k].name)
def test_every_version_is_answered(key: int, tmp_path: Path) -> None:
    """Each request uses a new connection; its response decodes at the version of the request."""
    api = API_KEYS[key]

    async def main() -> None:
        async with running(tmp_path) as broker:
            port = broker.catalogue.advertised[1]
            for version in range(api.versions.first, api.latest_stable + 1):
                for kind, body in BODIES[key][version]:
                    request: Any = decode(api.request, version, body)
                    if key == PRODUCE and request.acks == 0:
                        continue  # Such a request has no response.
                    rows = getattr(request, "creations", getattr(request, "filters", (request,)))
                    if key in ACLS and any(map(has_unknown_codes, rows)):
                        continue  # Such a request closes the connection, as in Kafka.
                    head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7\0\1c"
                    tags = b"\0" if version >= api.first_flexible else b""
                    response = await asyncio.wait_for(exchange(port, head + tags + body), 10)
                    assert response[:4] == b"\0\0\0\7", f"{api.name} v{version} {kind} is not answered"
                    start = 5 if api.response_header_version(version) else 4
                    decode(api.response, version, response, start)

    asyncio.run(main())


def test_every_stable_version_is_advertised() -> None:
    """Each API is served at exactly the versions that are stable in Kafka 4.4."""
    for key in HANDLERS:
        api = API_KEYS[key]
        assert sorted(BODIES[key]) == list(range(api.versions.first, api.versions.last + 1))
        assert api.latest_stable <= api.versions.last
