"""Which reports make the coordinator compute a new target because of warm-up tasks (KIP-1071)."""

from __future__ import annotations

from random import Random

import pytest
from tests.groups.streams.restorers import END, Restorer, Story, causes, restorer, rounds
from tests.groups.streams.topology.topologies import sub, topology

from konvene.codec.compile import decode, encode
from konvene.groups.streams.assignors import assignment_configs, read_configs
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

JOIN = "streams-heartbeat ann join topology=0:orders!counts"
STAY = "streams-heartbeat ann"


def scaled_out(**settings: str) -> tuple[Story, Restorer, Restorer]:
    """Return a group in which ann runs all six tasks, and bob has just joined with an empty disk."""
    story = Story(**settings)
    ann, bob = restorer("ann"), restorer("bob", pace=0)
    rounds(story, [ann], 2)
    bob.beat_and_track(story)
    return story, ann, bob


# --- members that report ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("commands", "reports"),
    [
        ([f"{JOIN} offsets=-"], True),
        ([f"{JOIN}"], False),
        ([f"{JOIN} offsets=- version=0"], False),
        ([f"{JOIN} offsets=0-0:7 version=0"], True),
        ([f"{JOIN}", f"{STAY} offsets=0-0:7"], True),
        ([f"{JOIN} offsets=-", STAY], True),
        ([f"{JOIN} offsets=-", f"{STAY} ends=0-0:7"], True),
        ([f"{JOIN}", f"{STAY} version=0"], False),
        ([f"{JOIN}", "restart", STAY], True),
        ([f"{JOIN}", "restart", f"{STAY} version=0"], False),
        ([f"{JOIN} offsets=-", "restart", f"{STAY} version=0", f"{STAY} offsets=0-0:7 version=0"], True),
    ],
)
def test_a_member_that_sends_offsets_reports(commands: list[str], reports: bool) -> None:
    """An empty list reports an empty disk; but with version 0 it means that nothing is reported."""
    story = Story()
    for command in commands:
        story.run(command)
    assert story.group is not None
    assert story.group.reported["ann-1"].reports is reports


def test_a_member_without_a_heartbeat_since_a_restart_counts_as_reporting() -> None:
    """Otherwise the next epoch would move tasks to members that are only restoring their state."""
    story = Story()
    ann, bob = restorer("ann"), restorer("bob", pace=0)
    rounds(story, [ann, bob], 3)
    assert (len(ann.active), len(bob.warmup)) == (6, 2)
    story.run("restart")
    cid = restorer("cid", pace=0)
    cid.beat_and_track(story)
    rounds(story, [ann, bob, cid], 4)
    assert story.cold == []
    assert len(ann.active) == 6


# --- choice of the assignor ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "join", "expected"),
    [
        ({}, f"{JOIN} offsets=-", "highly_available"),
        ({}, JOIN, "sticky"),
        ({}, "streams-heartbeat ann join topology=0:orders offsets=-", "sticky"),
        ({"group_streams_num_warmup_replicas": "0"}, f"{JOIN} offsets=-", "sticky"),
        ({"group_streams_assignors": "sticky"}, f"{JOIN} offsets=-", "sticky"),
        ({"group_streams_assignors": "sticky,highly_available"}, f"{JOIN} offsets=-", "sticky"),
        ({"group_streams_assignors": "highly_available,sticky"}, JOIN, "highly_available"),
    ],
)
def test_the_default_assignor(settings: dict[str, str], join: str, expected: str) -> None:
    """The first configured one, otherwise by whether there is state and a member that reports offsets."""
    story = Story(**settings)
    story.run(join)
    story.run("streams-describe g")
    assert story.answer("admin").groups[0].assignor_name == expected
    assert all(f"assignor={expected}" in line for line in story.lines if "assignor=" in line)


def test_one_reporting_member_selects_highly_available() -> None:
    story = Story()
    for who, offsets in (("ann", ""), ("bob", " offsets=-")):
        story.run(f"streams-heartbeat {who} join topology=0:orders!counts process={who}{offsets}")
    story.run("streams-describe g")
    assert story.answer("admin").groups[0].assignor_name == "highly_available"
    story.run("streams-heartbeat bob leave")
    story.run("streams-describe g")
    assert story.answer("admin").groups[0].assignor_name == "sticky"


def test_only_non_default_warm_up_settings_are_logged() -> None:
    """So its bytes equal Kafka's if warm-up settings are untouched, or the sticky assignor is used."""
    state = topology(sub("0", "orders", state="counts"))
    config = {
        "streams.assignor.name": None,
        "streams.num.standby.replicas": 1,
        "streams.rack.aware.assignment.tags": (),
        "streams.num.warmup.replicas": 2,
        "streams.acceptable.recovery.lag": 10_000,
    }
    assert assignment_configs(config, state) == {"num.standby.replicas": "1"}
    assert read_configs({"num.standby.replicas": "1"}).num_warmup_replicas == 2
    config |= {"streams.num.warmup.replicas": 0, "streams.acceptable.recovery.lag": 2**40}
    logged = assignment_configs(config, state)
    assert logged == {
        "num.standby.replicas": "1", "num.warmup.replicas": "0", "acceptable.recovery.lag": str(2**40),
    }  # fmt: skip
    read = read_configs(logged)
    assert (read.num_warmup_replicas, read.acceptable_recovery_lag) == (0, 2**40)
    kafkas = {"num.standby.replicas": "1"}
    assert assignment_configs(config, topology(sub("0", "orders"))) == kafkas
    assert assignment_configs(config | {"streams.assignor.name": "sticky"}, state) == kafkas


