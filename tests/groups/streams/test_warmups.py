"""When a target is asked for again because of warm-ups, and of whom: the coordinator's part in KIP-1071."""

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
    """ann runs all six tasks; bob has just joined, with nothing on its disk."""
    story = Story(**settings)
    ann, bob = restorer("ann"), restorer("bob", pace=0)
    rounds(story, [ann], 2)
    bob.tell(story)
    return story, ann, bob


# --- who reports -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "reports"),
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
def test_a_member_reports_if_it_says_so(said: list[str], reports: bool) -> None:
    """An empty list is a disk with nothing on it, but over version 0 that is what says nothing."""
    story = Story()
    for each in said:
        story.say(each)
    assert story.group is not None
    assert story.group.reported["ann-1"].reports is reports


def test_who_was_not_heard_since_a_start_counts_as_one_that_reports() -> None:
    """Else the next epoch would have tasks go to members that are only just reading their state."""
    story = Story()
    ann, bob = restorer("ann"), restorer("bob", pace=0)
    rounds(story, [ann, bob], 3)
    assert (len(ann.active), len(bob.warmup)) == (6, 2)
    story.say("restart")
    cid = restorer("cid", pace=0)
    cid.tell(story)
    rounds(story, [ann, bob, cid], 4)
    assert story.cold == []
    assert len(ann.active) == 6


# --- which assignor --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "joins", "expected"),
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
def test_the_broker_chooses_where_nobody_said(settings: dict[str, str], joins: str, expected: str) -> None:
    """The first that it is told to offer, else by whether there is state, and somebody says how far it is."""
    story = Story(**settings)
    story.say(joins)
    story.say("streams-describe g")
    assert story.answer("admin").groups[0].assignor_name == expected
    assert all(f"assignor={expected}" in line for line in story.lines if "assignor=" in line)


def test_one_that_reports_among_others_is_enough() -> None:
    story = Story()
    for who, offsets in (("ann", ""), ("bob", " offsets=-")):
        story.say(f"streams-heartbeat {who} join topology=0:orders!counts process={who}{offsets}")
    story.say("streams-describe g")
    assert story.answer("admin").groups[0].assignor_name == "highly_available"
    story.say("streams-heartbeat bob leave")
    story.say("streams-describe g")
    assert story.answer("admin").groups[0].assignor_name == "sticky"


def test_the_log_keeps_what_is_not_kafkas_default() -> None:
    """So its bytes are Kafka's where nobody touches warm-ups, and where sticky assigns: that has none."""
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
    kept = assignment_configs(config, state)
    assert kept == {
        "num.standby.replicas": "1", "num.warmup.replicas": "0", "acceptable.recovery.lag": str(2**40),
    }  # fmt: skip
    read = read_configs(kept)
    assert (read.num_warmup_replicas, read.acceptable_recovery_lag) == (0, 2**40)
    kafkas = {"num.standby.replicas": "1"}
    assert assignment_configs(config, topology(sub("0", "orders"))) == kafkas
    assert assignment_configs(config | {"streams.assignor.name": "sticky"}, state) == kafkas


# --- a warm-up that has caught up ------------------------------------------------------------------


def test_tasks_stay_until_their_copies_have_caught_up() -> None:
    """As many warm up at a time as are configured; each that has caught up moves the epoch, nothing else."""
    story, ann, bob = scaled_out()
    assert causes(rounds(story, [ann, bob], 3)) == []
    assert (len(ann.active), bob.active, len(bob.warmup)) == (6, [], 2)
    first = bob.warmup[0]
    bob.disk[first] = END - 10_001
    assert causes(bob.tell(story)) == []
    bob.disk[first] = END - 10_000
    assert causes(bob.tell(story)) == [f"4: warmup-caught-up bob-1 (0_{first[1]})"]
    rounds(story, [ann, bob], 3)
    assert bob.active == [first]
    assert len(bob.warmup) == 2
    bob.pace = END
    rounds(story, [ann, bob], 12)
    assert (len(ann.active), len(bob.active), bob.warmup) == (3, 3, [])
    assert story.cold == []
    assert causes(rounds(story, [ann, bob], 3)) == []


