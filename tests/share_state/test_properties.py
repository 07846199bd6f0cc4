"""What holds of the share coordinator whatever is asked, whoever dies, and whatever is cut off its log.

The model knows offsets one by one, epochs as numbers, and nothing of batches or snapshots. After each step
the shard must say what the model says; and the shard that a restart would make must be the same one.
SH9: epochs and start offsets only grow, unless somebody begins anew. SH10: batches do not overlap, none lies
before the start offset, and snapshots and updates together say what was told.

One thing is as in Kafka and not as one would wish: whoever begins anew writes leader epoch 0, so when that is
all that is left of a log, a restart forgets which leaders are over (`forget_leaders`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests import depth
from tests.share_state.asking import KEY, ORDERS, OTHER, TOPICS, Asked, decoded

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
"""How far from the one that is known."""
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
class Known:
    """What the model knows of a share partition."""

    state_epoch: int
    start: int
    done: int
    leader_epoch: int = 0
    told_leader: int = 0
    """As a summary tells it, which forgets it where somebody begins anew."""
    states: dict[int, tuple[int, int]] = field(default_factory=dict)

    def move_to(self, start: int) -> None:
        self.start = start
        self.states = {offset: said for offset, said in self.states.items() if offset >= start}


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.asked = Asked()
        self.known: dict[SharePartitionKey, Known] = {}
        self.steps = 0

    @initialize(limit=st.integers(0, 4))
    def begin(self, limit: int) -> None:
        self.asked = Asked(updates_per_snapshot=limit)
        for key in KEYS:
            self.initialize_(key, 1, 0)

    def epochs_of(self, key: SharePartitionKey) -> tuple[int, int]:
        """Of state and leader, or any where it is not known."""
        known = self.known.get(key)
        return (1, 0) if known is None else (known.state_epoch, known.leader_epoch)

    def has_topic(self, key: SharePartitionKey) -> bool:
        return key.topic_id in self.asked.topics.by_id

    @rule(key=keys, state_epoch=epochs, start=offsets)
    def initialize_(self, key: SharePartitionKey, state_epoch: int, start: int) -> None:
        known = self.known.get(key)
        state_epoch = max(0, state_epoch + self.epochs_of(key)[0])
        answer = self.asked.ask(Initialize(key, state_epoch, start))
        if known is not None and state_epoch < known.state_epoch:
            assert answer.error is Errors.FENCED_STATE_EPOCH
        elif not self.has_topic(key):
            assert answer.error is Errors.UNKNOWN_TOPIC_OR_PARTITION
        else:
            assert answer == Answer()
            highest = known.leader_epoch if known is not None else 0
            self.known[key] = Known(state_epoch, start, -1 if start == -1 else 0, highest)

    @rule(key=keys, leader_epoch=epochs)
    def read(self, key: SharePartitionKey, leader_epoch: int) -> None:
        known = self.known.get(key)
        leader_epoch = max(0, leader_epoch + self.epochs_of(key)[1])
        answer = self.asked.ask(Read(key, leader_epoch))
        if known is None:
            assert answer.error is Errors.INVALID_REQUEST
        elif leader_epoch < known.leader_epoch:
            assert answer.error is Errors.FENCED_LEADER_EPOCH
        elif not self.has_topic(key):
            assert answer.error is Errors.UNKNOWN_TOPIC_OR_PARTITION
        else:
            assert (answer.error, answer.state_epoch) == (Errors.NONE, known.state_epoch)
            assert answer.start_offset == known.start
            assert says(answer.batches) == known.states
            if leader_epoch != known.leader_epoch:
                known.leader_epoch = known.told_leader = leader_epoch

    @rule(
        key=keys,
        state_epoch=epochs,
        leader_epoch=epochs,
        start=offsets,
        done=st.integers(-1, 9),
        told=batches,
    )
    def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start: int,
        done: int,
        told: tuple[StateBatch, ...],
    ) -> None:
        known = self.known.get(key)
        state_epoch = max(0, state_epoch + self.epochs_of(key)[0])
        leader_epoch = max(0, leader_epoch + self.epochs_of(key)[1])
        answer = self.asked.ask(Write(key, state_epoch, leader_epoch, start, done, told))
        if known is None:
            assert answer.error is Errors.INVALID_REQUEST
        elif leader_epoch < known.leader_epoch:
            assert answer.error is Errors.FENCED_LEADER_EPOCH
        elif state_epoch < known.state_epoch:
            assert answer.error is Errors.FENCED_STATE_EPOCH
        elif not self.has_topic(key):
            assert answer.error is Errors.UNKNOWN_TOPIC_OR_PARTITION
        else:
            assert answer == Answer()
            self.learn(known, start, done, told)

    def learn(self, known: Known, start: int, done: int, told: tuple[StateBatch, ...]) -> None:
        if start > known.start:
            known.done = done
            known.move_to(start)
        elif start == known.start:
            known.done = max(known.done, done)
        for batch in told:
            for offset in range(max(batch.first_offset, known.start), batch.last_offset + 1):
                said = batch.delivery_count, batch.delivery_state
                known.states[offset] = max(known.states.get(offset, said), said)

    @precondition(lambda self: self.steps % 4 == 0)
    @rule(key=keys)
    def delete(self, key: SharePartitionKey) -> None:
        answer = self.asked.ask(Delete(key))
        if not self.has_topic(key):
            assert answer.error is Errors.UNKNOWN_TOPIC_OR_PARTITION
        else:
            assert answer == Answer()
            self.known.pop(key, None)

    @rule(more_ms=st.sampled_from((1, 300_000)))
    def time_passes(self, more_ms: int) -> None:
        self.asked.now_ms += more_ms
        self.asked.ring(SNAPSHOT_COLD)

    @rule()
    def prune(self) -> None:
        for effect in self.asked.ring(PRUNE):
            self.asked.cut(max(effect.subject, self.asked.start))

    @rule(pruned=st.booleans())
    def die(self, pruned: bool) -> None:
        """The broker is killed, and comes back."""
        if pruned:
            self.prune()
        self.forget_leaders()
        self.asked.shard = self.asked.again()
        timers = self.asked.shard.load(self.asked.context()).timers
        if ORPHANS in {timer.key for timer in timers}:
            self.asked.ring(ORPHANS)
            self.forget_orphans()

    def forget_leaders(self) -> None:
        told = dict.fromkeys(KEYS, 0)
        for record in map(decoded, self.asked.log):
            said: Any = record
            key = SharePartitionKey(said.key.group_id, said.key.topic_id, said.key.partition)
            told[key] = 0 if said.value is None else max(told[key], said.value.leader_epoch)
        for key, known in self.known.items():
            known.leader_epoch = told[key]

    @precondition(lambda self: self.steps > 30 and ORDERS in self.asked.topics.by_id)
    @rule(heard=st.booleans())
    def topic_goes(self, heard: bool) -> None:
        """Whether or not its coordinator is there to hear of it."""
        self.asked.topics = Topics([topic for topic in TOPICS.by_id.values() if topic.id != ORDERS])
        if heard:
            self.asked.inform(TopicsDeleted(frozenset((ORDERS,))))
            self.forget_orphans()

    def forget_orphans(self) -> None:
        for key in KEYS:
            if not self.has_topic(key):
                self.known.pop(key, None)

    @invariant()
    def it_says_what_was_told(self) -> None:
        self.steps += 1
        assert set(self.asked.shard.states) == set(self.known)
        for key, known in self.known.items():
            state = self.asked.state(key)
            assert (state.state_epoch, state.start_offset) == (known.state_epoch, known.start)
            assert state.highest_state_epoch == known.state_epoch
            assert state.highest_leader_epoch == known.leader_epoch
            assert state.delivery_complete_count == known.done
            assert says(state.batches) == known.states
            assert is_normalized(state.batches)
            if not self.has_topic(key):
                continue
            summary = self.asked.ask(ReadSummary(key, 0))
            assert (summary.state_epoch, summary.leader_epoch) == (known.state_epoch, known.told_leader)
            assert (summary.start_offset, summary.delivery_complete_count) == (known.start, known.done)

    @invariant()
    def a_restart_would_find_the_same(self) -> None:
        again = self.asked.again()
        for key, state in self.asked.shard.states.items():
            # Updates that were cut off are not counted, nor are epochs that only they had told.
            assert again.states[key][:8] == state[:8]
        assert set(again.states) == set(self.asked.shard.states)


def says(told: tuple[StateBatch, ...]) -> dict[int, tuple[int, int]]:
    return {
        offset: (batch.delivery_count, batch.delivery_state)
        for batch in told
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }


TestShareCoordinator = Machine.TestCase
TestShareCoordinator.settings = settings(
    max_examples=depth.examples(200), stateful_step_count=60, deadline=None
)
