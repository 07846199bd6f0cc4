"""Evidence from outside of the groups' records, which settles causes that the records leave open.

There are two sources: brokers' application logs (`answers.broker_log`) and descriptions of groups that a
follower polled (`answers.observations`). Both return rebalances with other causes, which `with_causes` puts
into all columns that depend on them. What the evidence does not settle stays as it was inferred.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from konvene.pipeline.answers.rebalance import Cause, Rebalance
from konvene.shard import causes

__all__ = [
    "DEPARTURES", "Evidence", "Generation", "GenerationMember", "Generations", "is_certain", "with_causes",
]  # fmt: skip

DEPARTURES = frozenset({
    causes.MEMBER_DEPARTED, causes.MEMBER_LEFT, causes.SESSION_EXPIRED, causes.REBALANCE_TIMEOUT,
    causes.SYNC_TIMEOUT, causes.REMOVED_BY_ADMIN, causes.FENCED,
})  # fmt: skip
"""Causes that are the departure of a member."""


class GenerationMember(NamedTuple):
    """A member of a stored generation, with its timeouts in ms."""

    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None


class Generation(NamedTuple):
    """A generation of a classic group as its record has it, with the offset of the record."""

    number: int
    offset: int
    members: Mapping[str, GenerationMember]


class Generations(Protocol):
    """Access to the stored generations of classic groups."""

    def previous_generation(self, rebalance: Rebalance) -> Generation | None:
        """Return the generation that a rebalance replaced; None if no record of it is available."""


class Evidence(Protocol):
    """A source of evidence."""

    def settled(self, rebalance: Rebalance, generations: Generations) -> Rebalance:
        """Return a rebalance with the causes that the evidence settles; unchanged if there are none."""


def is_certain(cause: Cause) -> bool:
    """Return True if a cause has no alternatives."""
    return len(cause.kinds) == 1 and cause.kind not in (causes.UNKNOWN, causes.MEMBER_DEPARTED)


def with_causes(rebalance: Rebalance, found: Sequence[Cause], **columns: Any) -> Rebalance:
    """Return a rebalance with other causes, strongest first, and other values of these columns.

    If no session can have expired, no partition was silent."""
    first = found[0]
    expired = any({causes.SESSION_EXPIRED, causes.MEMBER_DEPARTED} & set(c.kinds) for c in found)
    return replace(
        rebalance, causes=tuple(found), cause=first.kind, member_id=first.member_id,
        instance_id=first.instance_id, client_id=first.client_id, client_host=first.client_host,
        reason=first.reason, cause_topic=first.topic,
        silent_units=rebalance.silent_units if expired else 0,
        silent_ms=rebalance.silent_ms if expired else 0, **columns,
    )  # fmt: skip
