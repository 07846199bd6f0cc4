"""Invariants can be broken: a core in which one thing is wrong is found out, by the invariant that says
so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from konvene.configs import BrokerConfig
from konvene.errors import Errors
from konvene.groups import shard as shard_module
from konvene.groups.classic import decision as step_module
from konvene.groups.classic import join
from konvene.groups.classic import log as classic_log
from konvene.groups.classic.decision import Decision
from konvene.groups.classic.group import ClassicGroup, ClassicGroupSnapshot, State
from konvene.groups.group_type import TYPES
from konvene.groups.offsets import commit as commit_module
from konvene.groups.shard import GroupShard
from konvene.messages.describe_groups import DescribeGroupsRequest
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from konvene.records.commits import OffsetCommitted
from konvene.runtime.coordinator import Coordinator, RequestContext
from konvene.runtime.deferred import Deferred
from konvene.shard import causes
from konvene.shard.contract import Arm, Outcome
from konvene.sim.event_queue import EventQueue
from konvene.sim.group_runtime import TOPICS, GroupRuntime
from konvene.sim.invariants import invariants_of, observer
from konvene.sim.invariants.classic.state import SilentMembersExpire
from konvene.sim.journal import Log
from konvene.sim.runtime import SimulatedPorts
from konvene.sim.transcript.scenario import Scenario
from konvene.sim.world.event import Event, Invariant, InvariantViolation

Patch = pytest.MonkeyPatch

READS_ORDERS = "protocols=range:%00%01%00%00%00%01%00%06orders%00%00%00%00%00%00%00%00"
STABLE = [
    "config group.initial.rebalance.delay.ms=0 offsets.retention.minutes=1",
    f"join ann {READS_ORDERS}",
    f"join ann {READS_ORDERS}",
    f"join DAN instance=DAN session=60000 {READS_ORDERS}",
    "advance 100",
    "sync ann assign=ann:one,DAN:two",
    "sync DAN",
    "commit ann orders-0:7",
]
"""Two members, one of them static, and an offset."""


def mutates_in_a_decision(m: Patch) -> None:
    decide = shard_module.HANDLERS[HeartbeatRequest]

    def wrong(shard: GroupShard, request: Any, context: Any) -> Outcome:
        for group in shard.groups.values():
            group.state_timestamp_ms += 1
        return decide(shard, request, context)

    m.setitem(shard_module.HANDLERS, HeartbeatRequest, wrong)


def forgets_an_offset(m: Patch) -> None:
    m.setitem(shard_module.REPLAYS, OffsetCommitted, lambda shard, record: None)


def writes_no_assignment(m: Patch) -> None:
    write = classic_log.to_record

    def wrong(group: ClassicGroup) -> Any:
        copy = group.copy()
        copy.members = {k: replace(member, assignment=b"") for k, member in group.members.items()}
        return write(copy)

    m.setattr(classic_log, "to_record", wrong)


def makes_a_group_of_nothing(m: Patch) -> None:
    replay = shard_module.REPLAYS[ClassicGroupSnapshot]

    def wrong(shard: GroupShard, record: Any) -> None:
        replay(shard, record)
        shard.groups.setdefault("ghost", ClassicGroup("ghost"))

    m.setitem(shard_module.REPLAYS, ClassicGroupSnapshot, wrong)


def arms_no_session(m: Patch) -> None:
    m.setattr(Decision, "arm_session", lambda step, member: None)


def arms_a_longer_session(m: Patch) -> None:
    def wrong(step: Decision, member: Any) -> None:
        step.arm(("session", step.group.group_id, member.member_id), 3 * member.session_timeout_ms)

    m.setattr(Decision, "arm_session", wrong)


def waits_longer(m: Patch) -> None:
    arm = Decision.arm
    m.setattr(Decision, "arm", lambda step, key, ms: arm(step, key, ms * 3 if key[0] == "sync" else ms))


def waits_longer_for_the_first(m: Patch) -> None:
    m.setattr(step_module, "initial_delay_ms", lambda context: 15)


def skips_a_generation(m: Patch) -> None:
    complete = Decision.complete_join

    def wrong(step: Decision) -> None:
        step.group.generation += 1
        complete(step)

    m.setattr(Decision, "complete_join", wrong)


def gives_all_the_same(m: Patch) -> None:
    stabilise = Decision.propagate_assignment
    m.setattr(
        Decision,
        "propagate_assignment",
        lambda step, given: stabilise(step, dict.fromkeys(given, b"the same")),
    )


def has_always_room(m: Patch) -> None:
    m.setattr(join, "_accepts_joining_member", lambda *args: True)


def hears_anybody(m: Patch) -> None:
    def wrong(group: ClassicGroup, member_id: str, instance_id: str | None) -> Any:
        return group.members.get(member_id) or next(iter(group.members.values()))

    m.setattr(ClassicGroup, "check_member", wrong)


def forgets_why(m: Patch) -> None:
    m.setattr(Decision, "audit_generation", lambda step, state: None)


def leaves_timers_behind(m: Patch) -> None:
    m.setattr(Decision, "disarm", lambda step, key: None)


def lets_go_at_once(m: Patch) -> None:
    row = replace(TYPES[ClassicGroup], subscribes_to=lambda group, topic: False)
    m.setitem(TYPES, ClassicGroup, row)


def answers_nobody(m: Patch) -> None:
    m.setattr(Decision, "answer_join", lambda step, member, response: step.group.put(
        replace(member, join_waiter=None)) or replace(member, join_waiter=None))  # fmt: skip


def answers_twice(m: Patch) -> None:
    reply = Decision.reply

    def wrong(step: Decision, waiter: int, response: Any) -> None:
        reply(step, waiter, response)
        reply(step, waiter, response)

    m.setattr(Decision, "reply", wrong)


def counts_wrong(m: Patch) -> None:
    m.setattr(ClassicGroup, "_count", lambda group, member, step: group.protocol_counts.update("x"))


def accepts_any_commit(m: Patch) -> None:
    m.setattr(commit_module, "_check_committer", lambda *args: ())


def forgets_instances(m: Patch) -> None:
    put = ClassicGroup.put

    def wrong(group: ClassicGroup, member: Any) -> None:
        put(group, member)
        group.instances.clear()

    m.setattr(ClassicGroup, "put", wrong)


def forgets_what_it_had(m: Patch) -> None:
    take = join._replace_member_id
    m.setattr(
        join,
        "_replace_member_id",
        lambda group, old, member_id: take(group, replace(old, assignment=b""), member_id),
    )


def drops_static_members(m: Patch) -> None:
    complete = Decision.complete_join

    def wrong(step: Decision) -> None:
        for member in list(step.group.members.values()):
            if member.join_waiter is None:
                step.cause(causes.REBALANCE_TIMEOUT, member)
                step.group.drop(member.member_id)
                step.disarm(("session", step.group.group_id, member.member_id))
        complete(step)

    m.setattr(Decision, "complete_join", wrong)


def answers_before_it_is_durable(m: Patch) -> None:
    m.setattr(Coordinator, "_release_or_hold", Coordinator._release)


def loses_what_was_durable(m: Patch) -> None:
    def wrong(log: Log, keep: int) -> int:
        del log.batches[-1:]
        log.durable = len(log.batches)
        return 0

    m.setattr(Log, "lose_tail", wrong)


def says_the_same_again(m: Patch) -> None:
    m.setattr(GroupShard, "cacheable", lambda shard, request, context: ("anything", (Arm(("session",), 1),)))


def tells_another_offset(m: Patch) -> None:
    fetch = shard_module.HANDLERS[OffsetFetchRequest]

    def wrong(shard: GroupShard, request: Any, context: Any) -> Outcome:
        kept, shard.offsets = shard.offsets, {}
        outcome = fetch(shard, request, context)
        shard.offsets = kept
        return outcome

    m.setitem(shard_module.HANDLERS, OffsetFetchRequest, wrong)


def raises_in_a_timer(m: Patch) -> None:
    def wrong(*args: Any) -> Outcome:
        raise KeyError("a timer that cannot be decided")

    m.setitem(shard_module.TIMERS, "session", wrong)


def rebalances_for_whoever_asks(m: Patch) -> None:
    answer = Decision.joined_response

    def wrong(step: Decision, member: Any, **told: Any) -> Any:
        said = answer(step, member, **told)
        if step.group.state is State.STABLE:
            step.start_rebalance()
        return said

    m.setattr(Decision, "joined_response", wrong)


def believes_no_rebalance_timeout(m: Patch) -> None:
    m.setattr(join, "rebalance_timeout_ms", lambda request: 12_345)


def waits_for_one(m: Patch) -> None:
    m.setattr(ClassicGroup, "all_joined", property(lambda group: group.waiting > 0 or not group.members))


def is_impatient(m: Patch) -> None:
    m.setattr(ClassicGroup, "rebalance_timeout_ms", property(lambda group: 1_000))


def tells_again(m: Patch) -> None:
    audit = Decision.audit_generation

    def wrong(step: Decision, state: str) -> None:
        story = step.group.trace
        audit(step, state)
        step.group.trace = story

    m.setattr(Decision, "audit_generation", wrong)


def has_no_cause(m: Patch) -> None:
    m.setattr(Decision, "cause", lambda step, kind, member, reason=None: None)


def makes_a_group_of_a_tombstone(m: Patch) -> None:
    replay = shard_module.REPLAYS[OffsetCommitted]

    def wrong(shard: GroupShard, record: OffsetCommitted) -> None:
        shard.groups.setdefault(record.group, ClassicGroup(record.group))
        replay(shard, record)

    m.setitem(shard_module.REPLAYS, OffsetCommitted, wrong)


def forgets_who_waits(m: Patch) -> None:
    stop = Coordinator._stop_serving

    def wrong(coordinator: Coordinator, state: str) -> None:
        coordinator._waiting.clear()
        stop(coordinator, state)

    m.setattr(Coordinator, "_stop_serving", wrong)


def syncs_once(m: Patch) -> None:
    async def wrong(coordinator: Coordinator) -> None:
        await coordinator._journal.sync()
        durable = coordinator._journal.synced_offset
        while coordinator._held and coordinator._held[0].offset <= durable:
            coordinator._release(coordinator._held.popleft())
        coordinator._syncing = None

    m.setattr(Coordinator, "_sync", wrong)


def keeps_alive_who_is_looked_at(m: Patch) -> None:
    describe = shard_module.HANDLERS[DescribeGroupsRequest]

    def wrong(shard: GroupShard, request: Any, context: Any) -> Outcome:
        sessions = [
            Arm(("session", g.group_id, key), 30_000) for g in shard.groups.values() for key in g.members
        ]
        return describe(shard, request, context)._replace(timers=tuple(sessions))

    m.setitem(shard_module.HANDLERS, DescribeGroupsRequest, wrong)


def hears_no_heartbeat(m: Patch) -> None:
    decide = shard_module.HANDLERS[HeartbeatRequest]

    def wrong(shard: GroupShard, request: Any, context: Any) -> Outcome:
        outcome = decide(shard, request, context)
        return outcome._replace(timers=()) if "REBALANCE" in repr(outcome.replies) else outcome

    m.setitem(shard_module.HANDLERS, HeartbeatRequest, wrong)


def fences_nobody(m: Patch) -> None:
    check = ClassicGroup.check_member
    m.setattr(ClassicGroup, "check_member", lambda group, member_id, _: check(group, member_id, None))


WRONG: list[tuple[Callable[[Patch], None], str, str]] = [
    (mutates_in_a_decision, "heartbeat ann", "DecisionsChangeNothing"),
    (forgets_an_offset, "", "OffsetsAreTheLastCommitted"),
    (writes_no_assignment, "", "SettledGroupsAreStored"),
    (makes_a_group_of_nothing, "", "SettledGroupsAreStored"),
    (arms_no_session, "", "ResponsesRestartSessions"),
    (leaves_timers_behind, "", "TimersMatchState"),
    (arms_a_longer_session, "", "ResponsesRestartSessions"),
    (keeps_alive_who_is_looked_at, "advance 8000\ndescribe g\nadvance 8000\njoin bob",
     "SilentMembersExpire"),
    (waits_longer, "", "RebalancesEnd"),
    (skips_a_generation, "", "GenerationsIncrease"),
    (gives_all_the_same, "", "AssignmentsComeFromTheLeader"),
    (has_always_room, "config group.max.size=2\njoin cas version=3", "GroupSizeIsLimited"),
    (hears_anybody, "sync bob member=nobody generation=1", "NonMembersAreRejected"),
    (forgets_why, "", "EveryGenerationHasATrace"),
    (lets_go_at_once, "clock 3600000\nexpire retention", "OffsetsExpireAfterRetention"),
    (answers_nobody, "", "PendingRequestsAreTracked"),
    (answers_twice, "", "RequestsAreAnsweredOnce"),
    (counts_wrong, "", "CountersMatchMembers"),
    (accepts_any_commit, "commit bob orders-0:9 member=nobody generation=1", "OnlyMembersCommit"),
    (forgets_instances, "", "InstanceIdsAreUnique"),
    (forgets_what_it_had, f"join DAN member=- {READS_ORDERS}", "AssignmentsComeFromTheLeader"),
    (drops_static_members, f"join ann {READS_ORDERS}\nadvance 30000",
     "StaticMembersStay"),
    (answers_before_it_is_durable, "hold\ncommit ann orders-0:9", "ResponsesWaitForDurability"),
    (syncs_once, "hold\ncommit ann orders-0:8\ncommit ann orders-0:9\ndurable but=1",
     "ResponsesWaitForDurability"),
    (forgets_who_waits, "join bob version=3\nfail\ncommit ann orders-0:9", "EveryRequestIsAnswered"),
    (loses_what_was_durable, "restart", "LoadRestores"),
    (says_the_same_again, "", "HeartbeatsChangeNothing"),
    (tells_another_offset, "fetch tool", "OffsetsAreTheLastCommitted"),
    (waits_longer_for_the_first, "", "FirstGenerationsAreDelayed"),
    (rebalances_for_whoever_asks, f"join DAN instance=DAN session=60000 {READS_ORDERS}",
     "RejoinsStartRebalances"),
    (believes_no_rebalance_timeout, "", "JoinsUpdateMembers"),
    (hears_no_heartbeat, f"join ann {READS_ORDERS}\nadvance 1000\nheartbeat DAN",
     "ResponsesRestartSessions"),
    (waits_for_one, f"join ann {READS_ORDERS}", "GenerationsIncludeAllMembers"),
    (is_impatient, "", "RebalanceTimeoutsAreTheLongest"),
    (tells_again, f"join ann {READS_ORDERS}\njoin DAN instance=DAN session=60000 {READS_ORDERS}\n"
     "sync ann assign=ann:one", "CausesAreReportedOnce"),
    (has_no_cause, "", "MembershipChangesHaveACause"),
    (makes_a_group_of_a_tombstone, "commit tool audit-1:1 group=s\ndelete s", "TombstonesLeaveNothing"),
    (fences_nobody, "sync DAN member=nobody instance=DAN generation=1", "OldMemberIdsAreFenced"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "then", "invariant"), WRONG, ids=lambda x: getattr(x, "__name__", None))
def test_what_is_wrong_is_found_out(
    wrong: Callable[[Patch], None], then: str, invariant: str, monkeypatch: Patch
) -> None:
    """With one thing wrong in the core the same scenario breaks this invariant; without it, none."""
    sound = Scenario()
    sound.run([*STABLE, *then.split("\n")])
    assert sound.broken is None
    wrong(monkeypatch)
    scenario = Scenario()
    scenario.run([*STABLE, *then.split("\n")])
    assert isinstance(scenario.broken, InvariantViolation), scenario.broken
    assert scenario.broken.invariant == invariant, scenario.broken


def test_an_error_of_the_core_is_not_hidden(monkeypatch: Patch) -> None:
    """A coordinator logs what it cannot decide and goes on; a shell remembers it, and says so."""
    raises_in_a_timer(monkeypatch)
    scenario = Scenario()
    said = scenario.run([*STABLE, "advance 10000", "heartbeat ann"])
    assert isinstance(scenario.broken, KeyError)
    assert said[-1] == "broken KeyError: 'a timer that cannot be decided'"


def test_a_violation_names_the_invariant_and_the_cause() -> None:
    """`observer` gives the name of the class and the text of its assertion."""

    class Never(Invariant):
        """Ours: never kept."""

        def after(self, event: Event) -> None:
            assert event is None, "there is an event"

    scenario = Scenario()
    runtime: GroupRuntime = scenario.life.runtime
    event = Event("audit", runtime, *[runtime.ended] * 2)
    with pytest.raises(InvariantViolation) as broken:
        observer([*invariants_of(), Never()])(event)
    assert broken.value.invariant in ("Never", "OffsetsExpireAfterRetention", "ReplayEqualsLive")
    with pytest.raises(InvariantViolation, match="Never: there is an event"):
        observer([Never()])(event)


def test_a_coordinator_that_loads_says_so(monkeypatch: Patch) -> None:
    """Who is asked while it reads its log answers so, and not that it is somebody else's group."""
    config = BrokerConfig.load(overrides=[])[0]
    runtime = GroupRuntime(
        EventQueue(Random(1)),
        SimulatedPorts(config=lambda: config, topics=lambda: TOPICS, load_ms=lambda: 100),
    )
    runtime.load()
    heard: list[Any] = []
    runtime.ask(OffsetFetchRequest(), RequestContext(9), heard.append)
    assert heard == [Errors.COORDINATOR_LOAD_IN_PROGRESS]
    runtime.event_queue.run_until(runtime.event_queue.now_ms + 200)
    runtime.ask(OffsetFetchRequest(), RequestContext(9), heard.append)
    assert heard[1] == OffsetFetchResponse()

    def lies(coordinator: Coordinator, request: Any, call: RequestContext) -> Deferred[Any]:
        later: Deferred[Any] = Deferred()
        later.resolve(Errors.NOT_COORDINATOR)
        return later

    monkeypatch.setattr(Coordinator, "submit", lies)
    with pytest.raises(InvariantViolation, match="UnavailableCoordinatorsRejectRequests"):
        runtime.ask(OffsetFetchRequest(), RequestContext(9))


def test_who_is_handed_an_id_by_what_makes_a_group_classic_has_its_own_time(monkeypatch: Patch) -> None:
    """And not that of whoever is handed one next. Nobody looks at everything in between, as in a run."""
    after = SilentMembersExpire.after
    monkeypatch.setattr(
        SilentMembersExpire,
        "after",
        lambda self, event: None if event.kind == "audit" else after(self, event),
    )
    scenario = Scenario()
    scenario.run(
        [
            "config group.initial.rebalance.delay.ms=0",
            "kinds migration",
            "consumer-heartbeat ann join topics=orders",
            "consumer-heartbeat ann leave",
            "join bob session=20000 reads=orders",
            "advance 1400",
            "join cid session=10000 reads=orders",
            "advance 11000",
            "join eve reads=orders",
        ]
    )
    assert scenario.broken is None
