"""Invariants of the log and of the state that it stands for, for every group type.

The shadow is a shard that replayed only what was decoded from the log. It is compared with the live shard:
what changed after each event, everything at every audit. The content of groups is compared by the invariants
of their types; here it is names, offsets, order and batches.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.shard import GroupShard
from konvene.groups.streams.group import StreamsGroup
from konvene.records.classic import GroupMetadataKey
from konvene.records.coordinator import Record
from konvene.records.transactional import InTransaction, TransactionEnded
from konvene.shard.contract import Outcome
from konvene.sim.world.event import EMPTY_VIEW, Event, Invariant, View, all_offsets

KINDS = ()


class ReplayEqualsLive(Invariant):
    """G1: the offsets replayed from the log are the live ones, and so are the groups; in the same order."""

    def after(self, event: Event) -> None:
        if event.is_complete:
            live, stored = event.after.offsets, all_offsets(event.runtime.shadow)
            if live != stored or list(live) != list(stored):
                assert dict(live) == stored, f"offsets are not those of the log: {_differ(live, stored)}"
                raise AssertionError(f"offsets in another order: {list(live)}, in the log {list(stored)}")
            names, known = list(event.after.groups), list(event.runtime.shadow.groups)
            assert names == known, f"the groups are {names}, in the log {known}"
            pending, logged = event.runtime.core.pending.by_group, event.runtime.shadow.pending.by_group
            assert pending == logged, f"pending is {pending}, in the log {logged}"
        elif event.changed:
            shadow = event.runtime.shadow
            for view in (event.before, event.after):
                for name in view.groups:
                    live_group, stored_group = name in event.after.groups, name in shadow.groups
                    assert live_group == stored_group, (
                        f"group {name}: live {live_group}, in the log {stored_group}"
                    )
            for key in event.before.offsets.keys() | event.after.offsets.keys():
                group, topic, partition = key
                stored_offset = shadow.offsets.get(group, {}).get(topic, {}).get(partition)
                held = event.after.offsets.get(key)
                assert held == stored_offset, f"offset of {key}: live {held}, in the log {stored_offset}"


class LoadRestores(Invariant):
    """G3: a load restores the state at the end of the previous process, if the log lost nothing. Groups
    without anything in the log may be missing, because of compaction."""

    def after(self, event: Event) -> None:
        if event.kind != "loaded" or event.before is EMPTY_VIEW or event.lost:
            return
        before, after = event.before, event.after
        assert before.offsets == after.offsets, f"loaded: {_differ(after.offsets, before.offsets)}"
        lost = _kept(before) - set(after.groups)
        assert not lost, f"groups were lost by loading: {sorted(lost)}"
        created = set(after.groups) - set(before.groups)
        assert not created, f"groups came by loading: {sorted(created)}"


class DecisionsChangeNothing(Invariant):
    """G5: only replay changes the state: a decision changes no value in place, and a rejected request, or a
    failed append, leaves no trace."""

    def after(self, event: Event) -> None:
        kept = event.runtime.kept
        if event.kind != "loaded":
            for name, group in event.before.groups.items():
                known = kept.get(name)
                assert known == group, f"group {name} was changed without a record: {known!r} is {group!r}"
        if event.kind == "audit":
            assert kept.keys() == event.before.groups.keys(), (
                f"groups came or went without a record: {sorted(kept.keys() ^ event.before.groups.keys())}"
            )
        if event.outcome is None:
            assert event.batch is None, "refused, yet there is a batch"
            assert not event.changed, "refused, yet something was replayed"
            assert not event.answered, "refused, yet others were answered"


class DecisionsAreOneBatch(Invariant):
    """G4: all records of one operation are in one batch, read as they were written, and each key once."""

    def __init__(self) -> None:
        self.end = -1

    def after(self, event: Event) -> None:
        end, batch, outcome = len(event.runtime.log.batches), event.batch, event.outcome
        if event.kind != "loaded" and self.end >= 0:
            appended = end - self.end
            assert appended == (batch is not None), f"{appended} batches were appended for one operation"
        self.end = end
        if event.kind == "too large":
            assert event.runtime.journal.failed, (
                f"what {event.api} decided cannot be written, or not be read again"
            )
        if outcome is None or event.kind == "loaded":
            return
        if batch is None:
            assert not outcome.records, "records that were decided are not in the log"
            return
        decided = written_as(outcome)
        assert batch.records == decided, f"the log says {batch.records}, decided was {decided}"
        ours = all(
            type(record) is not Record or type(record.key) is GroupMetadataKey for record in outcome.records
        )
        if ours and event.api not in ("OffsetCommit", "TxnOffsetCommit") and len(batch.pairs) > 1:
            # Of consumer groups Kafka itself writes a member twice that takes another's place.
            keys = Counter(key for key, _ in batch.pairs)
            assert len(keys) == len(batch.pairs), f"a key twice in one batch: {keys.most_common(1)}"


def written_as(outcome: Outcome) -> tuple[Any, ...]:
    """Return the records of an outcome as the log holds them: with the producer of a transaction, or its
    marker."""
    if outcome.ending is not None:
        return (TransactionEnded(outcome.ending.producer_id, outcome.ending.committed),)
    if outcome.producer is not None:
        return tuple(InTransaction(outcome.producer.producer_id, record) for record in outcome.records)
    return outcome.records


class TombstonesLeaveNothing(Invariant):
    """G8: a tombstone changes nothing in a shard without its group, as at the beginning of a compacted
    log."""

    def after(self, event: Event) -> None:
        batch = event.batch
        if batch is None or all(value is not None for _, value in batch.pairs):
            return
        shard = GroupShard()
        for (_, value), record in zip(batch.pairs, batch.records, strict=True):
            if value is None:
                shard.replay(record)
                assert not shard.groups and not shard.offsets, f"{record} made {shard!r} of nothing"


PAIRS = ({ClassicGroup, ConsumerGroup}, {ClassicGroup, StreamsGroup})
"""Group types that may be converted into each other while the group has members."""


class GroupsHaveOneType(Invariant):
    """G9: a group keeps its type and protocol type while it has members, except that a classic group and a
    consumer or streams group may be converted into each other."""

    def after(self, event: Event) -> None:
        if not (event.changed or event.is_complete):
            return
        for name, group in event.after.groups.items():
            assert group.group_id == name, f"group {group.group_id} is kept under the name {name}"
            old = event.before.groups.get(name)
            if old is group or old is None or event.kind == "loaded":
                continue
            if type(old) is not type(group):
                stayed = old.members.keys() & group.members.keys()
                pair = {type(old), type(group)} in PAIRS
                assert pair or not stayed, f"{old!r} became {group!r} under its members"
            elif isinstance(group, ClassicGroup) and old.members and group.members:
                was, is_now = old.protocol_type, group.protocol_type
                assert was == is_now, f"{name}: protocol type {was} became {is_now} under its members"


class RequestsAreAnsweredOnce(Invariant):
    """G12: every response answers a waiting request, once; a rejection answers only the rejected request."""

    def __init__(self) -> None:
        self.waiting: set[int] = set()

    def after(self, event: Event) -> None:
        if event.kind == "loaded" or event.kind == "append failed":
            self.waiting.clear()
            return
        if event.kind == "audit":
            assert self.waiting == event.runtime.undecided.keys(), (
                f"{sorted(self.waiting ^ event.runtime.undecided.keys())} wait, or do not"
            )
            return
        waiting = self.waiting
        if event.kind not in ("timer", "completion"):
            waiting.add(event.waiter)
            if event.outcome is None:
                assert isinstance(event.answer, Errors), "refused without an error"
                waiting.discard(event.waiter)
        for waiter, _ in event.answered:
            assert waiter in waiting, f"{waiter} is answered and does not wait"
            waiting.discard(waiter)


def _differ(live: object, stored: object) -> str:
    """Describe the first differences of two mappings."""
    assert isinstance(live, dict)
    assert isinstance(stored, dict)
    keys = sorted(key for key in live.keys() | stored.keys() if live.get(key) != stored.get(key))
    return ", ".join(f"{key} is {live.get(key)} and was {stored.get(key)}" for key in keys[:3])


def _kept(view: View) -> set[str]:
    """Return the groups that have something in the log even after compaction."""
    with_offsets = {key[0] for key in view.offsets}
    return {
        name
        for name, group in view.groups.items()
        if not getattr(group, "is_simple", False) or name in with_offsets
    }
