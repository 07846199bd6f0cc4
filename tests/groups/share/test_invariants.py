"""Random lives of a share group: after each event what is promised holds, and left alone it comes to rest.

SH11   what is not initialised is nobody's; beginning and deleting are resumed after a crash
SH13   nothing is kept of topics that are gone
SH14   the log alone leads to the same group
SH15   offsets are altered and deleted only while nobody is a member, and altering moves the epoch
G11    timers are those that the state asks for
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.groups.share.room import ShareRoom, kept, topics

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.modern.group import FIRST_EPOCH
from konvene.groups.share.decision import TIDY
from konvene.groups.share.group import ShareGroup
from konvene.groups.share.work import DeletedTopics, StateToDelete, StateToInitialize
from konvene.shard.errors import GroupError
from konvene.shard.image import Topic, Topics

NAMES = ("orders", "audit", "mails")
MEMBERS = ("a", "b", "c", "d")


class Life:
    """One life, as a seed says."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.room = ShareRoom(group_share_max_size="3")
        self.made = 0
        self.room.topics = topics(orders=2, audit=1)
        self.open: list[StateToInitialize | StateToDelete] = []
        """What was asked of the share coordinator; a crash forgets who asked, not that it was asked."""

    # --- events ---

    def beat(self) -> None:
        member = self.chance.choice(MEMBERS)
        names: tuple[str, ...] = ()
        if self.chance.random() < 0.3:
            names = tuple(self.chance.sample(NAMES, self.chance.randint(1, 3)))
        group = self.room.group
        known = group.members.get(member) if group is not None else None
        epoch = known.current.epoch if known is not None and self.chance.random() < 0.9 else 0
        before = group.epoch if group is not None else FIRST_EPOCH
        answer = self.room.beat(member, epoch, *names)
        assert answer.error_code in (Errors.NONE, Errors.GROUP_MAX_SIZE_REACHED), answer
        assert self.room.group is None or self.room.group.epoch - before <= 1

    def leave(self) -> None:
        self.room.beat(self.chance.choice(MEMBERS), -1)

    def wait(self) -> None:
        self.room.advance(self.chance.choice((10, 1000, 31_000, 46_000, 700_000)))

    def answer(self) -> None:
        self.room.work(fails=self.chance.random() < 0.3)

    def lose(self) -> None:
        """The share coordinator does it, and nobody hears."""
        for asked in self.room.wanted:
            if isinstance(asked, StateToInitialize):
                self.room.initialized(asked)
            elif isinstance(asked, StateToDelete):
                self.room.forgotten(asked)
        self.room.wanted.clear()

    def crash(self) -> None:
        if self.chance.random() < 0.5:
            self.lose()
        self.room.restart(compact=self.chance.random() < 0.5)

    def change_topics(self) -> None:
        """One is made, grows or is deleted; one of the same name has another id."""
        found = dict(self.room.topics.by_name)
        name = self.chance.choice(NAMES)
        gone: frozenset[Uuid] = frozenset()
        if name not in found:
            self.made += 1
            found[name] = Topic(name, Uuid(f"{name}-{self.made}".encode().ljust(16, b".")), 1)
        elif self.chance.random() < 0.6:
            found[name] = found[name]._replace(partitions=found[name].partitions + 1)
        else:
            gone = frozenset((found.pop(name).id,))
        self.room.topics = Topics(found.values(), self.made)
        self.room.begun = {k: v for k, v in self.room.begun.items() if k.topic_id not in gone}
        if gone and self.chance.random() < 0.7:  # Else a crash keeps it from being heard of.
            self.room.take(self.room.shard.handle(DeletedTopics(gone), self.room.context()))

    def in_turn(self) -> None:
        """The share coordinator does what it was asked before, first."""
        self.chance.choice((self.answer, self.lose))()

    def alter(self) -> None:
        self.in_turn()
        group = self.room.group
        before = group.epoch if group is not None else 0
        was_empty = group is None or group.is_empty
        found = self.room.alter(
            {self.chance.choice(NAMES): {0: 7, 1: 3}}, to_its_end=self.chance.random() < 0.7
        )
        assert (found.response.error_code == Errors.NONE) == was_empty
        if found.requests:
            assert self.room.group.epoch > before
            assert {r.state_epoch for r in found.requests} == {self.room.group.epoch}

    def quit(self) -> None:
        self.in_turn()
        group = self.room.group
        found = self.room.quit(self.chance.choice(NAMES), to_its_end=self.chance.random() < 0.7)
        assert (found.response.error_code == Errors.NONE) == (group is not None and group.is_empty)

    def delete(self) -> None:
        self.in_turn()
        try:
            asked = self.room.begin_deletion()
        except GroupError as refused:
            assert refused.error is Errors.NON_EMPTY_GROUP
            return
        if self.chance.random() < 0.5:
            return  # The administrator has gone, too.
        self.room.forgotten(asked)
        self.room.delete()

    def step(self) -> None:
        events: list[tuple[int, Callable[[], None]]] = [
            (30, self.beat), (6, self.leave), (8, self.wait), (14, self.answer), (4, self.lose),
            (4, self.crash), (6, self.change_topics), (3, self.alter), (3, self.quit), (2, self.delete),
        ]  # fmt: skip
        (event,) = self.chance.choices([e for _, e in events], [weight for weight, _ in events])
        event()
        self.check()

    # --- invariants ---

    def check(self) -> None:
        room = self.room
        assert kept(room.group) == kept(room.shadow.groups.get("g")), "SH14"
        group = room.group
        sessions = {key[2] for key in room.timers if key[0] == "session"}
        if group is None:
            assert not sessions, "G11"
            return
        assert isinstance(group, ShareGroup)
        assert sessions == set(group.members), "G11"
        if not group.state_topics.is_empty:
            assert TIDY in room.timers, "G11"
        assert group.epoch >= group.assignment_epoch
        if group.is_empty:
            assert group.epoch == group.assignment_epoch
        assert len(group.members) <= 3
        assert not set(group.state_topics.deleting) & set(group.state_topics.initialized), "SH11"
        for member in group.members.values():
            assert member.current.epoch <= group.assignment_epoch
        for target in group.targets.values():
            for topic, partitions in target.items():
                if topic in room.topics.by_id:
                    begun = {key.partition for key in room.begun if key.topic_id == topic}
                    assert set(partitions) <= begun, "SH11: nobody is given what has not begun"

    def rest(self) -> None:
        """Left alone, everybody gets all that it reads, and nothing is left on the lists."""
        room = self.room
        room.advance(700_000)
        for member in MEMBERS[:3]:
            room.beat(member, 0, *NAMES)
        for _ in range(6):
            room.work()
            room.advance(31_000)
            for member in MEMBERS[:3]:
                assert room.beat(member).error_code == Errors.NONE
            self.check()
        room.restart()
        room.advance(0)
        room.work()
        for member in MEMBERS[:3]:
            room.beat(member)
        group = room.share
        epoch = group.epoch
        assert not group.behind
        existing = {(t.id, p) for t in room.topics.by_id.values() for p in range(t.partitions)}
        has = {(t, p) for m in group.members.values() for t, some in m.current.assigned.items() for p in some}
        assert has == existing, "L: every partition has a reader"
        listed = group.state_topics
        assert {(t, p) for t, some in listed.initialized.items() for p in some.partitions} == existing, "SH13"
        assert not listed.initializing
        assert not listed.deleting
        for member in MEMBERS[:3]:
            room.beat(member)
        assert room.share.epoch == epoch, "nothing moves by itself"


@pytest.mark.parametrize("seed", range(100))
def test_every_invariant_holds_after_every_event(seed: int) -> None:
    life = Life(seed)
    for _ in range(120):
        life.step()
    life.rest()