# --- a warm-up that has caught up ------------------------------------------------------------------


def test_tasks_stay_until_their_copies_have_caught_up() -> None:
    """The configured number of tasks warm up at a time; only one that has caught up bumps the epoch."""
    story, ann, bob = scaled_out()
    assert causes(rounds(story, [ann, bob], 3)) == []
    assert (len(ann.active), bob.active, len(bob.warmup)) == (6, [], 2)
    first = bob.warmup[0]
    bob.disk[first] = END - 10_001
    assert causes(bob.beat_and_track(story)) == []
    bob.disk[first] = END - 10_000
    assert causes(bob.beat_and_track(story)) == [f"4: warmup-caught-up bob-1 (0_{first[1]})"]
    rounds(story, [ann, bob], 3)
    assert bob.active == [first]
    assert len(bob.warmup) == 2
    bob.pace = END
    rounds(story, [ann, bob], 12)
    assert (len(ann.active), len(bob.active), bob.warmup) == (3, 3, [])
    assert story.cold == []
    assert causes(rounds(story, [ann, bob], 3)) == []


def test_end_offsets_of_other_members_count() -> None:
    """A warming member may not know the changelog's end offset yet; the active member knows it."""
    story, ann, bob = scaled_out()
    ann.reports = False
    rounds(story, [ann, bob], 3)
    for task in bob.warmup:
        bob.disk[task] = END
    (_, partition), _ = bob.warmup
    ann.beat_and_track(story, ends="-")
    assert causes(bob.beat_and_track(story, ends="-")) == []
    assert causes(ann.beat_and_track(story, ends=f"0-{partition}:{END}")) == [
        f"4: warmup-caught-up bob-1 (0_{partition})"
    ]


def test_no_warm_up_bumps_an_epoch_that_is_ahead_of_its_target() -> None:
    """The next target takes all reports until then into account."""
    story, ann, bob = scaled_out(group_streams_assignment_interval_ms="1000")
    rounds(story, [ann, bob], 1)
    story.run("advance 1000")
    rounds(story, [ann, bob], 2)
    first, second = bob.warmup
    bob.disk[first] = END
    story.run("advance 10")
    cid = restorer("cid", pace=0)
    assert causes(cid.beat_and_track(story)) == ["4: member-joined cid-1"]
    story.run("advance 1000")
    cid.beat_and_track(story)
    bob.disk[second] = END
    seen = causes(bob.beat_and_track(story)) + causes(bob.beat_and_track(story))
    assert seen == [f"5: warmup-caught-up bob-1 (0_{first[1]}, 0_{second[1]})"]
    assert story.group is not None
    assert (story.group.epoch, story.group.assignment_epoch) == (5, 4)


def test_no_warm_up_bumps_the_epoch_during_a_computation() -> None:
    """Reports during the computation are taken into account by the first heartbeat after it."""
    story, ann, bob = scaled_out()
    rounds(story, [ann, bob], 3)
    story.run("heavy 0")
    first, second = bob.warmup
    bob.disk[first] = END
    assert causes(bob.beat_and_track(story)) == [f"4: warmup-caught-up bob-1 (0_{first[1]})"]
    bob.disk[second] = END
    assert causes(bob.beat_and_track(story)) == []
    story.run("work")
    assert causes(rounds(story, [ann, bob], 1)) == [f"5: warmup-caught-up bob-1 (0_{second[1]})"]


def test_a_heartbeat_is_cached_until_a_warm_up_has_caught_up() -> None:
    """A member that restores its state costs no more than any other."""
    story, ann, bob = scaled_out()
    rounds(story, [ann, bob], 3)
    group, core = story.group, story.life.runtime.coordinator
    assert group is not None
    quiet = StreamsGroupHeartbeatRequest(group_id="g", member_id="bob-1", member_epoch=group.epoch)
    assert core.cacheable_decision(quiet) is not None
    cached = core.cacheable_decision(quiet)
    bob.disk[bob.warmup[0]] = END
    bob.beat_and_track(story)
    assert not core.is_current(cached)


def test_a_heartbeat_with_a_report_is_not_cached() -> None:
    """The time of a report counts: of two members of one process the later report is valid."""
    story, ann, bob = scaled_out()
    rounds(story, [ann, bob], 3)
    group, core = story.group, story.life.runtime.coordinator
    assert group is not None
    beat = StreamsGroupHeartbeatRequest(group_id="g", member_id="bob-1", member_epoch=group.epoch)
    assert core.cacheable_decision(beat.replace(task_offsets=())) is None
    assert core.cacheable_decision(beat.replace(task_end_offsets=())) is None
    before = group.reported["bob-1"].reported_ms
    story.run("advance 30000")
    bob.beat_and_track(story)
    assert group.reported["bob-1"].reported_ms == before + 30_000


