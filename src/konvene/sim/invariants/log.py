"""Invariants of the log and of the state that it stores, for groups of every type.

The shadow is a shard that replays what is decoded from the log. It is compared with the live shard: after
each event the parts that changed, at every audit all of it. Here names, offsets, order and batches are
compared; the content of groups is left to the invariants of their types.
"""

from __future__ import annotations

from collections import Counter

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
    """G1: offsets and groups replayed from the log equal the live ones, in the same order."""

    def after(self, event: Event) -> None:
        if event.is_complete:
            live, stored = event.after.offsets, all_offsets(event.runtime.shadow)
            if live != stored or list(live) != list(stored):
                assert dict(live) == stored, f"offsets differ from the log: {_differences(live, stored)}"
                raise AssertionError(f"offsets in another order: {list(live)}, in the log {list(stored)}")
            names, logged = list(event.after.groups), list(event.runtime.shadow.groups)
            assert names == logged, f"the groups are {names}, in the log {logged}"
            pending = event.runtime.core.pending.by_group
            logged_pending = event.runtime.shadow.pending.by_group
            assert pending == logged_pending, f"pending offsets are {pending}, in the log {logged_pending}"
        elif event.changed:
            shadow = event.runtime.shadow
            for view in (event.before, event.after):
                for name in view.groups:
                    is_live, is_stored = name in event.after.groups, name in shadow.groups
                    assert is_live == is_stored, (
                        f"group {name} exists: live {is_live}, in the log {is_stored}"
                    )
            for key in event.before.offsets.keys() | event.after.offsets.keys():
                group, topic, partition = key
                stored_offset = shadow.offsets.get(group, {}).get(topic, {}).get(partition)
                live_offset = event.after.offsets.get(key)
                assert live_offset == stored_offset, (
                    f"offset of {key}: live {live_offset}, in the log {stored_offset}"
                )


class LoadRestores(Invariant):
    """G3: a load restores the state at the end of the previous process, if the log lost no batches. Groups
    without a record may be missing, because of compaction."""

    def after(self, event: Event) -> None:
        if event.kind != "loaded" or event.before is EMPTY_VIEW or event.lost:
            return
        before, after = event.before, event.after
        assert before.offsets == after.offsets, (
            f"loaded offsets differ: {_differences(after.offsets, before.offsets)}"
        )
        lost = _groups_with_records(before) - set(after.groups)
        assert not lost, f"loading lost the groups {sorted(lost)}"
        created = set(after.groups) - set(before.groups)
        assert not created, f"loading created the groups {sorted(created)}"


class DecisionsChangeNothing(Invariant):
    """G5: only replayed records change the state: a decision changes no value in place, and a rejected
    request or a failed append changes nothing."""

    def after(self, event: Event) -> None:
        kept = event.runtime.kept
        if event.kind != "loaded":
            for name, group in event.before.groups.items():
                copy = kept.get(name)
                assert copy == group, f"group {name} changed without a record: {copy!r} is now {group!r}"
        if event.kind == "audit":
            assert kept.keys() == event.before.groups.keys(), (
                f"groups were created or deleted without a record:"
                f" {sorted(kept.keys() ^ event.before.groups.keys())}"
            )
        if event.outcome is None:
            assert event.batch is None, "rejected, but a batch was written"
            assert not event.changed, "rejected, but records were replayed"
            assert not event.answered, "rejected, but other requests were answered"


class DecisionsAreOneBatch(Invariant):
    """G4: the records of one decision form one batch, are read as they were written, and have distinct
    keys."""

    def __init__(self) -> None:
        self.end = -1

    def after(self, event: Event) -> None:
        end, batch, outcome = len(event.runtime.log.batches), event.batch, event.outcome
        if event.kind != "loaded" and self.end >= 0:
            appended = end - self.end
            assert appended == (batch is not None), f"one decision appended {appended} batches"
        self.end = end
        if event.kind == "too large":
            assert event.runtime.journal.failed, (
                f"the records of {event.api} cannot be encoded, or not be decoded again"
            )
        if outcome is None or event.kind == "loaded":
            return
        if batch is None:
            assert not outcome.records, "the records of a decision are not in the log"
            return
        decided = logged_records(outcome)
        assert batch.records == decided, f"the log has {batch.records}, decided were {decided}"
        classic = all(
            type(record) is not Record or type(record.key) is GroupMetadataKey for record in outcome.records
        )
        if classic and event.api not in ("OffsetCommit", "TxnOffsetCommit") and len(batch.pairs) > 1:
            # For consumer groups Kafka itself writes a replaced static member twice.
            keys = Counter(key for key, _ in batch.pairs)
            assert len(keys) == len(batch.pairs), f"one batch has a key twice: {keys.most_common(1)}"


def logged_records(outcome: Outcome) -> tuple[object, ...]:
    """Return the records of an outcome as they are replayed from the log: those of a transaction with their
    producer id, and the end of a transaction as one record for its marker."""
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
                assert not shard.groups and not shard.offsets, f"{record} created {shard!r}"


CONVERTIBLE = ({ClassicGroup, ConsumerGroup}, {ClassicGroup, StreamsGroup})
"""Group types that may be converted into each other while the group has members."""


class GroupsHaveOneType(Invariant):
    """G9: a group keeps its type and protocol type while it has members. Only a classic group and a consumer
    or streams group may be converted into each other."""

    def after(self, event: Event) -> None:
        if not (event.changed or event.is_complete):
            return
        for name, group in event.after.groups.items():
            assert group.group_id == name, f"group {group.group_id} is stored as {name}"
            old = event.before.groups.get(name)
            if old is group or old is None or event.kind == "loaded":
                continue
            if type(old) is not type(group):
                common = old.members.keys() & group.members.keys()
                convertible = {type(old), type(group)} in CONVERTIBLE
                assert convertible or not common, f"{old!r} became {group!r}, which keeps {sorted(common)}"
            elif isinstance(group, ClassicGroup) and old.members and group.members:
                before, now = old.protocol_type, group.protocol_type
                assert before == now, f"{name}: protocol type {before} became {now}, with members"


class RequestsAreAnsweredOnce(Invariant):
    """G12: every response answers one pending request; a rejection answers only the rejected request."""

    def __init__(self) -> None:
        self.waiting: set[int] = set()

    def after(self, event: Event) -> None:
        if event.kind == "loaded" or event.kind == "append failed":
            self.waiting.clear()
            return
        if event.kind == "audit":
            pending = event.runtime.undecided.keys()
            assert self.waiting == pending, (
                f"pending are {sorted(pending)}, without a response {sorted(self.waiting)}"
            )
            return
        waiting = self.waiting
        if event.kind not in ("timer", "completion"):
            waiting.add(event.waiter)
            if event.outcome is None:
                assert isinstance(event.answer, Errors), "rejected without an error"
                waiting.discard(event.waiter)
        for waiter, _ in event.answered:
            assert waiter in waiting, f"request {waiter} is answered, but not pending"
            waiting.discard(waiter)


def _differences(live: object, stored: object) -> str:
    """Describe the first differences of two mappings."""
    assert isinstance(live, dict)
    assert isinstance(stored, dict)
    keys = sorted(key for key in live.keys() | stored.keys() if live.get(key) != stored.get(key))
    return ", ".join(f"{key} is {live.get(key)}, not {stored.get(key)}" for key in keys[:3])


def _groups_with_records(view: View) -> set[str]:
    """Return the groups that have records in the log even after compaction."""
    with_offsets = {key[0] for key in view.offsets}
    return {
        name
        for name, group in view.groups.items()
        if not getattr(group, "is_simple", False) or name in with_offsets
    }
