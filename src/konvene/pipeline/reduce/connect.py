"""Connectors and tasks that the workers of a Kafka Connect group run, from their generation's record.

The leader's assignment is opaque to the coordinator. Its layout is that of Kafka 4.4's `ConnectProtocol`
(version 0) and `IncrementalCooperativeConnectProtocol` (1, and 2 for sessions, which has the same layout):

    version 0   everything that the worker runs: it stops all when it rejoins
    1 and 2     what the worker starts and what it stops (`revoked`). It goes on running what it ran when it
                joined, and reports that in its JoinGroup metadata, as an assignment in this layout
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from konvene.codec.compile import decode_from
from konvene.codec.errors import CodecError
from konvene.codec.schema import Struct, array, bytes_, int16, int32, int64, string
from konvene.pipeline.reduce.ownership import CONNECTOR, TASK, Unit
from konvene.records.classic import MemberMetadata

__all__ = ["CONNECT", "worker_units"]

CONNECT = "connect"
"""The protocol type of Kafka Connect."""
_CONNECTOR_TASK = -1
"""The task number that stands for the connector itself."""
_LATEST_VERSION = 2


class ConnectorAssignment(Struct):
    connector: str = string("0+")
    """Name of the connector."""
    tasks: tuple[int, ...] = array(int32, "0+")
    """Task numbers; -1 for the connector itself."""


class WorkerAssignment(Struct, versions="0-2"):
    error: int = int16("0+")
    """0; 1 if the leader lacks the latest configuration and assigned nothing."""
    leader: str = string("0+")
    """Member id of the leader."""
    leader_url: str = string("0+")
    """URL of the leader's REST interface."""
    config_offset: int = int64("0+")
    """Offset in the config topic up to which the assignment takes configurations into account."""
    assignment: tuple[ConnectorAssignment, ...] | None = array(ConnectorAssignment, "0+", nullable="1+")
    """Connectors and tasks to run; from version 1 on, to start."""
    revoked: tuple[ConnectorAssignment, ...] | None = array(ConnectorAssignment, "1+", nullable="1+")
    """Connectors and tasks to stop."""
    scheduled_delay: int = int32("1+")
    """Milliseconds until the worker rejoins, so that the leader can assign what departed workers ran."""


class WorkerMetadata(Struct, versions="0-2"):
    url: str = string("0+")
    """URL of the worker's REST interface."""
    config_offset: int = int64("0+")
    """Offset of the worker in the config topic."""
    allocation: bytes | None = bytes_("1+", nullable="1+")
    """What the worker runs, as an assignment; null if nothing."""


_S = TypeVar("_S", bound=Struct)


def worker_units(member: MemberMetadata) -> set[Unit]:
    """Return the connectors and tasks that a worker runs once it has its assignment.

    A connector is `(name, -1, "connector")`, a task `(name, number, "task")`."""
    assigned = _decode(WorkerAssignment, member.assignment)
    if assigned is None or not _version(member.assignment):
        return set() if assigned is None else _units(assigned.assignment)
    metadata = _decode(WorkerMetadata, member.subscription)
    allocation = None if metadata is None else metadata.allocation
    running = None if allocation is None else _decode(WorkerAssignment, allocation)
    kept = set() if running is None else _units(running.assignment) - _units(assigned.revoked)
    return kept | _units(assigned.assignment)


def _units(some: Iterable[ConnectorAssignment] | None) -> set[Unit]:
    return {
        (each.connector, number, CONNECTOR if number == _CONNECTOR_TASK else TASK)
        for each in some or ()
        for number in each.tasks
    }


def _version(data: bytes) -> int:
    return min(int.from_bytes(data[:2], "big", signed=True), _LATEST_VERSION)


def _decode(cls: type[_S], data: bytes) -> _S | None:
    """Decode an assignment or metadata, which begins with a version; None if it is empty or malformed."""
    if len(data) < 2 or _version(data) < 0:
        return None
    try:
        return decode_from(cls, _version(data), bytes(data), 2)[0]
    except CodecError:
        return None
