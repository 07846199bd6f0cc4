"""Reads and writes frames of requests and responses: a length, a header, a body.

A `Route` holds what the broker needs for one API: the API's row, its request class and its handler, both
imported on first use. The header of a frame has the API key and version, which decide how its body is
decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from konvene.broker.services import Services, bind
from konvene.codec.compile import decode_from, encode_into
from konvene.codec.errors import CannotEncode, Truncated
from konvene.codec.schema import Struct
from konvene.codec.text import decode_text
from konvene.messages import API_KEYS, API_VERSIONS, Api

_HEADER = struct.Struct(">hhih")
_LENGTH_AND_CORRELATION = struct.Struct(">ii")


Handler = Callable[..., Any]
"""A function of a request and its context that returns an `Answer` (`konvene.broker.services.bind`)."""


class FrameHeader(NamedTuple):
    """The fields of a request header except tagged ones, and the position after them in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    body: int


def read_frame_header(frame: bytes | bytearray, position: int, end: int) -> FrameHeader:
    """Read a request header without its tagged fields, which `skip_tags` skips in flexible versions.

    In a client id that is not valid UTF-8, what is malformed is replaced, as in Kafka."""
    if end - position < _HEADER.size:
        raise Truncated("a request shorter than its header")
    api_key, version, correlation_id, length = _HEADER.unpack_from(frame, position)
    position += _HEADER.size
    if length < 0:
        return FrameHeader(api_key, version, correlation_id, "", position)
    stop = position + length
    if stop > end:
        raise Truncated("a client id longer than the request")
    try:
        client_id = frame[position:stop].decode()
    except UnicodeDecodeError:
        client_id = decode_text(frame[position:stop])
    return FrameHeader(api_key, version, correlation_id, client_id, stop)


class _Tags(Struct, versions="0", flexible="0+"):
    """A struct without fields, which decodes any tagged fields as unknown ones."""


def skip_tags(frame: bytes | bytearray, position: int, end: int) -> int:
    """Return the position after the tagged fields of a flexible header, which are ignored."""
    if position < end and frame[position] == 0:
        return position + 1
    return decode_from(_Tags, 0, frame, position, end)[1]


class Route:
    """One API: decodes its requests, runs its handler, encodes its responses."""

    __slots__ = (
        "_handler", "_module", "_request", "_services", "api", "first", "first_flexible",
        "last",
    )  # fmt: skip

    def __init__(self, api: Api, module: str, services: Services | None = None) -> None:
        self.api = api
        self.first = api.versions.first
        self.last = api.latest_stable
        self.first_flexible = api.first_flexible
        self._module = module
        self._services = services
        self._handler: Handler | None = None
        self._request: type[Struct] | None = None

    def __repr__(self) -> str:
        return f"<route {self.api.name} {self.first}-{self.last}>"

    @property
    def handler(self) -> Handler:
        """Return the handler, bound to its services; import it on first use."""
        if self._handler is None:
            module = import_module(f"konvene.broker.handlers.{self._module}")
            handle = getattr(module, "handle_" + self.api.module, None) or module.handle
            services = self._services
            assert services is not None, f"{self!r} has no services"
            self._handler = bind(handle, services)
        return self._handler

    def read(self, version: int, frame: bytes | bytearray, position: int, end: int) -> Struct:
        """Decode a request. Trailing bytes are ignored, and malformed text is replaced, as in Kafka."""
        if self._request is None:
            self._request = self.api.request
        return decode_from(self._request, version, frame, position, end, lenient=True)[0]

    def write(self, version: int, correlation_id: int, response: Struct | bytes) -> list[bytes]:
        """Encode a response as byte strings; a response of type `bytes` is a body that is encoded already.

        Large fields, such as records, are byte strings of their own, so they are not copied."""
        parts = [b"", b"\0"] if version >= self.first_flexible and self.api.key != API_VERSIONS else [b""]
        if isinstance(response, bytes):
            parts.append(response)
        else:
            encode_into(response, version, parts)
        size = 4 + sum(map(len, parts))
        parts[0] = _LENGTH_AND_CORRELATION.pack(size, correlation_id)
        return parts


def routes(table: dict[int, str], services: Services | None = None) -> dict[int, Route]:
    """Return the route of each API by key; `table` has the name of the handler's module by API key.

    Without `services` the routes can only encode and decode, not run handlers."""
    return {key: Route(API_KEYS[key], module, services) for key, module in table.items()}


def read_request(
    routes: Mapping[int, Route], frame: bytes | bytearray, end: int
) -> tuple[FrameHeader, Route, Struct | None]:
    """Return the header, the route and the decoded request of a frame, which includes its length prefix.

    The request is None if it is an ApiVersions of an unknown version, which is answered. Raises `CodecError`
    for what closes the connection: malformed bytes, an API that is not served, an unknown version."""
    header = read_frame_header(frame, 4, end)
    route = routes.get(header.api_key)
    if route is None:
        raise CannotEncode(f"API key {header.api_key} is not served")
    version = header.api_version
    if not route.first <= version <= route.last:
        if header.api_key != API_VERSIONS:
            raise CannotEncode(f"{route.api.name} has no version {version}")
        return header, route, None
    body = skip_tags(frame, header.body, end) if version >= route.first_flexible else header.body
    return header, route, route.read(version, frame, body, end)
