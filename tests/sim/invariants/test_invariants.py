"""Each invariant detects a violation: a core with one planted bug breaks the expected invariant."""

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


def decision_changes_a_group(m: Patch) -> None:
    decide = shard_module.HANDLERS[HeartbeatRequest]

    def wrong(shard: GroupShard, request: Any, context: Any) -> Outcome:
        for group in shard.groups.values():
            group.state_timestamp_ms += 1
        return decide(shard, request, context)

    m.setitem(shard_module.HANDLERS, HeartbeatRequest, wrong)


def offset_is_not_replayed(m: Patch) -> None:
    m.setitem(shard_module.REPLAYS, OffsetCommitted, lambda shard, record: None)


def assignment_is_not_written(m: Patch) -> None:
    write = classic_log.to_record

    def wrong(group: ClassicGroup) -> Any:
        copy = group.copy()
        copy.members = {k: replace(member, assignment=b"") for k, member in group.members.items()}
        return write(copy)

    m.setattr(classic_log, "to_record", wrong)


def replay_creates_a_group(m: Patch) -> None:
    replay = shard_module.REPLAYS[ClassicGroupSnapshot]

    def wrong(shard: GroupShard, record: Any) -> None:
        replay(shard, record)
        shard.groups.setdefault("ghost", ClassicGroup("ghost"))

    m.setitem(shard_module.REPLAYS, ClassicGroupSnapshot, wrong)


def session_is_not_armed(m: Patch) -> None:
    m.setattr(Decision, "arm_session", lambda step, member: None)


def session_is_too_long(m: Patch) -> None:
    def wrong(step: Decision, member: Any) -> None:
        step.arm(("session", step.group.group_id, member.member_id), 3 * member.session_timeout_ms)

    m.setattr(Decision, "arm_session", wrong)


def sync_timer_is_too_long(m: Patch) -> None:
    arm = Decision.arm
    m.setattr(Decision, "arm", lambda step, key, ms: arm(step, key, ms * 3 if key[0] == "sync" else ms))


def initial_delay_is_wrong(m: Patch) -> None:
    m.setattr(step_module, "initial_delay_ms", lambda context: 15)


def generation_is_skipped(m: Patch) -> None:
    complete = Decision.complete_join

    def wrong(step: Decision) -> None:
        step.group.generation += 1
        complete(step)

    m.setattr(Decision, "complete_join", wrong)


def assignments_are_equal(m: Patch) -> None:
    stabilise = Decision.propagate_assignment
    m.setattr(
        Decision,
        "propagate_assignment",
        lambda step, given: stabilise(step, dict.fromkeys(given, b"the same")),
    )


def maximum_size_is_ignored(m: Patch) -> None:
    m.setattr(join, "_accepts_joining_member", lambda *args: True)


def member_id_is_not_checked(m: Patch) -> None:
    def wrong(group: ClassicGroup, member_id: str, instance_id: str | None) -> Any:
        return group.members.get(member_id) or next(iter(group.members.values()))

    m.setattr(ClassicGroup, "check_member", wrong)


def generation_has_no_trace(m: Patch) -> None:
    m.setattr(Decision, "audit_generation", lambda step, state: None)


def timers_are_not_disarmed(m: Patch) -> None:
    m.setattr(Decision, "disarm", lambda step, key: None)


def subscriptions_are_ignored(m: Patch) -> None:
    row = replace(TYPES[ClassicGroup], subscribes_to=lambda group, topic: False)
    m.setitem(TYPES, ClassicGroup, row)


def join_is_not_answered(m: Patch) -> None:
    m.setattr(Decision, "answer_join", lambda step, member, response: step.group.put(
        replace(member, join_waiter=None)) or replace(member, join_waiter=None))  # fmt: skip


def requests_are_answered_twice(m: Patch) -> None:
    reply = Decision.reply

    def wrong(step: Decision, waiter: int, response: Any) -> None:
        reply(step, waiter, response)
        reply(step, waiter, response)

    m.setattr(Decision, "reply", wrong)


def counters_are_wrong(m: Patch) -> None:
    m.setattr(ClassicGroup, "_count", lambda group, member, step: group.protocol_counts.update("x"))


def committer_is_not_checked(m: Patch) -> None:
    m.setattr(commit_module, "_check_committer", lambda *args: ())


