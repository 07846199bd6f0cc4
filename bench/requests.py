"""Requests without records: ApiVersions, Heartbeat, OffsetCommit, OffsetFetch.

64 connections with one request in flight each resemble real clients; they are the main figures.
"""

from __future__ import annotations

from bench.drive import Caller, Repeated, drive, run
from bench.figures import Figure, rates
from bench.members import make_group
from bench.systems import NO_SYNC, Lab, Running
from bench.topics import Topic, make_topic, new_name, prove, wait_for_coordinator
from bench.wire import frame_of
from konvene.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from konvene.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

CONNECTIONS = 64
GROUPS = 10
MEMBERS = 100
PARTITIONS = 100
#: An ApiVersions answer up to its error code. In Kafka's the epoch of the features grows by itself.
SAME = 6


def api_versions(lab: Lab) -> list[Figure]:
    running = lab.shared()
    request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
    proven = prove(running, request, ApiVersionsResponse, lambda answer: answer.error_code == 0)
    callers = [Repeated([frame_of(request)], proven, SAME) for _ in range(lab.of(CONNECTIONS))]
    return _drive(lab, running, callers, "api-versions")


def heartbeat(lab: Lab, connections: int) -> list[Figure]:
    """Measure heartbeats of ten stable classic groups of a hundred; one connection sends for many members."""
    running = lab.shared()
    topic = make_topic(running, PARTITIONS)
    wait_for_coordinator(running, "heartbeat")
    beats: list[HeartbeatRequest] = []
    for _ in range(lab.of(GROUPS)):
        beats += run(make_group(running.port, topic, lab.of(MEMBERS)))
    proven = prove(running, beats[0], HeartbeatResponse, lambda answer: answer.error_code == 0)
    frames = [frame_of(beat) for beat in beats]
    connections = min(connections, len(frames))
    callers = [Repeated(frames[i::connections], proven) for i in range(connections)]
    return _drive(lab, running, callers, "heartbeat")


def commit(lab: Lab, partitions: int, sync: bool = True) -> list[Figure]:
    """Measure commits of groups without members."""
    running = lab.shared(None if sync else NO_SYNC)
    topic = make_topic(running, PARTITIONS)
    wait_for_coordinator(running, "commit")
    callers = []
    for _ in range(lab.of(CONNECTIONS)):
        request = commit_of(new_name("group"), topic, lab.of(partitions) if partitions > 1 else 1, 1_234_567)
        proven = prove(running, request, OffsetCommitResponse, committed)
        callers.append(Repeated([frame_of(request)], proven))
    return _drive(lab, running, callers, "commit")


def offset_fetch(lab: Lab) -> list[Figure]:
    """Measure OffsetFetch of all hundred committed partitions of a group."""
    running = lab.shared()
    topic = make_topic(running, PARTITIONS)
    wait_for_coordinator(running, "commit")
    callers = []
    for _ in range(lab.of(CONNECTIONS)):
        group = new_name("group")
        prove(running, commit_of(group, topic, PARTITIONS, 42), OffsetCommitResponse, committed)
        request = all_offsets_of(group)
        proven = prove(running, request, OffsetFetchResponse, lambda a: offsets(a) == [42] * PARTITIONS)
        callers.append(Repeated([frame_of(request)], proven))
    return _drive(lab, running, callers, "offset-fetch")


def _drive(lab: Lab, running: Running, callers: list[Repeated], family: str) -> list[Figure]:
    lines: list[Caller] = [*callers]
    return rates(drive(running.port, lines, 1, lab.warmed(running, family), running.cpu_s))


def commit_of(group: str, topic: Topic, partitions: int, offset: int) -> OffsetCommitRequest:
    committed = tuple(
        OffsetCommitRequestPartition(partition_index=i, committed_offset=offset, committed_metadata="")
        for i in range(partitions)
    )
    topics = (OffsetCommitRequestTopic(topic_id=topic.topic_id, partitions=committed),)
    return OffsetCommitRequest(group_id=group, topics=topics)


def committed(answer: OffsetCommitResponse) -> bool:
    return all(p.error_code == 0 for topic in answer.topics for p in topic.partitions)


def all_offsets_of(group: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=None),))


def offsets(answer: OffsetFetchResponse) -> list[int]:
    """Return the committed offsets of the group; empty after an error."""
    group = answer.groups[0]
    if group.error_code:
        return []
    return [p.committed_offset for topic in group.topics for p in topic.partitions]
