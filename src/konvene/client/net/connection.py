"""Connection to one broker: sends requests and matches responses by correlation id.

Requests are pipelined; each has a timeout, after which the connection is closed, because later responses
would wait for the missing one. API versions are negotiated when the connection is opened."""

from __future__ import annotations

import asyncio
from random import random
from typing import Any, NamedTuple
from uuid import uuid4

from konvene import __version__
from konvene.client.errors import (
    AuthenticationFailed,
    BadResponse,
    CannotConnect,
    ClientError,
    ConnectionLost,
    RequestTimedOut,
    UnsupportedVersion,
)
from konvene.client.net.authentication import authenticate, reauthentication_delay_s
from konvene.client.security import PLAINTEXT_SECURITY, ClientSecurity
from konvene.codec.compile import decode, decode_from, encode_into
from konvene.codec.errors import CannotEncode, CodecError
from konvene.codec.schema import Struct, Versions
from konvene.errors import Errors
from konvene.messages import API_KEYS, API_VERSIONS, Api
from konvene.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from konvene.messages.header import RequestHeader, ResponseHeader

__all__ = ["Connection", "Waiting"]

LARGEST_FRAME = 512 * 1024 * 1024
"""Maximum response size in bytes; a larger size means that the peer is not a Kafka broker."""


SASL_APIS = frozenset((17, 36))
"""APIs of an authentication, which other requests wait for."""


class Waiting(NamedTuple):
    """A request that was sent and not yet answered."""

    api: Api
    version: int
    answer: asyncio.Future[Struct]
    timer: asyncio.TimerHandle | None