def instance_ids_are_lost(m: Patch) -> None:
    put = ClassicGroup.put

    def wrong(group: ClassicGroup, member: Any) -> None:
        put(group, member)
        group.instances.clear()

    m.setattr(ClassicGroup, "put", wrong)


def returning_member_loses_its_assignment(m: Patch) -> None:
    take = join._replace_member_id
    m.setattr(
        join,
        "_replace_member_id",
        lambda group, old, member_id: take(group, replace(old, assignment=b""), member_id),
    )


def absent_static_members_are_removed(m: Patch) -> None:
    complete = Decision.complete_join

    def wrong(step: Decision) -> None:
        for member in list(step.group.members.values()):
            if member.join_waiter is None:
                step.cause(causes.REBALANCE_TIMEOUT, member)
                step.group.drop(member.member_id)
                step.disarm(("session", step.group.group_id, member.member_id))
        complete(step)

    m.setattr(Decision, "complete_join", wrong)


def responses_do_not_wait_for_the_sync(m: Patch) -> None:
    m.setattr(Coordinator, "_release_or_hold", Coordinator._release)


def durable_batch_is_lost(m: Patch) -> None:
    def wrong(log: Log, keep: int) -> int:
        del log.batches[-1:]
        log.durable = len(log.batches)
        return 0

    m.setattr(Log, "lose_tail", wrong)


def every_request_is_cacheable(m: Patch) -> None:
    m.setattr(GroupShard, "cacheable", lambda shard, request, context: ("anything", (Arm(("session",), 1),)))


def fetched_offset_is_wrong(m: Patch) -> None:
    fetch = shard_module.HANDLERS[OffsetFetchRequest]

    def wrong(shard: GroupShard, request: Any, context: Any) -> Outcome:
        kept, shard.offsets = shard.offsets, {}
        outcome = fetch(shard, request, context)
        shard.offsets = kept
        return outcome

    m.setitem(shard_module.HANDLERS, OffsetFetchRequest, wrong)


def timer_raises(m: Patch) -> None:
    def wrong(*args: Any) -> Outcome:
        raise KeyError("a timer that cannot be decided")

    m.setitem(shard_module.TIMERS, "session", wrong)


def returning_member_starts_a_rebalance(m: Patch) -> None:
    answer = Decision.joined_response

    def wrong(step: Decision, member: Any, **options: Any) -> Any:
        response = answer(step, member, **options)
        if step.group.state is State.STABLE:
            step.start_rebalance()
        return response

    m.setattr(Decision, "joined_response", wrong)


def rebalance_timeout_is_ignored(m: Patch) -> None:
    m.setattr(join, "rebalance_timeout_ms", lambda request: 12_345)


def generation_begins_with_one_member(m: Patch) -> None:
    m.setattr(ClassicGroup, "all_joined", property(lambda group: group.waiting > 0 or not group.members))


def rebalance_timeout_is_too_short(m: Patch) -> None:
    m.setattr(ClassicGroup, "rebalance_timeout_ms", property(lambda group: 1_000))


def trace_is_reported_again(m: Patch) -> None:
    audit = Decision.audit_generation

    def wrong(step: Decision, state: str) -> None:
        trace = step.group.trace
        audit(step, state)
        step.group.trace = trace

    m.setattr(Decision, "audit_generation", wrong)


def causes_are_not_recorded(m: Patch) -> None:
    m.setattr(Decision, "cause", lambda step, kind, member, reason=None: None)


def tombstone_creates_a_group(m: Patch) -> None:
    replay = shard_module.REPLAYS[OffsetCommitted]

    def wrong(shard: GroupShard, record: OffsetCommitted) -> None:
        shard.groups.setdefault(record.group, ClassicGroup(record.group))
        replay(shard, record)

    m.setitem(shard_module.REPLAYS, OffsetCommitted, wrong)


def pending_requests_are_dropped(m: Patch) -> None:
    stop = Coordinator._stop_serving

    def wrong(coordinator: Coordinator, state: str) -> None:
        coordinator._waiting.clear()
        stop(coordinator, state)

    m.setattr(Coordinator, "_stop_serving", wrong)