def test_what_others_tell_of_the_end_counts() -> None:
    """Who warms up may not know yet how long the changelog is; who runs the task does."""
    story, ann, bob = scaled_out()
    ann.reports = False
    rounds(story, [ann, bob], 3)
    for task in bob.warmup:
        bob.disk[task] = END
    (_, partition), _ = bob.warmup
    ann.tell(story, ends="-")
    assert causes(bob.tell(story, ends="-")) == []
    assert causes(ann.tell(story, ends=f"0-{partition}:{END}")) == [
        f"4: warmup-caught-up bob-1 (0_{partition})"
    ]


def test_no_epoch_moves_while_one_is_ahead_of_its_target() -> None:
    """The next target will know of all that is reported until then."""
    story, ann, bob = scaled_out(group_streams_assignment_interval_ms="1000")
    rounds(story, [ann, bob], 1)
    story.say("advance 1000")
    rounds(story, [ann, bob], 2)
    first, second = bob.warmup
    bob.disk[first] = END
    story.say("advance 10")
    cid = restorer("cid", pace=0)
    assert causes(cid.tell(story)) == ["4: member-joined cid-1"]
    story.say("advance 1000")
    cid.tell(story)
    bob.disk[second] = END
    seen = causes(bob.tell(story)) + causes(bob.tell(story))
    assert seen == [f"5: warmup-caught-up bob-1 (0_{first[1]}, 0_{second[1]})"]
    assert story.group is not None
    assert (story.group.epoch, story.group.assignment_epoch) == (5, 4)


def test_no_epoch_moves_while_a_target_is_computed_elsewhere() -> None:
    """What was reported meanwhile is seen with the first heartbeat after it."""
    story, ann, bob = scaled_out()
    rounds(story, [ann, bob], 3)
    story.say("heavy 0")
    first, second = bob.warmup
    bob.disk[first] = END
    assert causes(bob.tell(story)) == [f"4: warmup-caught-up bob-1 (0_{first[1]})"]
    bob.disk[second] = END
    assert causes(bob.tell(story)) == []
    story.say("work")
    assert causes(rounds(story, [ann, bob], 1)) == [f"5: warmup-caught-up bob-1 (0_{second[1]})"]


def test_a_heartbeat_is_the_same_again_as_long_as_no_copy_has_caught_up() -> None:
    """A member that waits for its state costs no more than any other."""
    story, ann, bob = scaled_out()
    rounds(story, [ann, bob], 3)
    group, core = story.group, story.life.runtime.coordinator
    assert group is not None
    quiet = StreamsGroupHeartbeatRequest(group_id="g", member_id="bob-1", member_epoch=group.epoch)
    assert core.cacheable_decision(quiet) is not None
    known = core.cacheable_decision(quiet)
    bob.disk[bob.warmup[0]] = END
    bob.tell(story)
    assert not core.is_current(known)


def test_a_report_is_never_the_same_again() -> None:
    """When it was said counts: of two members of one process the later one is right."""
    story, ann, bob = scaled_out()
    rounds(story, [ann, bob], 3)
    group, core = story.group, story.life.runtime.coordinator
    assert group is not None
    beat = StreamsGroupHeartbeatRequest(group_id="g", member_id="bob-1", member_epoch=group.epoch)
    assert core.cacheable_decision(beat.replace(task_offsets=())) is None
    assert core.cacheable_decision(beat.replace(task_end_offsets=())) is None
    before = group.reported["bob-1"].reported_ms
    story.say("advance 30000")
    bob.tell(story)
    assert group.reported["bob-1"].reported_ms == before + 30_000


# --- members that do not report --------------------------------------------------------------------


def test_tasks_go_at_once_to_who_does_not_report() -> None:
    """Nobody could wait for it: so it is with Java's clients before 4.4."""
    story = Story()
    ann, bob = restorer("ann"), restorer("bob", reports=False)
    rounds(story, [ann], 2)
    rounds(story, [bob, ann], 3)
    assert (len(ann.active), len(bob.active), bob.warmup) == (3, 3, [])