class Connection(asyncio.Protocol):
    """A connection to a broker in Kafka's protocol. Create one with `Connection.open`."""

    def __init__(
        self, host: str, port: int, *, client_id: str = "konvene", request_timeout_ms: int = 30_000
    ) -> None:
        self.host = host
        self.port = port
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.versions: dict[int, Versions] = {}
        """What the broker speaks, by API key; empty before ApiVersions was answered."""
        self.features: dict[str, int] = {}
        """The features that are on in the cluster, and their levels."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._waiting: dict[int, Waiting] = {}
        self._next_id = 0
        self._lost: ClientError | None = None
        self._writable: asyncio.Future[None] | None = None
        self._postponed: list[list[bytes]] | None = None  # Requests that wait for a re-authentication.
        self._reauthentication: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        return f"<Connection {self.host}:{self.port} {state}, {len(self._waiting)} waiting>"

    @classmethod
    async def open(
        cls, host: str, port: int, *, client_id: str = "konvene", request_timeout_ms: int = 30_000,
        connect_timeout_ms: int = 10_000, security: ClientSecurity = PLAINTEXT_SECURITY,
    ) -> Connection:  # fmt: skip
        """Connect, negotiate API versions, and authenticate if `security` requires it.

        Raises `CannotConnect`, `AuthenticationFailed`, `Misconfigured`, or what `negotiate` raises."""
        made = cls(host, port, client_id=client_id, request_timeout_ms=request_timeout_ms)
        tls: dict[str, Any] = {}
        if security.has_tls:
            tls = {"ssl": security.tls_context(), "server_hostname": host}
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                await asyncio.get_running_loop().create_connection(lambda: made, host, port, **tls)
        except TimeoutError:
            raise CannotConnect(f"{host}:{port} did not accept within {connect_timeout_ms} ms") from None
        except OSError as error:
            if security.has_tls and (failure := tls_failure(error)) is not None:
                raise AuthenticationFailed(f"{host}:{port}: {failure}") from None
            hint = ""
            if security.has_tls and isinstance(error, ConnectionResetError):
                hint = " during the TLS handshake; is security.protocol right for this port?"
            raise CannotConnect(f"cannot connect to {host}:{port}: {_reason(error)}{hint}") from error
        try:
            await made.negotiate(timeout_ms=max(connect_timeout_ms, 1))
            if security.has_sasl:
                await made._authenticate(security)
        except BaseException:
            made.close()
            raise
        return made

    async def _authenticate(self, security: ClientSecurity) -> None:
        """Authenticate, and plan to do it again if the session has an end."""
        lifetime_ms = await authenticate(self, security, uuid4().hex)
        loop = self._loop
        if lifetime_ms > 0 and loop is not None:
            delay_s = reauthentication_delay_s(lifetime_ms, random())
            self._reauthentication = loop.call_later(delay_s, self._begin_reauthentication, security)

    def _begin_reauthentication(self, security: ClientSecurity) -> None:
        if self.is_closed or self._loop is None:
            return
        self._postponed = []
        self._task = self._loop.create_task(self._reauthenticate(security))

    async def _reauthenticate(self, security: ClientSecurity) -> None:
        """Authenticate again, while requests wait; a failure closes the connection."""
        try:
            await self._authenticate(security)
        except ClientError as error:
            self._end(error)
            return
        except Exception as error:  # A token provider of the program may raise anything.
            self._end(AuthenticationFailed(f"{self.host}:{self.port}: {type(error).__name__}: {error}"))
            return
        postponed, self._postponed = self._postponed, None
        for parts in postponed or ():
            if self._transport is not None and not self._transport.is_closing():
                self._transport.writelines(parts)

    @property
    def is_closed(self) -> bool:
        return self._transport is None or self._lost is not None or self._transport.is_closing()

    def close(self) -> None:
        """Close the connection; pending requests raise `ConnectionLost`."""
        self._end(ConnectionLost(f"the connection to {self.host}:{self.port} was closed by this side"))

    async def negotiate(self, timeout_ms: int | None = None) -> None:
        """Negotiate API versions with ApiVersions: in the client's newest version, and if the broker lacks
        it, in the newest version that the broker reports."""
        api = API_KEYS[API_VERSIONS]
        version = api.versions.last
        hello = ApiVersionsRequest(client_software_name="konvene", client_software_version=__version__)
        answer: ApiVersionsResponse = await self._start(hello, api, version, timeout_ms)
        if answer.error_code == Errors.UNSUPPORTED_VERSION:
            offered = {row.api_key: row.max_version for row in answer.api_keys}
            version = min(version - 1, offered.get(API_VERSIONS, 0))
            answer = await self._start(hello, api, version, timeout_ms)
        if answer.error_code != 0:
            raise UnsupportedVersion(
                f"{self.host}:{self.port} refuses ApiVersions v{version} with error code {answer.error_code}"
            )
        self.versions = {row.api_key: Versions(row.min_version, row.max_version) for row in answer.api_keys}
        self.features = {row.name: row.max_version_level for row in answer.finalized_features}

    def speaks(self, api_key: int, version: int | None = None) -> bool:
        """Return True if broker and client have a common version of the API; given `version`, that one."""
        theirs = self.versions.get(api_key)
        if theirs is None or api_key not in API_KEYS:
            return False
        ours = API_KEYS[api_key].versions
        if version is not None:
            return version in theirs and version in ours
        return max(ours.first, theirs.first) <= min(ours.last, theirs.last)

    def version_of(self, api_key: int) -> int:
        """Return the highest common stable version of the API. Raises `UnsupportedVersion`."""
        api = API_KEYS[api_key]
        theirs = self.versions.get(api_key)
        if theirs is None:
            raise UnsupportedVersion(f"the broker at {self.host}:{self.port} does not offer {api.name}")
        highest = min(api.latest_stable, theirs.last)
        if highest < max(api.versions.first, theirs.first):
            broker = f"the broker at {self.host}:{self.port}"
            raise UnsupportedVersion(f"{broker} supports {api.name} {theirs}, this client {api.versions}")
        return highest

    async def send(
        self, request: Struct, version: int | None = None, *, timeout_ms: int | None = None
    ) -> Any:
        """Send a request and wait for its response (the struct `…Response` of the same API).

        `version` None is the highest common one, `timeout_ms` None the `request_timeout_ms` of the
        connection. Raises `ConnectionLost`, `RequestTimedOut`, `UnsupportedVersion` or `BadResponse`. Error
        codes in the response are not raised."""
        while self._writable is not None:
            await asyncio.shield(self._writable)
        return await self.post(request, version, timeout_ms=timeout_ms)

    def post(
        self, request: Struct, version: int | None = None, *, timeout_ms: int | None = None
    ) -> asyncio.Future[Any]:
        """Write the request now and return a future of its response, which `send` would wait for.

        Requests are written in the order of the calls."""
        api = API_KEYS[type(request).__key__]
        return self._start(request, api, self._agreed(api, version), timeout_ms)

    def send_without_response(self, request: Struct, version: int | None = None) -> None:
        """Send a request that the broker does not answer (Produce with acks 0)."""
        api = API_KEYS[type(request).__key__]
        self._write(request, api, self._agreed(api, version))

    def _agreed(self, api: Api, version: int | None) -> int:
        if version is None:
            return self.version_of(api.key)
        if not self.speaks(api.key, version):
            theirs = self.versions.get(api.key, "none")
            raise UnsupportedVersion(
                f"{api.name} v{version} was requested; "
                f"the broker at {self.host}:{self.port} supports {theirs}"
            )
        return version

    def _start(self, request: Struct, api: Api, version: int, timeout_ms: int | None) -> asyncio.Future[Any]:
        correlation_id = self._write(request, api, version)
        loop = self._loop
        assert loop is not None
        answer: asyncio.Future[Struct] = loop.create_future()
        wait_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
        timer = loop.call_later(wait_ms / 1000, self._expire, correlation_id, wait_ms)
        self._waiting[correlation_id] = Waiting(api, version, answer, timer)
        return answer

    def _write(self, request: Struct, api: Api, version: int) -> int:
        if self._lost is not None:
            raise self._lost
        if self._transport is None or self._transport.is_closing():
            raise ConnectionLost(f"the connection to {self.host}:{self.port} is closed")
        correlation_id = self._next_id
        header = RequestHeader(
            request_api_key=api.key, request_api_version=version, correlation_id=correlation_id,
            client_id=self.client_id,
        )  # fmt: skip
        parts: list[bytes] = [b""]
        try:
            encode_into(header, api.request_header_version(version), parts)
            encode_into(request, version, parts)
        except CannotEncode as error:
            raise UnsupportedVersion(f"{api.name}: {error}") from error
        parts[0] = sum(map(len, parts)).to_bytes(4, "big")
        self._next_id = (correlation_id + 1) & 0x7FFF_FFFF
        if self._postponed is None or api.key in SASL_APIS:
            self._transport.writelines(parts)
        else:
            self._postponed.append(parts)
        return correlation_id

    def _expire(self, correlation_id: int, waited_ms: int) -> None:
        waiting = self._waiting.get(correlation_id)
        if waiting is None:
            return
        what = f"{self.host}:{self.port} did not answer {waiting.api.name}"
        self._end(RequestTimedOut(f"{what} within {waited_ms} ms"))

    # what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= 4:
            size = int.from_bytes(buffer[start : start + 4], "big")
            if not 4 <= size <= LARGEST_FRAME:
                self._end(BadResponse(f"{self.host}:{self.port} sent a frame of {size} bytes: is it Kafka?"))
                return
            end = start + 4 + size
            if len(buffer) < end:
                break
            self._handle_response(bytes(memoryview(buffer)[start + 4 : end]))
            start = end
        if start:
            del buffer[:start]

    def connection_lost(self, exc: Exception | None) -> None:
        why = f": {_reason(exc)}" if exc else " by the broker"
        self._end(ConnectionLost(f"the connection to {self.host}:{self.port} was closed{why}"))

    def pause_writing(self) -> None:
        assert self._loop is not None
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            if not self._writable.done():
                self._writable.set_result(None)
            self._writable = None

    def _handle_response(self, frame: bytes) -> None:
        waiting = self._waiting.pop(int.from_bytes(frame[:4], "big"), None)
        if waiting is None:
            self._end(BadResponse(f"{self.host}:{self.port} answered a request that was not sent"))
            return
        if waiting.timer is not None:
            waiting.timer.cancel()
        if waiting.answer.done():  # The caller has given up waiting.
            return
        try:
            waiting.answer.set_result(_read(waiting.api, waiting.version, frame))
        except CodecError as error:
            waiting.answer.set_exception(BadResponse(f"{self.host}:{self.port}: {error}"))
            self.close()

    def _end(self, error: ClientError) -> None:
        """Close the connection and fail all pending requests. The first error is kept."""
        if self._lost is None:
            self._lost = error
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
        if self._reauthentication is not None:
            self._reauthentication.cancel()
        self.resume_writing()
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            if each.timer is not None:
                each.timer.cancel()
            if not each.answer.done():
                each.answer.set_exception(self._lost)


def _read(api: Api, version: int, frame: bytes) -> Struct:
    """Decode a response. A broker that lacks the requested ApiVersions version answers in version 0."""
    _, position = decode_from(ResponseHeader, api.response_header_version(version), frame)
    refused = Errors.UNSUPPORTED_VERSION.to_bytes(2, "big")
    if api.key == API_VERSIONS and frame[position : position + 2] == refused:
        return decode(api.response, 0, frame, position)
    return decode(api.response, version, frame, position)


def tls_failure(error: OSError) -> str | None:
    """Return what is wrong with the TLS handshake, and what to do; None if the error is another one."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        text = error.verify_message
        if "expired" in text:
            return "the broker's certificate has expired"
        if "Hostname mismatch" in text or "IP address mismatch" in text:
            return f"the broker's certificate is for another host: {text}"
        return (
            f"the broker's certificate is not trusted ({text}); name its certificate authority with"
            " ssl.truststore.location (ssl.truststore.type=PEM) or ssl.ca.location"
        )
    if isinstance(error, ssl.SSLError):
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return "the port does not speak TLS; is security.protocol right for it?"
        return f"the TLS handshake failed: {error.reason or error}"
    return None


def _reason(error: BaseException) -> str:
    """Return a short message for an OS or asyncio error."""
    if "Connect call failed" in str(error):
        return "connection refused"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:1].lower() + error.strerror[1:]
    return str(error) or type(error).__name__
