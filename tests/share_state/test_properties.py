"""Invariants of the share coordinator under random requests, restarts and deletions of log records.

The model keeps the state of each offset and plain epochs, without batches or snapshots. After each step the
shard has the same state as the model, and so has another shard that replays the log. SH9: epochs and start
offsets never decrease, except by Initialize. SH10: batches do not overlap, none lies below the start offset,
and snapshot plus updates hold all written states.

One weakness is kept from Kafka: Initialize writes leader epoch 0. If only that record is left of the log, a
restart forgets the fenced leader epochs (`forget_leader_epochs`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests import depth
from tests.share_state.harness import KEY, ORDERS, OTHER, TOPICS, ShareStateHarness, decoded

from konvene.errors import Errors
from konvene.shard.image import Topics
from konvene.share_state.combine import is_normalized
from konvene.share_state.pruning import ORPHANS, PRUNE, SNAPSHOT_COLD
from konvene.share_state.requests import (
    Answer,
    Delete,
    Initialize,
    Read,
    ReadSummary,
    SharePartitionKey,
    StateBatch,
    TopicsDeleted,
    Write,
)

KEYS = (KEY, KEY._replace(partition=1), OTHER)
keys = st.sampled_from((KEY, *KEYS))
epochs = st.sampled_from((0, 0, 0, 0, 0, 1, 1, -1))
"""Difference from the current epoch."""
offsets = st.integers(-1, 30)
batches = st.lists(
    st.builds(
        lambda first, size, state, count: StateBatch(first, first + size, state, count),
        st.integers(0, 30),
        st.integers(0, 5),
        st.sampled_from((0, 2, 3, 4)),
        st.integers(1, 3),
    ),
    max_size=4,
).map(tuple)


@dataclass
class Model:
    """Expected state of a share partition."""

    state_epoch: int
    start: int
    complete_count: int
    leader_epoch: int = 0
    summary_leader_epoch: int = 0
    """Leader epoch of ReadSummary responses; Initialize resets it to 0."""
    states: dict[int, tuple[int, int]] = field(default_factory=dict)

    def move_start(self, start: int) -> None:
        self.start = start
        self.states = {offset: state for offset, state in self.states.items() if offset >= start}


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.harness = ShareStateHarness()
        self.models: dict[SharePartitionKey, Model] = {}
        self.steps = 0

    @initialize(limit=st.integers(0, 4))
    def begin(self, limit: int) -> None:
        self.harness = ShareStateHarness(updates_per_snapshot=limit)
        for key in KEYS:
            self.initialize_(key, 1, 0)

    def epochs_of(self, key: SharePartitionKey) -> tuple[int, int]:
        """Return the current state epoch and leader epoch; (1, 0) for an unknown share partition."""
        model = self.models.get(key)
        return (1, 0) if model is None else (model.state_epoch, model.leader_epoch)

    def has_topic(self, key: SharePartitionKey) -> bool:
        return key.topic_id in self.harness.topics.by_id

    @rule(key=keys, state_epoch=epochs, start=offsets)
    def initialize_(self, key: SharePartitionKey, state_epoch: int, start: int) -> None:
        model = self.models.get(key)
        state_epoch = max(0, state_epoch + self.epochs_of(key)[0])
        answer = self.harness.ask(Initialize(key, state_epoch, start))
        if model is not None and state_epoch < model.state_epoch:
            assert answer.error is Errors.FENCED_STATE_EPOCH
        elif not self.has_topic(key):
            assert answer.error is Errors.UNKNOWN_TOPIC_OR_PARTITION
        else:
            assert answer == Answer()
            highest = model.leader_epoch if model is not None else 0
            self.models[key] = Model(state_epoch, start, -1 if start == -1 else 0, highest)

    @rule(key=keys, leader_epoch=epochs)
    def read(self, key: SharePartitionKey, leader_epoch: int) -> None:
        model = self.models.get(key)
        leader_epoch = max(0, leader_epoch + self.epochs_of(key)[1])
        answer = self.harness.ask(Read(key, leader_epoch))
        if model is None:
            assert answer.error is Errors.INVALID_REQUEST
        elif leader_epoch < model.leader_epoch:
            assert answer.error is Errors.FENCED_LEADER_EPOCH
        elif not self.has_topic(key):
            assert answer.error is Errors.UNKNOWN_TOPIC_OR_PARTITION
        else:
            assert (answer.error, answer.state_epoch) == (Errors.NONE, model.state_epoch)
            assert answer.start_offset == model.start
            assert states_by_offset(answer.batches) == model.states
            if leader_epoch != model.leader_epoch:
                model.leader_epoch = model.summary_leader_epoch = leader_epoch

    @rule(
        key=keys,
        state_epoch=epochs,
        leader_epoch=epochs,
        start=offsets,
        complete_count=st.integers(-1, 9),
        state_batches=batches,
    )
    def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start: int,
        complete_count: int,
        state_batches: tuple[StateBatch, ...],
    ) -> None:
        model = self.models.get(key)
        state_epoch = max(0, state_epoch + self.epochs_of(key)[0])
        leader_epoch = max(0, leader_epoch + self.epochs_of(key)[1])
        answer = self.harness.ask(Write(key, state_epoch, leader_epoch, start, complete_count, state_batches))
        if model is None:
            assert answer.error is Errors.INVALID_REQUEST
        elif leader_epoch < model.leader_epoch:
            assert answer.error is Errors.FENCED_LEADER_EPOCH
        elif state_epoch < model.state_epoch:
            assert answer.error is Errors.FENCED_STATE_EPOCH
        elif not self.has_topic(key):
            assert answer.error is Errors.UNKNOWN_TOPIC_OR_PARTITION
        else:
            assert answer == Answer()
            self.apply_write(model, start, complete_count, state_batches)

    def apply_write(
        self, model: Model, start: int, complete_count: int, state_batches: tuple[StateBatch, ...]
    ) -> None:
        if start > model.start:
            model.complete_count = complete_count
            model.move_start(start)
        elif start == model.start:
            model.complete_count = max(model.complete_count, complete_count)
        for batch in state_batches:
            for offset in range(max(batch.first_offset, model.start), batch.last_offset + 1):
                state = batch.delivery_count, batch.delivery_state
                model.states[offset] = max(model.states.get(offset, state), state)

    @precondition(lambda self: self.steps % 4 == 0)
    @rule(key=keys)
    def delete(self, key: SharePartitionKey) -> None:
        answer = self.harness.ask(Delete(key))
        if not self.has_topic(key):
            assert answer.error is Errors.UNKNOWN_TOPIC_OR_PARTITION
        else:
            assert answer == Answer()
            self.models.pop(key, None)

    @rule(elapsed_ms=st.sampled_from((1, 300_000)))
    def time_passes(self, elapsed_ms: int) -> None:
        self.harness.now_ms += elapsed_ms
        self.harness.expire(SNAPSHOT_COLD)

    @rule()
    def prune(self) -> None:
        for effect in self.harness.expire(PRUNE):
            self.harness.delete_records(max(effect.subject, self.harness.start))

    @rule(pruned=st.booleans())
    def restart(self, pruned: bool) -> None:
        """Kill and restart the broker."""
        if pruned:
            self.prune()
        self.forget_leader_epochs()
        self.harness.shard = self.harness.restarted()
        timers = self.harness.shard.load(self.harness.context()).timers
        if ORPHANS in {timer.key for timer in timers}:
            self.harness.expire(ORPHANS)
            self.forget_orphans()

    def forget_leader_epochs(self) -> None:
        epochs = dict.fromkeys(KEYS, 0)
        for record in map(decoded, self.harness.log):
            key_fields: Any = record.key
            value: Any = record.value
            key = SharePartitionKey(key_fields.group_id, key_fields.topic_id, key_fields.partition)
            epochs[key] = 0 if value is None else max(epochs[key], value.leader_epoch)
        for key, model in self.models.items():
            model.leader_epoch = epochs[key]

    @precondition(lambda self: self.steps > 30 and ORDERS in self.harness.topics.by_id)
    @rule(notified=st.booleans())
    def delete_topic(self, notified: bool) -> None:
        """Delete a topic; the coordinator is notified at once, or finds out at the next restart."""
        self.harness.topics = Topics([topic for topic in TOPICS.by_id.values() if topic.id != ORDERS])
        if notified:
            self.harness.inform(TopicsDeleted(frozenset((ORDERS,))))
            self.forget_orphans()

    def forget_orphans(self) -> None:
        for key in KEYS:
            if not self.has_topic(key):
                self.models.pop(key, None)

    @invariant()
    def states_equal_the_model(self) -> None:
        self.steps += 1
        assert set(self.harness.shard.states) == set(self.models)
        for key, model in self.models.items():
            state = self.harness.state(key)
            assert (state.state_epoch, state.start_offset) == (model.state_epoch, model.start)
            assert state.highest_state_epoch == model.state_epoch
            assert state.highest_leader_epoch == model.leader_epoch
            assert state.delivery_complete_count == model.complete_count
            assert states_by_offset(state.batches) == model.states
            assert is_normalized(state.batches)
            if not self.has_topic(key):
                continue
            summary = self.harness.ask(ReadSummary(key, 0))
            assert (summary.state_epoch, summary.leader_epoch) == (
                model.state_epoch,
                model.summary_leader_epoch,
            )
            assert (summary.start_offset, summary.delivery_complete_count) == (
                model.start,
                model.complete_count,
            )

    @invariant()
    def restarted_shard_has_the_same_states(self) -> None:
        restarted = self.harness.restarted()
        for key, state in self.harness.shard.states.items():
            # The update counter and epochs of deleted records are not compared.
            assert restarted.states[key][:8] == state[:8]
        assert set(restarted.states) == set(self.harness.shard.states)


def states_by_offset(state_batches: tuple[StateBatch, ...]) -> dict[int, tuple[int, int]]:
    return {
        offset: (batch.delivery_count, batch.delivery_state)
        for batch in state_batches
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }


TestShareCoordinator = Machine.TestCase
TestShareCoordinator.settings = settings(
    max_examples=depth.examples(200), stateful_step_count=60, deadline=None
)