def test_who_turns_out_not_to_report_is_waited_for_no_longer() -> None:
    """After a start a warm-up in its target would stand there for ever, and what it is to run not move."""
    story, ann, bob = scaled_out()
    rounds(story, [ann, bob], 3)
    assert len(bob.warmup) == 2
    story.say("restart")
    bob.reports, bob.version = False, 0
    lines = rounds(story, [ann, bob], 3)
    assert causes(lines) == ["4: member-metadata-changed bob-1"]
    rounds(story, [ann, bob], 3)
    assert (len(ann.active), len(bob.active), bob.warmup) == (3, 3, [])


# --- fail-over -------------------------------------------------------------------------------------


def test_a_start_in_the_middle_of_warm_ups_hands_nothing_over_cold() -> None:
    """Offsets are forgotten; warm-ups go on, and members report again."""
    story, ann, bob = scaled_out()
    bob.pace = 30_000
    rounds(story, [ann, bob], 2)
    story.say("restart")
    assert story.group is not None
    assert story.group.reported == {}
    assert len(bob.warmup) == 2
    rounds(story, [ann, bob], 2)
    story.say("crash")
    for _ in range(12):
        rounds(story, [bob, ann])
    assert story.cold == []
    assert (len(ann.active), len(bob.active), bob.warmup) == (3, 3, [])


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_nothing_is_handed_over_cold_and_all_is_shared_in_the_end(seed: int) -> None:
    """Members join and leave and the coordinator starts again; who joined keeps reading what it is given."""
    random = Random(seed)
    story = Story(
        group_streams_num_standby_replicas=str(random.choice((0, 0, 1))),
        group_streams_num_warmup_replicas=str(random.choice((1, 2, 4))),
    )
    names = iter(("ann", "bob", "cid", "dan", "eve"))
    members = [restorer(next(names), pace=random.choice((30_000, END)))]
    rounds(story, members, 2)
    for _ in range(10):
        does = random.choice(("joins", "restart", "beats", "beats", "leaves"))
        if does == "joins" and (name := next(names, None)) is not None:
            members.append(restorer(name, pace=random.choice((30_000, END))))
        elif does == "leaves" and len(members) > 1:
            members.pop(random.randrange(len(members))).leave(story)
        elif does == "restart":
            story.say("restart")
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


# --- what members are told -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "version", "expected"),
    [("kafka", 0, (0, -1)), ("kip", 0, (2**31 - 1, -1)), ("kafka", 1, (0, 2**40)), ("kip", 1, (0, 2**40))],
)
def test_the_acceptable_lag_is_told(mode: str, version: int, expected: tuple[int, int]) -> None:
    """Version 0 has 32 bits for it, which Kafka leaves empty."""
    story = Story(group_streams_acceptable_recovery_lag=str(2**40), konvene_streams_mode=mode)
    story.say(f"{JOIN} version={version}")
    told = decode(StreamsGroupHeartbeatResponse, version, encode(story.answer("ann"), version))
    assert (told.acceptable_recovery_lag_legacy, told.acceptable_recovery_lag) == expected


def test_the_interval_of_reports_is_told() -> None:
    story = Story(group_streams_task_offset_interval_ms="15000")
    story.say(JOIN)
    assert story.answer("ann").task_offset_interval_ms == 15_000


def test_other_settings_of_warm_ups_move_the_epoch() -> None:
    """Targets rest on how many may warm up, and on what lag is acceptable."""
    story, ann, bob = scaled_out()
    bob.disk |= dict.fromkeys(bob.warmup, 60_000)
    rounds(story, [ann, bob], 3)
    story.say("config group.streams.num.warmup.replicas=3")
    assert causes(rounds(story, [ann, bob], 2)) == ["4: assignment-configs-changed"]
    assert len(bob.warmup) == 3
    story.say("config group.streams.acceptable.recovery.lag=50000")
    assert causes(bob.tell(story)) == ["5: assignment-configs-changed"]
