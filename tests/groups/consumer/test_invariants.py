"""Random runs of one group in the pure core, with members of both protocols, against its invariants.

Four well-behaved clients (`clients`), two of them static; lost responses, slow or silent members, topics that
are
created, grow and are deleted, background work that is late or fails, restarts with a compacted log. After
each
step the numbered invariants of the project's catalogue are checked (M: consumer groups, MG: migration), and
the
state is compared with the one replayed from the encoded records.

`KONVENE_INVARIANTS=2000` plays that many random runs instead of a few fixed ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests import depth
from tests.groups.consumer.clients import Client, Units
from tests.groups.consumer.harness import GroupHarness, error, logged_state

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.consumer import log, targets
from konvene.groups.consumer.current_assignment import MemberState
from konvene.groups.consumer.group import ConsumerGroup, Member, State
from konvene.shard.contract import Outcome
from konvene.shard.image import Topic, Topics

EXAMPLES = int(os.environ.get("KONVENE_INVARIANTS", "0"))
MOST_CLASSIC = 2
"""`group.max.size`."""

CLIENTS = st.integers(0, 3)
ODDS = st.sampled_from((False, False, True))
SUBSCRIPTIONS = st.sampled_from(
    ((("orders",), None), (("orders", "audit"), None), (("audit",), None), ((), "or.*"), (("audit",), "o.*"))
)


def units(epochs: Any) -> Units:
    return {(topic, p) for topic, partitions in epochs.items() for p in partitions}


def holds(member: Member) -> Units:
    return units(member.current.assigned) | units(member.current.pending_revocation)


class SizeCheckingHarness(GroupHarness):
    """A harness that checks the size of a group when it is downgraded."""

    def apply(self, outcome: Outcome) -> None:
        before = self.group
        super().apply(outcome)
        if isinstance(before, ConsumerGroup) and isinstance(self.group, ClassicGroup) and self.group.members:
            assert len(self.group.members) <= MOST_CLASSIC, f"MG5: {before!r} became {self.group!r}"


class ConsumerGroupMachine(RuleBasedStateMachine):
    """Random events of clients, administrators and failures."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = SizeCheckingHarness(group_max_size=str(MOST_CLASSIC))
        self.clients = [Client("ann"), Client("bob", "i2"), Client("cid"), Client("dan", "i4")]
        self.topics_made = 0
        self.pending: dict[int, tuple[Client, str]] = {}
        self.heavy = targets.OFFLOAD_WEIGHT

    @initialize(
        elsewhere=st.booleans(), classic=st.sampled_from((0, 1, 2, 3)), interval=st.sampled_from((0, 0, 5))
    )
    def begin(self, elsewhere: bool, classic: int, interval: int) -> None:
        """Choose whether targets are computed in the background, how many clients are classic, and the
        interval."""
        if elsewhere:
            targets.OFFLOAD_WEIGHT = 0
        self.harness.configure({"group.consumer.assignment.interval.ms": str(interval * 1000)})
        for client in self.clients[4 - classic :]:
            client.classic, client.eager = True, client.instance is None

    def teardown(self) -> None:
        targets.OFFLOAD_WEIGHT = self.heavy

    # --- checks of a step ---

    @contextmanager
    def step(self, client: Client | None = None, reported: Units | None = None) -> Iterator[None]:
        """Check that the enclosed decisions, of one client if any, change only what they may.

        `reported`: the partitions that the client reports as owned, if it does.
        """
        before = self.harness.group
        old = before.copy() if isinstance(before, ConsumerGroup) else None
        first = len(self.harness.batches)
        yield
        self.deliver_responses()
        after = self.harness.group
        if old is None or not isinstance(after, ConsumerGroup):
            return
        assert after.epoch >= old.epoch, "M2: the group's epoch fell"
        assert after.assignment_epoch >= old.assignment_epoch, "M2: the assignment's epoch fell"
        epochs = [
            record.value.epoch
            for batch in self.harness.batches[first:]
            for record in batch.records
            if type(getattr(record, "key", None)) is log.ConsumerGroupMetadataKey and record.value is not None
        ]
        assert epochs == sorted(set(epochs)), f"M12: an epoch was written twice: {epochs}"
        for member_id in old.members.keys() & after.members.keys():
            self.check_member_change(old.members[member_id], after.members[member_id], client, reported)
        if after.assignment_epoch > old.assignment_epoch and after.members:
            self.check_target(after)

    def check_member_change(
        self, old: Member, new: Member, client: Client | None, reported: Units | None
    ) -> None:
        by_itself = client is not None and client.member_id in ("", old.member_id)
        temporarily_left = -2 in (old.current.epoch, new.current.epoch)
        assert temporarily_left or new.current.epoch >= old.current.epoch, "M2: a member's epoch fell"
        released = holds(old) - holds(new)
        if released and not temporarily_left:
            assert by_itself, f"M6: {old.member_id} gave up {released} and said nothing"
            assert reported is not None, (
                f"M6: {old.member_id} gave up {released} by a heartbeat that says nothing"
            )
            assert not released & reported, f"M6: {old.member_id} still has {released & reported}"
        for topic, epochs in new.current.assigned.items() if not temporarily_left else ():
            since = old.current.assigned.get(topic, {})
            for p, epoch in epochs.items():
                expected = since.get(p, self.harness.group.assignment_epoch)
                assert epoch == expected, (
                    f"KIP-1251: {old.member_id} has {topic}-{p} since {epoch}, not {expected}"
                )
        if new.current.state is MemberState.UNREVOKED_PARTITIONS:
            got = units(new.current.assigned) - holds(old)
            assert not got, f"M5: {new.member_id} owes a revocation and was given {got}"

    def check_target(self, group: ConsumerGroup) -> None:
        """Check M8 for a target that was just computed. A late one refers to the topics of its time."""
        topics = self.harness.topics
        if group.soft.hashed_topics is not topics:
            return
        assigned: dict[tuple[Uuid, int], str] = {}
        for member_id, target in group.targets.items():
            assert member_id in group.members, f"M8: {member_id} is no member and has a target"
            for topic, p in units(target):
                assert (topic, p) not in assigned, f"M8: {topic}-{p} was given twice"
                known = topics.by_id.get(topic)
                assert known is not None, f"M8: {member_id} was given a topic that there is not"
                assert p < known.partitions, f"M8: {member_id} was given partition {p} of {known}"
                assert known.name in group.topics_of(group.members[member_id]), (
                    f"M8: {member_id}: {known.name}"
                )
                assigned[topic, p] = member_id
        subscribed = {name for member in group.members.values() for name in group.topics_of(member)}
        expected = {
            (t.id, p) for name, t in topics.by_name.items() if name in subscribed for p in range(t.partitions)
        }
        assert assigned.keys() == expected, f"M8: nobody was given {expected - assigned.keys()}"

    def deliver_responses(self) -> None:
        """Deliver the responses of completed joins and syncs."""
        for waiter, (client, api) in list(self.pending.items()):
            if waiter in self.harness.replies:
                del self.pending[waiter]
                (client.joined if api == "join" else client.synced)(
                    self.harness, self.harness.replies[waiter]
                )

    # --- clients ---

    @rule(nth=CLIENTS, lost=ODDS, slow=ODDS, reports_owned=st.booleans())
    def act(self, nth: int, lost: bool, slow: bool, reports_owned: bool) -> None:
        """A client sends its next request."""
        client, group = self.clients[nth], self.harness.group
        if client in (waiting for waiting, _ in self.pending.values()):
            return
        if client.classic:
            lost = lost and isinstance(group, ConsumerGroup)
            reported = set() if client.eager else client.owns & self.existing_partitions()
            with self.step(client, reported if client.needs == "join" else None):
                needs = client.needs
                response = client.step(self.harness, lost=lost)
                if response is None:
                    self.pending[self.harness.request_id] = client, needs
                elif needs == "heartbeat":
                    self.check_rejoin_request(group, client, response)
            return
        known = group.members.get(client.member_id) if isinstance(group, ConsumerGroup) else None
        joins = client.epoch <= 0
        reported = set(client.owns) if reports_owned or client.full_heartbeat or joins else None
        epoch = client.epoch
        with self.step(client, reported):
            response = client.beat(self.harness, lost=lost, slow=slow, reports_owned=reports_owned)
            if known is not None and 0 < epoch < known.current.epoch and error(response) is Errors.NONE:
                assert reported is not None, f"M10: {client.name} is behind and does not say what it owns"
                extra = reported - units(known.current.assigned)
                assert not extra, f"M10: {client.name} is behind and owns {extra}"
            if known is not None and joins and client.instance is None:
                assert error(response) is Errors.NONE, f"M10: {client.name} may not come back: {response}"

    def existing_partitions(self) -> Units:
        return {(t.id, p) for t in self.harness.topics.by_name.values() for p in range(t.partitions)}

    def check_rejoin_request(self, group: Any, client: Client, response: Any) -> None:
        """MG2: a classic member is notified of a new target and of partitions to revoke."""
        member = group.members.get(client.member_id) if isinstance(group, ConsumerGroup) else None
        if member is None or error(response) not in (Errors.NONE, Errors.REBALANCE_IN_PROGRESS):
            return
        alone = group.classic_members == len(group.members)  # A join is all that a target is computed for.
        behind = member.current.epoch < (group.epoch if alone else group.assignment_epoch)
        owes = member.current.state is MemberState.UNREVOKED_PARTITIONS
        if behind or owes:
            assert error(response) is Errors.REBALANCE_IN_PROGRESS, f"MG2: {client.name} hears of nothing"
        elif member.current.state is MemberState.STABLE:
            assert error(response) is Errors.NONE, f"MG2: {client.name} is to rejoin for nothing"

    @rule(rounds=st.sampled_from((1, 1, 2, 6)), ms=st.sampled_from((0, 500, 1_500)))
    def all_act(self, rounds: int, ms: int) -> None:
        """All clients send their next requests, some time apart; six rounds are enough for a rebalance."""
        for _ in range(rounds):
            for nth in range(4):
                self.act(nth, lost=False, slow=False, reports_owned=True)
                self.each_partition_has_one_owner()
                self.clients_consume_only_held_partitions()
            self.time(ms)

    @rule(chosen=st.sets(CLIENTS, min_size=1, max_size=3), lost=ODDS)
    def some_act(self, chosen: set[int], lost: bool) -> None:
        """Some clients send their next requests; the response to the last one may be lost."""
        for nth in sorted(chosen):
            self.act(nth, lost=lost and nth == max(chosen), slow=False, reports_owned=True)

    @rule(nth=CLIENTS)
    def revokes(self, nth: int) -> None:
        """A slow client has revoked the partitions that it had to."""
        if not self.clients[nth].classic:
            self.clients[nth].apply_assignment()

    @rule(nth=CLIENTS, leaves=st.booleans(), classic=ODDS)
    def process_restarts(self, nth: int, leaves: bool, classic: bool) -> None:
        """A process ends, with or without leaving, and another one starts, maybe with the other protocol."""
        client = self.clients[nth]
        with self.step(client, set(client.owns)):
            if leaves:
                client.leave(self.harness)
        client.forget(anew=True)
        client.classic, client.eager = classic, client.instance is None
        self.pending = {waiter: entry for waiter, entry in self.pending.items() if entry[0] is not client}

    @rule(classic=st.booleans(), leaves=st.booleans())
    def rolling(self, classic: bool, leaves: bool) -> None:
        """One process after another restarts with the same protocol: an upgrade, a downgrade, a bounce."""
        for nth in range(4):
            self.process_restarts(nth, leaves=leaves, classic=classic)
            self.a_group_is_of_one_protocol()
            self.all_act(rounds=2, ms=500)

    @rule(nth=st.sampled_from((1, 3)))
    def leaves_temporarily(self, nth: int) -> None:
        """M13: a static member that leaves temporarily keeps its instance id and its partitions."""
        client, group = self.clients[nth], self.harness.group
        if client.classic or client.epoch <= 0 or not isinstance(group, ConsumerGroup):
            return
        held = (
            units(group.members[client.member_id].current.assigned)
            if client.member_id in group.members
            else None
        )
        old_id = client.member_id
        with self.step(client, set(client.owns)):
            client.leave(self.harness, -2)
        if held is not None and (member := group.members.get(old_id)) is not None:
            assert units(member.current.assigned) == held, "M13: its place was not kept"
            assert group.instances[client.instance or ""] == old_id, "M13: its name was given away"

    @rule(who=CLIENTS, reads=SUBSCRIPTIONS, assignor=st.sampled_from((None, None, "range", "uniform")))
    def subscribes(self, who: int, reads: tuple[tuple[str, ...], str | None], assignor: str | None) -> None:
        """A client changes its subscription, and reports it with its next heartbeat."""
        client = self.clients[who]
        client.topics, client.regex = reads if not client.classic else (reads[0] or ("orders",), None)
        client.assignor = assignor or client.assignor
        client.full_heartbeat = True
        if client.classic and client.needs == "heartbeat":
            client.needs = "join"

    # --- topics, time and failures ---

    @rule(name=st.sampled_from(("orders", "audit", "others")), count=st.integers(0, 5), recreate=ODDS)
    def topic(self, name: str, count: int, recreate: bool) -> None:
        """A topic is created, grows, is recreated, or is deleted."""
        known = dict(self.harness.topics.by_name)
        old = known.pop(name, None)
        version = self.harness.topics.version
        if count:
            made = old is None or recreate
            self.topics_made += made
            version += made
            topic_id = (
                Uuid(f"{name}{self.topics_made}".encode().ljust(16, b"-")) if made or old is None else old.id
            )
            known[name] = Topic(name, topic_id, count if made or old is None else max(count, old.partitions))
        self.harness.topics = Topics(known.values(), version)

    @rule(ms=st.sampled_from((500, 1_000, 5_001, 10_001, 20_000, 45_000)))
    def time(self, ms: int) -> None:
        """Time passes; members whose session expires may release partitions."""
        self.harness.advance(ms)
        self.deliver_responses()

    @rule(fails=ODDS, drops=ODDS)
    def work(self, fails: bool, drops: bool) -> None:
        """Pending work is completed, or dropped by a coordinator restart."""
        if drops:
            self.restart(compact=False)
        with self.step():
            self.harness.work(fails=fails)

    @rule(compact=st.booleans())
    def restart(self, compact: bool) -> None:
        """The coordinator reloads its log, which may have been compacted; no logged state is lost (G1,
        G2)."""
        before = {name: logged_state(group) for name, group in self.harness.shard.groups.items()}
        self.harness.restart(compact=compact)
        after = {name: logged_state(group) for name, group in self.harness.shard.groups.items()}
        for name, group in before.items():
            if isinstance(group, dict):
                assert after.get(name) == group, f"G2: {name} is {after.get(name)}, was {group}"
        for client, _ in self.pending.values():
            client.needs = "join"
        self.pending.clear()

    # --- invariants ---

    @invariant()
    def live_state_equals_replayed_state(self) -> None:
        """G1: the live shard equals the one replayed from the log."""
        live, stored = self.harness.shard.groups, self.harness.shadow.groups
        for name, group in live.items():
            if (expected := logged_state(group)) is not None:
                assert type(stored.get(name)) is type(group), (
                    f"G1: {group!r} is {stored.get(name)!r} in the log"
                )
                assert logged_state(stored[name]) == expected, f"G1: {group!r}"
        for name, group in stored.items():
            assert name in live, f"G1: {group!r} is in the log alone"

    @invariant()
    def each_partition_has_one_owner(self) -> None:
        """M1, M4, MG1: a partition has one owner, whatever its protocol, and the ownership index is
        consistent."""
        group = self.harness.group
        if not isinstance(group, ConsumerGroup):
            return
        owners: dict[tuple[Uuid, int], str] = {}
        for member_id, member in group.members.items():
            both = units(member.current.assigned) & units(member.current.pending_revocation)
            assert not both, f"M1: {member_id} has and gives up {both}"
            for unit in holds(member):
                assert unit not in owners, f"M1: {unit} is {owners[unit]}'s and {member_id}'s"
                owners[unit] = member_id
        indexed = {(t, p): owner for t, partitions in group.owners.items() for p, owner in partitions.items()}
        assert indexed == owners, f"M4: noted {indexed}, owned {owners}"

    @invariant()
    def clients_consume_only_held_partitions(self) -> None:
        """M1, M3, M6 from a client's side: a client consumes only partitions that it holds, as far as is
        known."""
        group = self.harness.group
        if not isinstance(group, ConsumerGroup):
            return
        for client in self.clients:
            member = group.members.get(client.member_id)
            if member is not None and client.epoch > 0 and member.current.epoch > 0:
                reads = (client.owns & self.existing_partitions()) - holds(member)
                assert not reads, f"M6: {client.name} reads {reads}, it holds {holds(member)}"

    @invariant()
    def epochs_are_in_order(self) -> None:
        """M2, M3, M5, M7, M9: epochs, the partitions held at them, and the group's state."""
        group = self.harness.group
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
                assert ("revocation", "g", member_id) in self.harness.timers, (
                    f"L4: nobody waits for {member_id}"
                )
            assert ("session", "g", member_id) in self.harness.timers, f"L4: {member_id} has no session"
        if group.state is State.STABLE:
            for member_id, member in group.members.items():
                assert member.is_reconciled_to(group.epoch), f"M7: {member_id} is not there"

    @invariant()
    def instance_ids_belong_to_members(self) -> None:
        """M13: an instance id belongs to one member, and each static member has one."""
        group = self.harness.group
        if isinstance(group, ConsumerGroup):
            named = {m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None}
            assert group.instances == named, f"M13: noted {group.instances}, there are {named}"

    @invariant()
    def a_group_is_of_one_protocol(self) -> None:
        """MG4: without members of the new protocol it is a classic one, if it is small enough; and then
        nothing is left in the log of what it was."""
        group = self.harness.group
        if isinstance(group, ConsumerGroup) and group.members:
            sizes = len(group.members) > MOST_CLASSIC
            assert group.classic_members < len(group.members) or sizes, f"MG4: {group!r} is all classic"
        if isinstance(group, ClassicGroup):
            last = {pair[0]: pair[1] for batch in self.harness.batches for pair in batch.pairs}
            records = {
                key: record
                for b in self.harness.batches
                for (key, _), record in zip(b.pairs, b.records, strict=True)
            }
            for key, value in last.items():
                ours = type(getattr(records[key], "key", None)) in log.RECORDS.replays
                assert not ours or value is None, f"MG4: left of the consumer group: {records[key]}"


TestConsumerGroups = ConsumerGroupMachine.TestCase
TestConsumerGroups.settings = settings(
    max_examples=EXAMPLES or depth.examples(120),
    stateful_step_count=40,
    deadline=None,
    derandomize=not EXAMPLES,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
