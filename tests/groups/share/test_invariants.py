"""Random runs of a share group: invariants after each event, and convergence when the faults stop.

SH11   only initialized partitions are assigned; initialization and deletion resume after a crash
SH13   no state of deleted topics is kept
SH14   the log alone restores the same group
SH15   offsets are altered and deleted only in an empty group, and altering bumps the epoch
G11    the armed timers are those that the state needs
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.groups.share.harness import ShareGroupHarness, logged_state, topics

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.modern.group import FIRST_EPOCH
from konvene.groups.share.decision import CLEANUP_TIMER
from konvene.groups.share.group import ShareGroup
from konvene.groups.share.work import DeletedTopics, StateToDelete, StateToInitialize
from konvene.shard.errors import GroupError
from konvene.shard.image import Topic, Topics

NAMES = ("orders", "audit", "mails")
MEMBERS = ("a", "b", "c", "d")


class RandomRun:
    """One random run, determined by its seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.harness = ShareGroupHarness(group_share_max_size="3")
        self.made = 0
        self.harness.topics = topics(orders=2, audit=1)
        self.open: list[StateToInitialize | StateToDelete] = []
        """Requests to the share coordinator that a crash of the group coordinator does not undo."""

    # --- events ---

    def beat(self) -> None:
        member = self.chance.choice(MEMBERS)
        names: tuple[str, ...] = ()
        if self.chance.random() < 0.3:
            names = tuple(self.chance.sample(NAMES, self.chance.randint(1, 3)))
        group = self.harness.group
        known = group.members.get(member) if group is not None else None
        epoch = known.current.epoch if known is not None and self.chance.random() < 0.9 else 0
        before = group.epoch if group is not None else FIRST_EPOCH
        response = self.harness.beat(member, epoch, *names)
        assert response.error_code in (Errors.NONE, Errors.GROUP_MAX_SIZE_REACHED), response
        assert self.harness.group is None or self.harness.group.epoch - before <= 1

    def leave(self) -> None:
        self.harness.beat(self.chance.choice(MEMBERS), -1)

    def wait(self) -> None:
        self.harness.advance(self.chance.choice((10, 1000, 31_000, 46_000, 700_000)))

    def answer(self) -> None:
        self.harness.work(fails=self.chance.random() < 0.3)

    def lose(self) -> None:
        """The share coordinator carries out its requests, and the responses are lost."""
        for job in self.harness.pending_work:
            if isinstance(job, StateToInitialize):
                self.harness.initialize_state(job)
            elif isinstance(job, StateToDelete):
                self.harness.delete_state(job)
        self.harness.pending_work.clear()

    def crash(self) -> None:
        if self.chance.random() < 0.5:
            self.lose()
        self.harness.restart(compact=self.chance.random() < 0.5)

    def change_topics(self) -> None:
        """A topic is created, grows or is deleted; a recreated topic has another id."""
        found = dict(self.harness.topics.by_name)
        name = self.chance.choice(NAMES)
        deleted: frozenset[Uuid] = frozenset()
        if name not in found:
            self.made += 1
            found[name] = Topic(name, Uuid(f"{name}-{self.made}".encode().ljust(16, b".")), 1)
        elif self.chance.random() < 0.6:
            found[name] = found[name]._replace(partitions=found[name].partitions + 1)
        else:
            deleted = frozenset((found.pop(name).id,))
        self.harness.topics = Topics(found.values(), self.made)
        self.harness.share_state = {
            k: v for k, v in self.harness.share_state.items() if k.topic_id not in deleted
        }
        if deleted and self.chance.random() < 0.7:  # Else a crash loses the notification.
            self.harness.apply(self.harness.shard.handle(DeletedTopics(deleted), self.harness.context()))

    def complete_pending(self) -> None:
        """Complete the pending requests to the share coordinator first; their responses may be lost."""
        self.chance.choice((self.answer, self.lose))()

    def alter_offsets(self) -> None:
        self.complete_pending()
        group = self.harness.group
        before = group.epoch if group is not None else 0
        was_empty = group is None or group.is_empty
        changes = self.harness.alter_offsets(
            {self.chance.choice(NAMES): {0: 7, 1: 3}}, complete=self.chance.random() < 0.7
        )
        assert (changes.response.error_code == Errors.NONE) == was_empty
        if changes.requests:
            assert self.harness.group.epoch > before
            assert {r.state_epoch for r in changes.requests} == {self.harness.group.epoch}

    def delete_offsets(self) -> None:
        self.complete_pending()
        group = self.harness.group
        found = self.harness.delete_offsets(self.chance.choice(NAMES), complete=self.chance.random() < 0.7)
        assert (found.response.error_code == Errors.NONE) == (group is not None and group.is_empty)

    def delete(self) -> None:
        self.complete_pending()
        try:
            deletion = self.harness.begin_deletion()
        except GroupError as refused:
            assert refused.error is Errors.NON_EMPTY_GROUP
            return
        if self.chance.random() < 0.5:
            return  # The administrator has crashed, too.
        self.harness.delete_state(deletion)
        self.harness.delete()

    def step(self) -> None:
        events: list[tuple[int, Callable[[], None]]] = [
            (30, self.beat), (6, self.leave), (8, self.wait), (14, self.answer), (4, self.lose),
            (4, self.crash), (6, self.change_topics), (3, self.alter_offsets), (3, self.delete_offsets),
            (2, self.delete),
        ]  # fmt: skip
        (event,) = self.chance.choices([e for _, e in events], [weight for weight, _ in events])
        event()
        self.check()

    # --- invariants ---

    def check(self) -> None:
        harness = self.harness
        assert logged_state(harness.group) == logged_state(harness.shadow.groups.get("g")), "SH14"
        group = harness.group
        sessions = {key[2] for key in harness.timers if key[0] == "session"}
        if group is None:
            assert not sessions, "G11"
            return
        assert isinstance(group, ShareGroup)
        assert sessions == set(group.members), "G11"
        if not group.state_topics.is_empty:
            assert CLEANUP_TIMER in harness.timers, "G11"
        assert group.epoch >= group.assignment_epoch
        if group.is_empty:
            assert group.epoch == group.assignment_epoch
        assert len(group.members) <= 3
        assert not set(group.state_topics.deleting) & set(group.state_topics.initialized), "SH11"
        for member in group.members.values():
            assert member.current.epoch <= group.assignment_epoch
        for target in group.targets.values():
            for topic, partitions in target.items():
                if topic in harness.topics.by_id:
                    begun = {key.partition for key in harness.share_state if key.topic_id == topic}
                    assert set(partitions) <= begun, "SH11: nobody is given what has not begun"

    def check_convergence(self) -> None:
        """Without faults every member gets its partitions, and no partition stays initializing or
        deleting."""
        harness = self.harness
        harness.advance(700_000)
        for member in MEMBERS[:3]:
            harness.beat(member, 0, *NAMES)
        for _ in range(6):
            harness.work()
            harness.advance(31_000)
            for member in MEMBERS[:3]:
                assert harness.beat(member).error_code == Errors.NONE
            self.check()
        harness.restart()
        harness.advance(0)
        harness.work()
        for member in MEMBERS[:3]:
            harness.beat(member)
        group = harness.share
        epoch = group.epoch
        assert not group.behind
        existing = {(t.id, p) for t in harness.topics.by_id.values() for p in range(t.partitions)}
        has = {(t, p) for m in group.members.values() for t, some in m.current.assigned.items() for p in some}
        assert has == existing, "L: every partition has a reader"
        listed = group.state_topics
        assert {(t, p) for t, some in listed.initialized.items() for p in some.partitions} == existing, "SH13"
        assert not listed.initializing
        assert not listed.deleting
        for member in MEMBERS[:3]:
            harness.beat(member)
        assert harness.share.epoch == epoch, "nothing moves by itself"


@pytest.mark.parametrize("seed", range(100))
def test_every_invariant_holds_after_every_event(seed: int) -> None:
    run = RandomRun(seed)
    for _ in range(120):
        run.step()
    run.check_convergence()
