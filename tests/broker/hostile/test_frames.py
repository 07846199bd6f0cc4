"""Rows 1 to 12 of the hostile inputs: invalid requests close their connection and do no other harm."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.broker.hostile.wire import Target, frame, header
from tests.codec.test_hostile import HUGE, holes, varint

from konvene.codec.compile import decode, encode
from konvene.messages import API_KEYS, API_VERSIONS, Api
from konvene.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from konvene.messages.list_groups import ListGroupsRequest
from konvene.messages.share_group_describe import ShareGroupDescribeRequest
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

METADATA_1, METADATA_12, HEARTBEAT_4 = header(3, 1), header(3, 12), header(12, 4)
VERSIONS = header(18, 3) + encode(
    ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3
)

INVALID_REQUESTS = {
    "row 01: length -1": b"\xff\xff\xff\xff",
    "row 01: length -2^31": b"\x80\0\0\0",
    "row 02: longer than socket.request.max.bytes": (104_857_601).to_bytes(4, "big"),
    "row 02: 2^31-1 bytes": b"\x7f\xff\xff\xff",
    "row 04: zero length": b"\0\0\0\0",
    "row 04: one byte": frame(b"\0"),
    "row 04: shorter than a header": frame(b"\0\x12\0"),
    "row 04: a header without a client id": frame(b"\0\x12\0\3\0\0\0\1"),
    "row 04: a flexible header without tags": frame(header(18, 3)[:-1]),
    "row 04: a header and no body": frame(METADATA_1),
    "row 05: an unknown API": frame(b"\x03\xe7\0\0\0\0\0\1\0\1c"),
    "row 05: a negative API": frame(b"\xff\xff\0\0\0\0\0\1\0\1c"),
    "row 05: an API between brokers": frame(b"\0\4\0\7\0\0\0\1\0\1c\0"),
    "row 05: a future version": frame(b"\0\x0c\0\x63\0\0\0\1\0\1c\0"),
    "row 05: a negative version": frame(b"\0\x0c\xff\xff\0\0\0\1\0\1c"),
    "row 05: a removed version": frame(b"\0\0\0\2\0\0\0\1\0\1c"),
    "row 06: HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "row 06: a TLS hello": bytes.fromhex("1603010200010001fc0303") + bytes(64),
    "row 06: SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "row 06: noise": b"\xde\xad\xbe\xef" * 64,
    "row 08: client id longer than the request": frame(b"\0\x12\0\3\0\0\0\1\x7f\xff"),
    "row 08: a text of -2 bytes": frame(METADATA_1 + b"\0\0\0\1\xff\xfe"),
    "row 08: null where there must be a text": frame(header(12, 0) + b"\xff\xff\0\0\0\1\0\1m"),
    "row 08: compact null where there must be a text": frame(HEARTBEAT_4 + b"\0\0\0\0\1\2m\0\0"),
    "row 08: a compact text of 32768 bytes": frame(
        HEARTBEAT_4 + varint(32769) + b"g" * 32768 + b"\0\0\0\1\2m\0\0"
    ),
    "row 09: a varint without an end": frame(METADATA_12 + b"\xff" * 12),
    "row 09: ten megabytes of one": frame(METADATA_12 + b"\xff" * 10_000_000),
    "row 10: tags without an end": frame(METADATA_12[:-1] + b"\xff\xff\xff\xff\x0f"),
    "row 10: a tag larger than the request": frame(METADATA_12[:-1] + b"\1\0\xff\xff\xff\xff\x07"),
    "row 10: the same tag twice": frame(METADATA_12[:-1] + b"\2\7\0\7\0" + VERSIONS[-20:]),
    "row 10: tags that fall": frame(METADATA_12[:-1] + b"\2\7\0\6\0" + VERSIONS[-20:]),
}


ACCEPTED_BY_KAFKA = {"row 10: the same tag twice", "row 10: tags that fall"}


@pytest.mark.parametrize("name", INVALID_REQUESTS)
def test_rows_01_to_10_an_invalid_request(name: str, target: Target) -> None:
    """The connection is closed without a response; the next connection is served."""
    if target.is_kafka and name in ACCEPTED_BY_KAFKA:
        pytest.skip("Kafka accepts it")
    with target.client() as client:
        client.send_if_open(INVALID_REQUESTS[name])
        assert client.is_closed()
    assert_serves(target)


def test_row_08_text_that_is_not_utf_8_is_answered(target: Target) -> None:
    """What is malformed is replaced, in the client id and in strings. A repeated request is answered too."""
    with target.client() as client:
        for _ in range(2):
            client.send(frame(b"\0\x0f\0\5\0\0\0\7\0\2\xff\xfe\0" + b"\2\4g\xff!" + b"\0\0"))
            data = client.frame()
            assert data is not None
            described: Any = decode(API_KEYS[15].response, 5, data, 5)
            assert [group.group_id for group in described.groups] == ["g\ufffd!"]


def test_row_08_a_member_whose_client_id_is_not_utf_8(target: Target) -> None:
    """It is described with the replaced text, and its repeated heartbeats are answered."""
    joining = ShareGroupHeartbeatRequest(
        group_id="row-08", member_id="m", member_epoch=0, subscribed_topic_names=("no-topic",)
    )
    with target.client() as client:

        def beat(request: ShareGroupHeartbeatRequest) -> Any:
            client.send(frame(b"\0\x4c\0\1\0\0\0\7\0\2c\xff\0" + encode(request, 1)))
            data = client.frame()
            assert data is not None
            return decode(API_KEYS[76].response, 1, data, 5)

        target.coordinator("row-08")
        joined = beat(joining)
        assert joined.error_code == 0
        staying = ShareGroupHeartbeatRequest(
            group_id="row-08", member_id="m", member_epoch=joined.member_epoch, subscribed_topic_names=None
        )
        assert [beat(staying).error_code for _ in range(3)] == [0, 0, 0]
        described = client.ask(ShareGroupDescribeRequest(group_ids=("row-08",)))
        assert [member.client_id for member in described.groups[0].members] == ["c\ufffd"]


SERVED = [api for api in API_KEYS.values() if api.key not in (4, 5, 6, 7)]


@pytest.mark.parametrize("api", SERVED, ids=lambda api: api.name)
def test_rows_07_and_08_a_count_of_2_147_483_647(api: Api, target: Target) -> None:
    """A length of 2^31 - 1, in each array, string and blob of each version, closes the connection cheaply."""
    before = target.rss_mib
    known = target.versions.get(api.key)
    for version in range(known[0], known[1] + 1) if known else ():
        for field, wrap, compact in holes(api.request, version):
            width = 2 if field.kind == "string" and not compact else 4
            count = varint(HUGE) if compact else (HUGE if width == 4 else 32767).to_bytes(width, "big")
            with target.client() as client:
                client.send(frame(header(api.key, version) + wrap(count)))
                assert client.is_closed(), f"v{version} {field}"
    assert_serves(target)
    assert target.rss_mib - before < 15


@pytest.mark.parametrize("many", [1, 100, 100_000, 1_000_000])
def test_row_10_many_tags(many: int, target: Target) -> None:
    """Unknown tagged fields are ignored, however many there are."""
    before = target.rss_mib
    tags = varint(many) + b"".join(varint(tag) + b"\0" for tag in range(many))
    with target.client() as client:
        client.send(frame(header(16, 4)[:-1] + tags + b"\1\0"))
        response_bytes = client.frame()
    if target.is_kafka:
        assert (response_bytes is None) == (many > 10_000)  # Kafka closes the connection.
        return
    assert response_bytes is not None
    assert response_bytes[:4] == b"\0\0\0\7"
    assert target.rss_mib - before < 200


def test_row_11_a_frame_of_nothing_but_elements(target: Target) -> None:
    """A hundred MB of empty strings would be eight GB of objects: the connection is closed before that."""
    if target.is_kafka:
        pytest.skip("Kafka allocates them")
    before = target.rss_mib
    target.forget_the_peak()
    many = 100_000_000
    with target.client() as client:
        client.send_if_open(frame(header(16, 4) + varint(many + 1) + b"\1" * many + b"\0"))
        assert client.is_closed()
    assert_serves(target)
    assert target.peak_rss_mib - before < 350
    assert target.rss_mib - before < 120


@pytest.mark.parametrize("version", [0, 3, 4])
def test_row_12_trailing_bytes(version: int, target: Target) -> None:
    """Bytes after a request are ignored, as in Kafka: librdkafka and other clients send some."""
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    with target.client() as client:
        for rest in (b"", b"\0", b"trailing", os.urandom(5000)):
            client.send(frame(header(API_VERSIONS, version) + encode(request, version) + rest))
            response_bytes = client.frame()
            assert response_bytes is not None
            assert decode(ApiVersionsResponse, version, response_bytes, 4).error_code == 0


@pytest.mark.parametrize("version", [6, 99, 32767, -1])
def test_row_05_an_unsupported_api_versions_receives_the_supported_versions(
    version: int, target: Target
) -> None:
    """The response is UNSUPPORTED_VERSION in version 0, and the connection stays open."""
    with target.client() as client:
        head = b"\0\x12" + version.to_bytes(2, "big", signed=True) + b"\0\0\0\1\0\1c\0"
        client.send(frame(head + b"\2t\2" + b"1\0"))
        response_bytes = client.frame()
        assert response_bytes is not None
        response: Any = decode(ApiVersionsResponse, 0, response_bytes, 4)
        assert response.error_code == 35
        assert 18 in {key.api_key for key in response.api_keys}
        assert client.ask(ListGroupsRequest()) is not None


def test_rows_01_to_12_noise_in_every_version(target: Target) -> None:
    """A valid header and a random body: a response or a closed connection, for every API."""
    noise = [bytes(200), b"\1" * 200, b"\xff" * 200, *(os.urandom(60) for _ in range(3))]
    for key, (first, last) in sorted(target.versions.items()):
        for version in range(first, last + 1):
            for body in noise:
                with target.client() as client:
                    client.send(frame(header(key, version) + body))
                    client.socket.shutdown(1)
                    while client.socket.recv(1 << 16):
                        pass
    assert_serves(target)


def assert_serves(target: Target) -> None:
    assert target.ask(ListGroupsRequest()).error_code == 0