def responses_after_the_sync_wait(m: Patch) -> None:
    async def wrong(coordinator: Coordinator) -> None:
        await coordinator._journal.sync()
        durable = coordinator._journal.synced_offset
        while coordinator._held and coordinator._held[0].offset <= durable:
            coordinator._release(coordinator._held.popleft())
        coordinator._syncing = None

    m.setattr(Coordinator, "_sync", wrong)


def describe_restarts_sessions(m: Patch) -> None:
    describe = shard_module.HANDLERS[DescribeGroupsRequest]

    def wrong(shard: GroupShard, request: Any, context: Any) -> Outcome:
        sessions = [
            Arm(("session", g.group_id, key), 30_000) for g in shard.groups.values() for key in g.members
        ]
        return describe(shard, request, context)._replace(timers=tuple(sessions))

    m.setitem(shard_module.HANDLERS, DescribeGroupsRequest, wrong)


def heartbeat_during_rebalance_does_not_restart_session(m: Patch) -> None:
    decide = shard_module.HANDLERS[HeartbeatRequest]

    def wrong(shard: GroupShard, request: Any, context: Any) -> Outcome:
        outcome = decide(shard, request, context)
        return outcome._replace(timers=()) if "REBALANCE" in repr(outcome.replies) else outcome

    m.setitem(shard_module.HANDLERS, HeartbeatRequest, wrong)


def instance_id_is_not_checked(m: Patch) -> None:
    check = ClassicGroup.check_member
    m.setattr(ClassicGroup, "check_member", lambda group, member_id, _: check(group, member_id, None))


PLANTED_BUGS: list[tuple[Callable[[Patch], None], str, str]] = [
    (decision_changes_a_group, "heartbeat ann", "DecisionsChangeNothing"),
    (offset_is_not_replayed, "", "OffsetsAreTheLastCommitted"),
    (assignment_is_not_written, "", "SettledGroupsAreStored"),
    (replay_creates_a_group, "", "SettledGroupsAreStored"),
    (session_is_not_armed, "", "ResponsesRestartSessions"),
    (timers_are_not_disarmed, "", "TimersMatchState"),
    (session_is_too_long, "", "ResponsesRestartSessions"),
    (describe_restarts_sessions, "advance 8000\ndescribe g\nadvance 8000\njoin bob",
     "SilentMembersExpire"),
    (sync_timer_is_too_long, "", "RebalancesEnd"),
    (generation_is_skipped, "", "GenerationsIncrease"),
    (assignments_are_equal, "", "AssignmentsComeFromTheLeader"),
    (maximum_size_is_ignored, "config group.max.size=2\njoin cas version=3", "GroupSizeIsLimited"),
    (member_id_is_not_checked, "sync bob member=nobody generation=1", "NonMembersAreRejected"),
    (generation_has_no_trace, "", "EveryGenerationHasATrace"),
    (subscriptions_are_ignored, "clock 3600000\nexpire retention", "OffsetsExpireAfterRetention"),
    (join_is_not_answered, "", "PendingRequestsAreTracked"),
    (requests_are_answered_twice, "", "RequestsAreAnsweredOnce"),
    (counters_are_wrong, "", "CountersMatchMembers"),
    (committer_is_not_checked,
     "commit bob orders-0:9 member=nobody generation=1", "OnlyMembersCommit"),
    (instance_ids_are_lost, "", "InstanceIdsAreUnique"),
    (returning_member_loses_its_assignment,
     f"join DAN member=- {READS_ORDERS}", "AssignmentsComeFromTheLeader"),
    (absent_static_members_are_removed, f"join ann {READS_ORDERS}\nadvance 30000",
     "StaticMembersStay"),
    (responses_do_not_wait_for_the_sync,
     "hold\ncommit ann orders-0:9", "ResponsesWaitForDurability"),
    (responses_after_the_sync_wait,
     "hold\ncommit ann orders-0:8\ncommit ann orders-0:9\ndurable but=1", "ResponsesWaitForDurability"),
    (pending_requests_are_dropped,
     "join bob version=3\nfail\ncommit ann orders-0:9", "EveryRequestIsAnswered"),
    (durable_batch_is_lost, "restart", "LoadRestores"),
    (every_request_is_cacheable, "", "HeartbeatsChangeNothing"),
    (fetched_offset_is_wrong, "fetch tool", "OffsetsAreTheLastCommitted"),
    (initial_delay_is_wrong, "", "FirstGenerationsAreDelayed"),
    (returning_member_starts_a_rebalance,
     f"join DAN instance=DAN session=60000 {READS_ORDERS}",
     "RejoinsStartRebalances"),
    (rebalance_timeout_is_ignored, "", "JoinsUpdateMembers"),
    (heartbeat_during_rebalance_does_not_restart_session,
     f"join ann {READS_ORDERS}\nadvance 1000\nheartbeat DAN",
     "ResponsesRestartSessions"),
    (generation_begins_with_one_member, f"join ann {READS_ORDERS}", "GenerationsIncludeAllMembers"),
    (rebalance_timeout_is_too_short, "", "RebalanceTimeoutsAreTheLongest"),
    (trace_is_reported_again, f"join ann {READS_ORDERS}\njoin DAN instance=DAN session=60000 {READS_ORDERS}\n"
     "sync ann assign=ann:one", "CausesAreReportedOnce"),
    (causes_are_not_recorded, "", "MembershipChangesHaveACause"),
    (tombstone_creates_a_group, "commit tool audit-1:1 group=s\ndelete s", "TombstonesLeaveNothing"),
    (instance_id_is_not_checked,
     "sync DAN member=nobody instance=DAN generation=1", "OldMemberIdsAreFenced"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "then", "invariant"), PLANTED_BUGS, ids=lambda x: getattr(x, "__name__", None)
)
def test_planted_bug_breaks_the_expected_invariant(
    wrong: Callable[[Patch], None], then: str, invariant: str, monkeypatch: Patch
) -> None:
    """The scenario breaks the invariant with the planted bug, and none without it."""
    sound = Scenario()
    sound.run([*STABLE, *then.split("\n")])
    assert sound.broken is None
    wrong(monkeypatch)
    scenario = Scenario()
    scenario.run([*STABLE, *then.split("\n")])
    assert isinstance(scenario.broken, InvariantViolation), scenario.broken
    assert scenario.broken.invariant == invariant, scenario.broken


