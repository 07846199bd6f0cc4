"""A described group as a value, and as a line of JSON.

An observation is tied to the group's log by two offsets, so that no clock of a broker is needed: it has the
effects of all records before `first_offset`, and of none from `next_offset` on. Its times are those of the
follower's clock, which are only compared within one run of the follower.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["NOT_KNOWN", "Observation", "ObservedMember", "decode", "encode"]

NOT_KNOWN = -1


class ObservedMember(NamedTuple):
    """A member of a described group."""

    epoch: int = NOT_KNOWN
    """Its member epoch; -1 in a classic group."""
    session_timeout_ms: int = NOT_KNOWN
    """Its session timeout if that is a config of the group; -1 if it is not, or not known."""
    heartbeat_age_ms: int = NOT_KNOWN
    """Time since its last heartbeat, which only konvene brokers report."""
    instance_id: str | None = None


class Observation(NamedTuple):
    """The state of a group while it was described, from `begin_ms` to `end_ms`."""

    cluster: str
    group_id: str
    group_type: str
    state: str
    run_ms: int
    """Start of the follower's run."""
    begin_ms: int
    end_ms: int
    log_partition: int
    first_offset: int
    """End of the group's log before the request."""
    next_offset: int
    """End of the group's log after the response."""
    leader_epoch: int
    """Leader epoch of that log: it is another one for another coordinator, or after a restart."""
    members: Mapping[str, ObservedMember]

    def is_continued_by(self, later: Observation) -> bool:
        """Return True if a later observation is of the same coordinator, in the same run of the follower."""
        return (self.run_ms, self.leader_epoch) == (later.run_ms, later.leader_epoch)

    def is_same_state(self, other: Observation) -> bool:
        """Return True if the group was in the same state: only times, offsets and heartbeats differ."""
        return self._state() == other._state()

    def _state(self) -> tuple[object, ...]:
        members = {key: member._replace(heartbeat_age_ms=NOT_KNOWN) for key, member in self.members.items()}
        return (*self[:5], self.leader_epoch, members)


def encode(observation: Observation) -> bytes:
    """Return an observation as a line of JSON."""
    fields = observation._asdict() | {"members": {k: list(m) for k, m in observation.members.items()}}
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Observation | None:
    """Return the observation of a line; None for a line that is not one."""
    try:
        fields = json.loads(line)
        members = {str(key): ObservedMember(*values) for key, values in fields.pop("members").items()}
        found = Observation(**fields, members=members)
    except (ValueError, TypeError, AttributeError, KeyError):
        return None
    numbers = (*found[4:11], *(n for m in members.values() for n in m[:3]))
    texts = (*found[:4], *(m.instance_id or "" for m in members.values()))
    is_valid = all(type(n) is int for n in numbers) and all(isinstance(t, str) for t in texts)
    return found if is_valid else None
