"""Random lives of one group in the pure core, with members of both protocols, and what always holds.

Four clients, two of them static, that behave (`clients`), answers that are lost, members that are slow or
silent, topics that come, grow and go, work that comes late or fails, restarts with a compacted log. After
each step the numbered invariants of the project's catalogue are asked (M: consumer groups, MG: migration),
and the state is held against the one that is replayed from the encoded records.

`KONVENE_INVARIANTS=2000` plays so many lives, differently each time, instead of the few that are always the
same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.groups.consumer.clients import Client, Units
from tests.groups.consumer.room import Room, error, kept

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.consumer import log, targets
from konvene.groups.consumer.current_assignment import MemberState
from konvene.groups.consumer.group import ConsumerGroup, Member, State
from konvene.shard.contract import Outcome
from konvene.shard.image import Topic, Topics

LIVES = int(os.environ.get("KONVENE_INVARIANTS", "0"))
MOST_CLASSIC = 2
"""`group.max.size`."""

WHO = st.integers(0, 3)
ODDS = st.sampled_from((False, False, True))
SUBSCRIPTIONS = st.sampled_from(
    ((("orders",), None), (("orders", "audit"), None), (("audit",), None), ((), "or.*"), (("audit",), "o.*"))
)


def units(epochs: Any) -> Units:
    return {(topic, p) for topic, partitions in epochs.items() for p in partitions}


def holds(member: Member) -> Units:
    return units(member.current.assigned) | units(member.current.pending_revocation)


class Watched(Room):
    """A room in which somebody looks at what a group becomes."""

    def take(self, outcome: Outcome) -> None:
        before = self.group
        super().take(outcome)
        if isinstance(before, ConsumerGroup) and isinstance(self.group, ClassicGroup) and self.group.members:
            assert len(self.group.members) <= MOST_CLASSIC, f"MG5: {before!r} became {self.group!r}"


class Lives(RuleBasedStateMachine):
    """Clients, administrators and accidents."""

    def __init__(self) -> None:
        super().__init__()
        self.room = Watched(group_max_size=str(MOST_CLASSIC))
        self.clients = [Client("ann"), Client("bob", "i2"), Client("cid"), Client("dan", "i4")]
        self.made = 0
        self.waits: dict[int, tuple[Client, str]] = {}
        self.heavy = targets.HEAVY

    @initialize(
        elsewhere=st.booleans(), classic=st.sampled_from((0, 1, 2, 3)), interval=st.sampled_from((0, 0, 5))
    )
    def begin(self, elsewhere: bool, classic: int, interval: int) -> None:
        """Whether targets are computed elsewhere; how many speak the classic protocol; how often."""
        if elsewhere:
            targets.HEAVY = 0
        self.room.configure({"group.consumer.assignment.interval.ms": str(interval * 1000)})
        for client in self.clients[4 - classic :]:
            client.classic, client.eager = True, client.instance is None

    def teardown(self) -> None:
        targets.HEAVY = self.heavy

    # --- what may be wrong with a step ---

    @contextmanager
    def step(self, client: Client | None = None, said: Units | None = None) -> Iterator[None]:
        """What is done within is one decision, or several of one client, and changes only what it may.

        `said`: what the client says that it owns, if it does."""
        before = self.room.group
        old = before.copy() if isinstance(before, ConsumerGroup) else None
        first = len(self.room.batches)
        yield
        self.hear()
        after = self.room.group
        if old is None or not isinstance(after, ConsumerGroup):
            return
        assert after.epoch >= old.epoch, "M2: the group's epoch fell"
        assert after.assignment_epoch >= old.assignment_epoch, "M2: the assignment's epoch fell"
        epochs = [
            record.value.epoch
            for batch in self.room.batches[first:]
            for record in batch.records
            if type(getattr(record, "key", None)) is log.ConsumerGroupMetadataKey and record.value is not None
        ]
        assert epochs == sorted(set(epochs)), f"M12: an epoch was written twice: {epochs}"
        for member_id in old.members.keys() & after.members.keys():
            self.changed(old.members[member_id], after.members[member_id], client, said)
        if after.assignment_epoch > old.assignment_epoch and after.members:
            self.is_total(after)

    def changed(self, old: Member, new: Member, client: Client | None, said: Units | None) -> None:
        its_own = client is not None and client.member_id in ("", old.member_id)
        away = -2 in (old.current.epoch, new.current.epoch)
        assert away or new.current.epoch >= old.current.epoch, "M2: a member's epoch fell"
        released = holds(old) - holds(new)
        if released and not away:
            assert its_own, f"M6: {old.member_id} gave up {released} and said nothing"
            assert said is not None, (
                f"M6: {old.member_id} gave up {released} by a heartbeat that says nothing"
            )
            assert not released & said, f"M6: {old.member_id} still has {released & said}"
        for topic, epochs in new.current.assigned.items() if not away else ():
            since = old.current.assigned.get(topic, {})
            for p, epoch in epochs.items():
                expected = since.get(p, self.room.group.assignment_epoch)
                assert epoch == expected, (
                    f"KIP-1251: {old.member_id} has {topic}-{p} since {epoch}, not {expected}"
                )
        if new.current.state is MemberState.UNREVOKED_PARTITIONS:
            got = units(new.current.assigned) - holds(old)
            assert not got, f"M5: {new.member_id} owes a revocation and was given {got}"

    def is_total(self, group: ConsumerGroup) -> None:
        """M8, of a target that was just computed. One that came late is of the topics of that time."""
        topics = self.room.topics
        if group.soft.seen is not topics:
            return
        given: dict[tuple[Uuid, int], str] = {}
        for member_id, target in group.targets.items():
            assert member_id in group.members, f"M8: {member_id} is no member and has a target"
            for topic, p in units(target):
                assert (topic, p) not in given, f"M8: {topic}-{p} was given twice"
                known = topics.by_id.get(topic)
                assert known is not None, f"M8: {member_id} was given a topic that there is not"
                assert p < known.partitions, f"M8: {member_id} was given partition {p} of {known}"
                assert known.name in group.topics_of(group.members[member_id]), (
                    f"M8: {member_id}: {known.name}"
                )
                given[topic, p] = member_id
        read = {name for member in group.members.values() for name in group.topics_of(member)}
        wanted = {
            (t.id, p) for name, t in topics.by_name.items() if name in read for p in range(t.partitions)
        }
        assert given.keys() == wanted, f"M8: nobody was given {wanted - given.keys()}"

    def hear(self) -> None:
        """Who waited for a join or a sync, and has an answer."""
        for waiter, (client, what) in list(self.waits.items()):
            if waiter in self.room.replies:
                del self.waits[waiter]
                (client.joined if what == "join" else client.synced)(self.room, self.room.replies[waiter])

    # --- clients ---

    @rule(who=WHO, lost=ODDS, slow=ODDS, says=st.booleans())
    def acts(self, who: int, lost: bool, slow: bool, says: bool) -> None:
        """A client does what it does next."""
        client, group = self.clients[who], self.room.group
        if client in (waiting for waiting, _ in self.waits.values()):
            return
        if client.classic:
            lost = lost and isinstance(group, ConsumerGroup)
            said = set() if client.eager else client.owns & self.exist()
            with self.step(client, said if client.needs == "join" else None):
                needs = client.needs
                told = client.step(self.room, lost=lost)
                if told is None:
                    self.waits[self.room.asked] = client, needs
                elif needs == "heartbeat":
                    self.is_told_to_rejoin(group, client, told)
            return
        known = group.members.get(client.member_id) if isinstance(group, ConsumerGroup) else None
        joins = client.epoch <= 0
        said = set(client.owns) if says or client.unsure or joins else None
        epoch = client.epoch
        with self.step(client, said):
            answer = client.beat(self.room, lost=lost, slow=slow, says=says)
            if known is not None and 0 < epoch < known.current.epoch and error(answer) is Errors.NONE:
                assert said is not None, f"M10: {client.name} is behind and does not say what it owns"
                extra = said - units(known.current.assigned)
                assert not extra, f"M10: {client.name} is behind and owns {extra}"
            if known is not None and joins and client.instance is None:
                assert error(answer) is Errors.NONE, f"M10: {client.name} may not come back: {answer}"

    def exist(self) -> Units:
        return {(t.id, p) for t in self.room.topics.by_name.values() for p in range(t.partitions)}

    def is_told_to_rejoin(self, group: Any, client: Client, answer: Any) -> None:
        """MG2: a classic member hears of a new target, and of what it has to give up."""
        member = group.members.get(client.member_id) if isinstance(group, ConsumerGroup) else None
        if member is None or error(answer) not in (Errors.NONE, Errors.REBALANCE_IN_PROGRESS):
            return
        alone = group.classic_members == len(group.members)  # A join is all that a target is computed for.
        behind = member.current.epoch < (group.epoch if alone else group.assignment_epoch)
        owes = member.current.state is MemberState.UNREVOKED_PARTITIONS
        if behind or owes:
            assert error(answer) is Errors.REBALANCE_IN_PROGRESS, f"MG2: {client.name} hears of nothing"
        elif member.current.state is MemberState.STABLE:
            assert error(answer) is Errors.NONE, f"MG2: {client.name} is to rejoin for nothing"

    @rule(rounds=st.sampled_from((1, 1, 2, 6)), ms=st.sampled_from((0, 500, 1_500)))
    def all_act(self, rounds: int, ms: int) -> None:
        """All clients do what they do next, some time apart; six rounds are enough for a rebalance."""
        for _ in range(rounds):
            for who in range(4):
                self.acts(who, lost=False, slow=False, says=True)
                self.nobody_shares()
                self.clients_read_what_they_hold()
            self.time(ms)

    @rule(who=st.sets(WHO, min_size=1, max_size=3), lost=ODDS)
    def some_act(self, who: set[int], lost: bool) -> None:
        """Some clients do what they do next; the last one may not hear what comes of it."""
        for nth in sorted(who):
            self.acts(nth, lost=lost and nth == max(who), slow=False, says=True)

    @rule(who=WHO)
    def revokes(self, who: int) -> None:
        """A slow client has given up what it was told to."""
        if not self.clients[who].classic:
            self.clients[who].give_up()

    @rule(who=WHO, leaves=st.booleans(), classic=ODDS)
    def comes_anew(self, who: int, leaves: bool, classic: bool) -> None:
        """A process ends, with or without saying so, and another one begins, maybe of the other protocol."""
        client = self.clients[who]
        with self.step(client, set(client.owns)):
            if leaves:
                client.leave(self.room)
        client.forget(anew=True)
        client.classic, client.eager = classic, client.instance is None
        self.waits = {waiter: told for waiter, told in self.waits.items() if told[0] is not client}

    @rule(classic=st.booleans(), leaves=st.booleans())
    def rolling(self, classic: bool, leaves: bool) -> None:
        """One process after another comes back with the same protocol: an upgrade, a downgrade, a bounce."""
        for who in range(4):
            self.comes_anew(who, leaves=leaves, classic=classic)
            self.a_group_is_of_one_protocol()
            self.all_act(rounds=2, ms=500)

    @rule(who=st.sampled_from((1, 3)))
    def leaves_for_a_while(self, who: int) -> None:
        """M13: a static member keeps its place and its partitions."""
        client, group = self.clients[who], self.room.group
        if client.classic or client.epoch <= 0 or not isinstance(group, ConsumerGroup):
            return
        held = (
            units(group.members[client.member_id].current.assigned)
            if client.member_id in group.members
            else None
        )
        old_id = client.member_id
        with self.step(client, set(client.owns)):
            client.leave(self.room, -2)
        if held is not None and (there := group.members.get(old_id)) is not None:
            assert units(there.current.assigned) == held, "M13: its place was not kept"
            assert group.instances[client.instance or ""] == old_id, "M13: its name was given away"

    @rule(who=WHO, reads=SUBSCRIPTIONS, assignor=st.sampled_from((None, None, "range", "uniform")))
    def subscribes(self, who: int, reads: tuple[tuple[str, ...], str | None], assignor: str | None) -> None:
        """A client reads something else, and says so with its next heartbeat."""
        client = self.clients[who]
        client.topics, client.regex = reads if not client.classic else (reads[0] or ("orders",), None)
        client.assignor = assignor or client.assignor
        client.unsure = True
        if client.classic and client.needs == "heartbeat":
            client.needs = "join"

    # --- the world ---

    @rule(name=st.sampled_from(("orders", "audit", "others")), count=st.integers(0, 5), anew=ODDS)
    def topic(self, name: str, count: int, anew: bool) -> None:
        """A topic is made, grows, is made anew, or goes."""
        known = dict(self.room.topics.by_name)
        old = known.pop(name, None)
        version = self.room.topics.version
        if count:
            made = old is None or anew
            self.made += made
            version += made
            topic_id = Uuid(f"{name}{self.made}".encode().ljust(16, b"-")) if made or old is None else old.id
            known[name] = Topic(name, topic_id, count if made or old is None else max(count, old.partitions))
        self.room.topics = Topics(known.values(), version)

    @rule(ms=st.sampled_from((500, 1_000, 5_001, 10_001, 20_000, 45_000)))
    def time(self, ms: int) -> None:
        """Time passes. Whoever expires may release what it has."""
        self.room.advance(ms)
        self.hear()

    @rule(fails=ODDS, drops=ODDS)
    def work(self, fails: bool, drops: bool) -> None:
        """What was asked for is done; or the coordinator was restarted meanwhile."""
        if drops:
            self.restart(compact=False)
        with self.step():
            self.room.work(fails=fails)

    @rule(compact=st.booleans())
    def restart(self, compact: bool) -> None:
        """The coordinator reads its log, which may have been compacted: what it knew it knows (G1, G2)."""
        known = {name: kept(group) for name, group in self.room.shard.groups.items()}
        self.room.restart(compact=compact)
        found = {name: kept(group) for name, group in self.room.shard.groups.items()}
        for name, group in known.items():
            if isinstance(group, dict):
                assert found.get(name) == group, f"G2: {name} is {found.get(name)}, was {group}"
        for client, _ in self.waits.values():
            client.needs = "join"
        self.waits.clear()

    # --- what always holds ---

    @invariant()
    def what_is_replayed_is_what_there_is(self) -> None:
        """G1: the live shard is the one that is read from the log."""
        live, stored = self.room.shard.groups, self.room.shadow.groups
        for name, group in live.items():
            if (expected := kept(group)) is not None:
                assert type(stored.get(name)) is type(group), (
                    f"G1: {group!r} is {stored.get(name)!r} in the log"
                )
                assert kept(stored[name]) == expected, f"G1: {group!r}"
        for name, group in stored.items():
            assert name in live, f"G1: {group!r} is in the log alone"

    @invariant()
    def nobody_shares(self) -> None:
        """M1, M4, MG1: a partition is one member's, whatever protocol it speaks, and the books agree."""
        group = self.room.group
        if not isinstance(group, ConsumerGroup):
            return
        owners: dict[tuple[Uuid, int], str] = {}
        for member_id, member in group.members.items():
            both = units(member.current.assigned) & units(member.current.pending_revocation)
            assert not both, f"M1: {member_id} has and gives up {both}"
            for unit in holds(member):
                assert unit not in owners, f"M1: {unit} is {owners[unit]}'s and {member_id}'s"
                owners[unit] = member_id
        noted = {(t, p): who for t, partitions in group.owners.items() for p, who in partitions.items()}
        assert noted == owners, f"M4: noted {noted}, owned {owners}"

    @invariant()
    def clients_read_what_they_hold(self) -> None:
        """M1, M3, M6 as a topic sees it: a client reads nothing that it has given up, as far as is known."""
        group = self.room.group
        if not isinstance(group, ConsumerGroup):
            return
        for client in self.clients:
            member = group.members.get(client.member_id)
            if member is not None and client.epoch > 0 and member.current.epoch > 0:
                reads = (client.owns & self.exist()) - holds(member)
                assert not reads, f"M6: {client.name} reads {reads}, it holds {holds(member)}"

    @invariant()
    def epochs_are_in_order(self) -> None:
        """M2, M3, M5, M7, M9: epochs, what is held at them, and what the group's state says."""
        group = self.room.group
        if not isinstance(group, ConsumerGroup):
            return
        assert group.epoch >= group.assignment_epoch, "M2: an assignment of an epoch to come"
        if not group.members:
            assert group.epoch == group.assignment_epoch, "M9: an empty group waits for an assignment"
        for member_id, member in group.members.items():
            current, target = member.current, units(group.targets.get(member_id, {}))
            assert current.epoch <= group.assignment_epoch, f"M2: {member_id} is ahead"
            owes = current.state is MemberState.UNREVOKED_PARTITIONS
            assert bool(current.pending_revocation) <= owes, f"M5: {member_id} is {current.state.name}"
            if current.epoch == group.assignment_epoch and not owes:
                extra = units(current.assigned) - target
                assert not extra, f"M3: {member_id} is at epoch {current.epoch} with {extra}"
            if owes and current.epoch >= 0 and member.classic is None:
                assert ("revocation", "g", member_id) in self.room.timers, f"L4: nobody waits for {member_id}"
            assert ("session", "g", member_id) in self.room.timers, f"L4: {member_id} has no session"
        if group.state is State.STABLE:
            for member_id, member in group.members.items():
                assert member.is_reconciled_to(group.epoch), f"M7: {member_id} is not there"

    @invariant()
    def names_are_members(self) -> None:
        """M13: an instance id is one member's, and each static member has its own."""
        group = self.room.group
        if isinstance(group, ConsumerGroup):
            named = {m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None}
            assert group.instances == named, f"M13: noted {group.instances}, there are {named}"

    @invariant()
    def a_group_is_of_one_protocol(self) -> None:
        """MG4: without members of the new protocol it is a classic one, if it is small enough; and then
        nothing is left in the log of what it was."""
        group = self.room.group
        if isinstance(group, ConsumerGroup) and group.members:
            sizes = len(group.members) > MOST_CLASSIC
            assert group.classic_members < len(group.members) or sizes, f"MG4: {group!r} is all classic"
        if isinstance(group, ClassicGroup):
            last = {pair[0]: pair[1] for batch in self.room.batches for pair in batch.pairs}
            records = {
                key: record
                for b in self.room.batches
                for (key, _), record in zip(b.pairs, b.records, strict=True)
            }
            for key, value in last.items():
                ours = type(getattr(records[key], "key", None)) in log.REPLAYS
                assert not ours or value is None, f"MG4: left of the consumer group: {records[key]}"


TestLives = Lives.TestCase
TestLives.settings = settings(
    max_examples=LIVES or 120,
    stateful_step_count=40,
    deadline=None,
    derandomize=not LIVES,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