def test_error_of_the_core_breaks_the_scenario(monkeypatch: Patch) -> None:
    """A coordinator logs an exception of the core and continues; the scenario ends with it."""
    timer_raises(monkeypatch)
    scenario = Scenario()
    lines = scenario.run([*STABLE, "advance 10000", "heartbeat ann"])
    assert isinstance(scenario.broken, KeyError)
    assert lines[-1] == "broken KeyError: 'a timer that cannot be decided'"


def test_violation_names_the_invariant_and_the_cause() -> None:
    """`observer` raises a violation with the name of the class and the message of its assertion."""

    class Never(Invariant):
        """Ours: never holds."""

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


def test_loading_coordinator_answers_load_in_progress(monkeypatch: Patch) -> None:
    """A coordinator that loads its log answers COORDINATOR_LOAD_IN_PROGRESS, not NOT_COORDINATOR."""
    config = BrokerConfig.load(overrides=[])[0]
    runtime = GroupRuntime(
        EventQueue(Random(1)),
        SimulatedPorts(config=lambda: config, topics=lambda: TOPICS, load_ms=lambda: 100),
    )
    runtime.load()
    responses: list[Any] = []
    runtime.ask(OffsetFetchRequest(), RequestContext(9), responses.append)
    assert responses == [Errors.COORDINATOR_LOAD_IN_PROGRESS]
    runtime.event_queue.run_until(runtime.event_queue.now_ms + 200)
    runtime.ask(OffsetFetchRequest(), RequestContext(9), responses.append)
    assert responses[1] == OffsetFetchResponse()

    def answers_not_coordinator(
        coordinator: Coordinator, request: Any, call: RequestContext
    ) -> Deferred[Any]:
        deferred: Deferred[Any] = Deferred()
        deferred.resolve(Errors.NOT_COORDINATOR)
        return deferred

    monkeypatch.setattr(Coordinator, "submit", answers_not_coordinator)
    with pytest.raises(InvariantViolation, match="UnavailableCoordinatorsRejectRequests"):
        runtime.ask(OffsetFetchRequest(), RequestContext(9))


def test_member_id_handed_out_by_a_downgrade_has_its_own_session_timeout(monkeypatch: Patch) -> None:
    """The session timeout is that of its JoinGroup, not of the next one. No audit runs in between."""
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
