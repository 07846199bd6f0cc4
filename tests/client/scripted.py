"""A broker with scripted responses on a real socket, which records the requests that it receives.

It uses konvene's codec and implements only ApiVersions: each API has a list of responses (or functions from
request to response), used in order; the last one repeats. It runs in a thread with an event loop of its own,
so that commands with their own loop can be tested against it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from konvene.codec.compile import decode, decode_from, encode
from konvene.codec.schema import Struct
from konvene.messages import API_KEYS, BY_NAME
from konvene.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from konvene.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from konvene.messages.header import RequestHeader, ResponseHeader
from konvene.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

Answer = Struct | bytes | None | Callable[[Any], Any]
"""A struct, the raw bytes of a frame, None for no response, or a function from the request to one of
these."""

HANG_UP = b"hang up"


class ScriptedBroker:
    """Use as `with ScriptedBroker(Metadata=[…]) as broker`; `broker.request_log` has the requests."""

    def __init__(self, versions: dict[str, tuple[int, int]] | None = None, **answers: Any) -> None:
        self.answers: dict[str, list[Answer]] = {
            name: list(given) if isinstance(given, list) else [given] for name, given in answers.items()
        }
        self.versions = versions or {}
        self.features: dict[str, int] = {}
        """Finalized features of ApiVersions, with their levels."""
        self.request_log: list[str] = []
        """`API vN` of each request, in order; without ApiVersions."""
        self.requests: list[Any] = []
        self.clients: list[str | None] = []
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    def __enter__(self) -> ScriptedBroker:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(5)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def apis(self) -> list[str]:
        """Names of the requested APIs, in order."""
        return [line.split()[0] for line in self.request_log]

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                out = self._answer(frame)
                if out == HANG_UP:
                    break
                if out is not None:
                    writer.write(out)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, frame: bytes) -> bytes | None:
        api = API_KEYS[int.from_bytes(frame[:2], "big")]
        version = int.from_bytes(frame[2:4], "big")
        header, position = decode_from(RequestHeader, api.request_header_version(version), frame)
        if api.name == "ApiVersions" and "ApiVersions" not in self.answers:
            return _frame(api.name, version, header.correlation_id, self._hello(version))
        request = decode(api.request, version, frame, position)
        self.request_log.append(f"{api.name} v{version}")
        self.requests.append(request)
        self.clients.append(header.client_id)
        script = self.answers.get(api.name) or [self._usual(api.name)]
        answer = script[0] if len(script) == 1 else script.pop(0)
        if callable(answer):
            answer = answer(request)
        if answer is None or isinstance(answer, bytes):
            return answer
        return _frame(api.name, version, header.correlation_id, answer)

    def _hello(self, version: int) -> ApiVersionsResponse:
        named = {"ApiVersions", "Metadata", "FindCoordinator", *self.answers, *self.versions}
        rows = []
        for name in sorted(named):
            first, last = self.versions.get(name, (BY_NAME[name].versions.first, BY_NAME[name].latest_stable))
            rows.append(ApiVersion(api_key=BY_NAME[name].key, min_version=first, max_version=last))
        features = (
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in self.features.items()
        )
        return ApiVersionsResponse(api_keys=tuple(rows), finalized_features=tuple(features))

    def _usual(self, name: str) -> Answer:
        """Return the default response: this broker is the whole cluster and every coordinator."""
        if name == "Metadata":
            return self.metadata()
        if name == "FindCoordinator":
            return lambda request: FindCoordinatorResponse(
                coordinators=tuple(
                    Coordinator(key=key, node_id=1, host="127.0.0.1", port=self.port)
                    for key in request.coordinator_keys
                )
            )
        raise AssertionError(f"{name} was not expected")

    def metadata(self, *, error: int = 0, **topics: int) -> Callable[[Any], MetadataResponse]:
        """Return a Metadata response function for a cluster of this broker, with these topics (name:
        partitions)."""

        def answer(request: Any) -> MetadataResponse:
            names = sorted(topics) if request.topics is None else [t.name for t in request.topics]
            return MetadataResponse(
                cluster_id="c", controller_id=1,
                brokers=(MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port),),
                topics=tuple(_topic(name, topics.get(name), error) for name in names),
            )  # fmt: skip

        return answer


def _topic(name: str, partitions: int | None, error: int) -> MetadataResponseTopic:
    if partitions is None:
        return MetadataResponseTopic(name=name, error_code=3)
    return MetadataResponseTopic(
        name=name, error_code=error, topic_id=name.encode()[:16].ljust(16, b"-"),
        is_internal=name.startswith("__"),
        partitions=tuple(
            MetadataResponsePartition(
                partition_index=i, leader_id=1, leader_epoch=0, replica_nodes=(1,), isr_nodes=(1,)
            )
            for i in range(partitions)
        ),
    )  # fmt: skip


def _frame(name: str, version: int, correlation_id: int, answer: Struct) -> bytes:
    api = BY_NAME[name]
    head = encode(ResponseHeader(correlation_id=correlation_id), api.response_header_version(version))
    body = head + encode(answer, version)
    return len(body).to_bytes(4, "big") + body