# --- members that do not report --------------------------------------------------------------------


def test_tasks_move_at_once_to_members_that_do_not_report() -> None:
    """Their progress is unknown: so it is with Java's clients before 4.4."""
    story = Story()
    ann, bob = restorer("ann"), restorer("bob", reports=False)
    rounds(story, [ann], 2)
    rounds(story, [bob, ann], 3)
    assert (len(ann.active), len(bob.active), bob.warmup) == (3, 3, [])


def test_a_member_that_stops_reporting_is_not_waited_for() -> None:
    """After a restart its warm-up would stay in the target for ever, and its next task would never move."""
    story, ann, bob = scaled_out()
    rounds(story, [ann, bob], 3)
    assert len(bob.warmup) == 2
    story.run("restart")
    bob.reports, bob.version = False, 0
    lines = rounds(story, [ann, bob], 3)
    assert causes(lines) == ["4: member-metadata-changed bob-1"]
    rounds(story, [ann, bob], 3)
    assert (len(ann.active), len(bob.active), bob.warmup) == (3, 3, [])


# --- fail-over -------------------------------------------------------------------------------------


def test_a_restart_during_warm_ups_moves_no_unrestored_task() -> None:
    """Offsets are lost; warm-ups continue, and members report again."""
    story, ann, bob = scaled_out()
    bob.pace = 30_000
    rounds(story, [ann, bob], 2)
    story.run("restart")
    assert story.group is not None
    assert story.group.reported == {}
    assert len(bob.warmup) == 2
    rounds(story, [ann, bob], 2)
    story.run("crash")
    for _ in range(12):
        rounds(story, [bob, ann])
    assert story.cold == []
    assert (len(ann.active), len(bob.active), bob.warmup) == (3, 3, [])


@pytest.mark.parametrize("seed", range(12))
def test_random_events_move_no_unrestored_task_and_end_balanced(seed: int) -> None:
    """Members join and leave, and the coordinator restarts; every member keeps restoring its tasks."""
    random = Random(seed)
    story = Story(
        group_streams_num_standby_replicas=str(random.choice((0, 0, 1))),
        group_streams_num_warmup_replicas=str(random.choice((1, 2, 4))),
    )
    names = iter(("ann", "bob", "cid", "dan", "eve"))
    members = [restorer(next(names), pace=random.choice((30_000, END)))]
    rounds(story, members, 2)
    for _ in range(10):
        event = random.choice(("joins", "restart", "beats", "beats", "leaves"))
        if event == "joins" and (name := next(names, None)) is not None:
            members.append(restorer(name, pace=random.choice((30_000, END))))
        elif event == "leaves" and len(members) > 1:
            members.pop(random.randrange(len(members))).leave(story)
        elif event == "restart":
            story.run("restart")
        for _ in range(random.randrange(1, 4)):
            random.shuffle(members)
            rounds(story, members)
    rounds(story, members, 40)
    assert story.cold == []
    shares = sorted(len(member.active) for member in members)
    assert sum(shares) == 6
    assert shares[-1] - shares[0] <= 1
    assert not any(member.warmup for member in members)
    assert causes(rounds(story, members, 3)) == []


# --- settings in responses -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "version", "expected"),
    [("kafka", 0, (0, -1)), ("kip", 0, (2**31 - 1, -1)), ("kafka", 1, (0, 2**40)), ("kip", 1, (0, 2**40))],
)
def test_the_acceptable_lag_is_sent(mode: str, version: int, expected: tuple[int, int]) -> None:
    """Version 0 has a 32-bit field for it, which Kafka leaves empty."""
    story = Story(group_streams_acceptable_recovery_lag=str(2**40), konvene_streams_mode=mode)
    story.run(f"{JOIN} version={version}")
    response = decode(StreamsGroupHeartbeatResponse, version, encode(story.answer("ann"), version))
    assert (response.acceptable_recovery_lag_legacy, response.acceptable_recovery_lag) == expected


def test_the_report_interval_is_sent() -> None:
    story = Story(group_streams_task_offset_interval_ms="15000")
    story.run(JOIN)
    assert story.answer("ann").task_offset_interval_ms == 15_000


def test_changed_warm_up_settings_bump_the_epoch() -> None:
    """Targets depend on the number of warm-ups and on the acceptable lag."""
    story, ann, bob = scaled_out()
    bob.disk |= dict.fromkeys(bob.warmup, 60_000)
    rounds(story, [ann, bob], 3)
    story.run("config group.streams.num.warmup.replicas=3")
    assert causes(rounds(story, [ann, bob], 2)) == ["4: assignment-configs-changed"]
    assert len(bob.warmup) == 3
    story.run("config group.streams.acceptable.recovery.lag=50000")
    assert causes(bob.beat_and_track(story)) == ["5: assignment-configs-changed"]
