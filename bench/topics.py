"""Creation of topics and coordinators before a measurement."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import NamedTuple

from bench.systems import Running
from bench.wire import WAIT_S, Peer, Response, frame_of, read
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from konvene.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from konvene.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

_numbers = itertools.count(1)


def new_name(kind: str) -> str:
    """Return a unique name."""
    return f"bench-{kind}-{next(_numbers):04}"


class Topic(NamedTuple):
    """A created topic."""

    name: str
    topic_id: Uuid
    partitions: int


def make_topic(running: Running, partitions: int, **configs: str) -> Topic:
    name = new_name("topic")
    creatable = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=tuple(CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()),
    )
    with Peer(running.port) as peer:
        answer = peer.ask(CreateTopicsRequest(topics=(creatable,)), CreateTopicsResponse)
    made = answer.topics[0]
    if made.error_code:
        raise RuntimeError(f"topic {name}: error {made.error_code} {made.error_message or ''}")
    return Topic(name, made.topic_id, partitions)


def delete_topic(running: Running, topic: Topic) -> None:
    with Peer(running.port) as peer:
        peer.ask(DeleteTopicsRequest(topic_names=(topic.name,), timeout_ms=30_000), DeleteTopicsResponse)


def wait_for_coordinator(running: Running, group: str) -> None:
    prove(
        running,
        FindCoordinatorRequest(coordinator_keys=(group,)),
        FindCoordinatorResponse,
        lambda answer: answer.coordinators[0].error_code == 0,
    )


def prove(
    running: Running, request: Struct, kind: type[Response], right: Callable[[Response], bool]
) -> bytes:
    """Repeat a request until the response is accepted, such as while a coordinator loads; return its
    bytes."""
    frame = frame_of(request)
    until = time.monotonic() + WAIT_S
    with Peer(running.port) as peer:
        while True:
            body = peer.exchange(frame)
            answer = read(kind, body)
            if right(answer):
                return body
            if time.monotonic() > until:
                raise RuntimeError(f"no right answer in {WAIT_S:g} s, but {str(answer)[:300]}")
            time.sleep(0.005)
