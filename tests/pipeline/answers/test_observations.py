"""What polled descriptions of groups settle about causes: the rules case by case, and their files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.answers.sample import filled

from konvene.pipeline.answers import Gold
from konvene.pipeline.answers.evidence import Generation, GenerationMember
from konvene.pipeline.answers.observations.evidence import (
    OBSERVATIONS_NAME,
    Observations,
    observation_files,
)
from konvene.pipeline.answers.observations.observation import Observation, ObservedMember, decode, encode
from konvene.pipeline.answers.observations.rules import settled_cause
from konvene.pipeline.answers.rebalance import Cause, Rebalance
from konvene.pipeline.answers.sentences import note

RECORD = 100
"""Offset of the record of the rebalance."""
LEFT, EXPIRED = "member-left", "session-expired"
TIMED_OUT, NO_SYNC = "rebalance-timeout", "sync-timeout"
DYNAMIC = GenerationMember(session_timeout_ms=30_000, rebalance_timeout_ms=60_000)
STABLE, PREPARING = "Stable", "PreparingRebalance"
MODERN = ObservedMember(epoch=6, session_timeout_ms=30_000)
Members = Mapping[str, ObservedMember]


def generation(number: int = 7, **members: GenerationMember) -> Generation:
    return Generation(number, 50, {"a": DYNAMIC, "b": DYNAMIC} | members)


def seen(
    at_s: float, members: Members, *, before: bool = True, state: str = STABLE, first: int | None = None,
    run_ms: int = 0, leader_epoch: int = 0, group_type: str = "classic",
) -> Observation:  # fmt: skip
    """Return an observation, which took 10 ms; `before` the record of the rebalance was written."""
    offset = (60 if before else RECORD + 1) if first is None else first
    at_ms = 1_000_000 + round(at_s * 1000)
    return Observation(
        "", "g", group_type, state, run_ms, at_ms, at_ms + 10, 0, offset, offset, leader_epoch, members
    )


def row(
    kind: str, *, group_type: str = "classic", before: int = 7, after: int = 8, instance_id: str | None = None
) -> Rebalance:
    cause = Cause(kind, member_id="a", instance_id=instance_id)
    columns = {
        "group_id": "g", "group_type": group_type, "from_epoch": before, "to_epoch": after, "cause": kind,
        "member_id": "a", "evidence": "inferred", "causes": [cause._asdict()], "base_offset": RECORD,
    }  # fmt: skip
    return Rebalance.from_row(filled("rebalance", columns))


def settled(
    known: Rebalance,
    *observations: Observation,
    of: Generation | None = None,
    until: Observation | None = None,
) -> list[str]:
    """Return the alternatives that are left after these observations and one after the record."""
    after = until or seen(10_000, {}, before=False, group_type=known.group_type)
    return list(settled_cause(known.causes[0], known, [*observations, after], of).kinds)


A, B = {"a": ObservedMember()}, {"b": ObservedMember()}
BOTH = A | B


# session-expired --------------------------------------------------------------------------------------


def test_a_member_that_joined_less_than_its_session_timeout_ago_left() -> None:
    known = row(f"{LEFT}|{EXPIRED}")
    polls = seen(0, B), seen(5, BOTH), seen(27, B, state=PREPARING)
    assert settled(known, *polls, of=generation()) == [LEFT]


@pytest.mark.parametrize("polls", [
    (seen(0, B), seen(5, BOTH), seen(29, B)),  # Within the slack of its session timeout.
    (seen(0, BOTH), seen(5, BOTH), seen(8, B)),  # It was there before the first poll.
    (seen(0, B), seen(5, BOTH)),  # The departure was not seen.
    (seen(0, B), seen(5, B), seen(8, B)),  # It was never seen.
    (seen(0, B, run_ms=9), seen(5, BOTH), seen(8, B)),  # Another run, whose clock may differ.
    (seen(0, B, leader_epoch=9), seen(5, BOTH), seen(8, B)),  # Another coordinator.
    (seen(0, B), seen(5, BOTH, before=False), seen(8, B, before=False)),  # It came back afterwards.
])  # fmt: skip
def test_otherwise_its_session_may_have_expired(polls: tuple[Observation, ...]) -> None:
    known = row(f"{LEFT}|{EXPIRED}")
    assert settled(known, *polls, of=generation()) == [LEFT, EXPIRED]


def test_observations_until_after_the_record_are_needed() -> None:
    """If another coordinator has taken over meanwhile, what the one before had not stored is undone."""
    known, polls = row(f"{LEFT}|{EXPIRED}"), (seen(0, B), seen(5, BOTH), seen(8, B))
    assert settled(known, *polls, of=generation()) == [LEFT]
    for other in (seen(9, B), seen(9, B, before=False, run_ms=9), seen(9, B, before=False, leader_epoch=9)):
        assert settled(known, *polls, of=generation(), until=other) == [LEFT, EXPIRED]


def test_a_member_may_have_changed_its_timeouts_in_generations_that_were_not_stored() -> None:
    polls = seen(0, B), seen(5, BOTH), seen(8, B)
    known = row(f"{LEFT}|{EXPIRED}", before=6)
    assert settled(known, *polls, of=generation(6)) == [LEFT, EXPIRED]


def test_without_its_record_the_session_timeout_of_a_classic_member_is_unknown() -> None:
    polls = seen(0, B), seen(5, BOTH), seen(8, B)
    assert settled(row(f"{LEFT}|{EXPIRED}"), *polls) == [LEFT, EXPIRED]
    assert settled(row(f"{LEFT}|{EXPIRED}"), *polls, of=Generation(7, 50, {"b": DYNAMIC})) == [LEFT, EXPIRED]


@pytest.mark.parametrize(("epoch", "timeout_ms", "expected"), [
    (7, 30_000, [LEFT]),  # It confirmed an epoch.
    (6, 30_000, [LEFT, EXPIRED]),  # Nothing shows that it was alive.
    (-2, 30_000, [LEFT, EXPIRED]),  # A static member that left temporarily.
    (7, -1, [LEFT, EXPIRED]),  # Its session timeout is unknown.
    (7, 15_000, [LEFT, EXPIRED]),
])  # fmt: skip
def test_a_member_of_a_modern_group_shows_by_its_epoch_that_it_is_alive(
    epoch: int, timeout_ms: int, expected: list[str]
) -> None:
    known = row(f"{LEFT}|{EXPIRED}", group_type="consumer")
    member = ObservedMember(epoch, timeout_ms)
    polls = [
        seen(at, members, group_type="consumer", before=before)
        for at, members, before in (
            (0, {"a": MODERN}, True), (100, {"a": MODERN}, True), (105, {"a": member}, True),
            (120, {}, False),
        )
    ]  # fmt: skip
    assert settled(known, *polls) == expected


def test_the_departure_of_a_member_that_returned_was_before_the_record_was_seen() -> None:
    """A member of a consumer group keeps its id when it joins again."""
    known = row(f"{LEFT}|{EXPIRED}", group_type="consumer")
    polls = [
        seen(at, members, group_type="consumer", before=before)
        for at, members, before in ((0, {}, True), (5, {"a": MODERN}, True), (20, {"a": MODERN}, False))
    ]
    assert settled(known, *polls) == [LEFT]


def heartbeat(age_s: float) -> Members:
    return {"a": ObservedMember(heartbeat_age_ms=round(age_s * 1000))} | B


def test_ages_of_heartbeats_show_when_a_member_was_alive() -> None:
    known = row(f"{LEFT}|{EXPIRED}")
    assert settled(known, seen(100, heartbeat(3)), seen(105, B), of=generation()) == [LEFT]
    assert settled(known, seen(100, heartbeat(25)), seen(105, B), of=generation()) == [LEFT, EXPIRED]


def test_silence_settles_nothing() -> None:
    """The member may have left, or may have been removed, just before its session expired."""
    known = row(f"{LEFT}|{EXPIRED}")
    assert settled(known, seen(100, heartbeat(29.9)), seen(105, B), of=generation()) == [LEFT, EXPIRED]


def test_a_static_member_may_have_another_id() -> None:
    known = row(f"{LEFT}|{EXPIRED}", instance_id="i")
    polls = seen(0, B), seen(5, BOTH), seen(8, B | {"c": ObservedMember(instance_id="i")})
    assert settled(known, *polls, of=generation()) == [LEFT, EXPIRED]


# timeouts of classic groups ---------------------------------------------------------------------------


def test_a_short_rebalance_removes_no_member_by_its_timeout() -> None:
    known = row(f"{LEFT}|{EXPIRED}|{TIMED_OUT}")
    assert settled(known, seen(0, BOTH), seen(50, B), of=generation()) == [LEFT, EXPIRED]
    assert settled(known, seen(0, BOTH), seen(59, B), of=generation()) == [LEFT, EXPIRED, TIMED_OUT]
    preparing = seen(0, BOTH, state=PREPARING)  # It had begun before.
    assert settled(known, preparing, seen(50, B), of=generation()) == [LEFT, EXPIRED, TIMED_OUT]


def test_a_member_absent_while_the_group_prepares_was_not_too_slow() -> None:
    kind = f"{LEFT}|{EXPIRED}|{TIMED_OUT}"
    polls = seen(0, BOTH, state=PREPARING), seen(500, B, state=PREPARING)
    assert settled(row(kind), *polls, of=generation()) == [LEFT, EXPIRED]
    later = seen(500, B, state=PREPARING, before=False)  # It prepares the next rebalance.
    assert settled(row(kind), polls[0], later, of=generation()) == [LEFT, EXPIRED, TIMED_OUT]
    assert settled(row(kind, before=6), *polls) == [LEFT, EXPIRED, TIMED_OUT]


def test_a_member_seen_after_the_sync_timer_had_sent_its_request() -> None:
    kind = f"{LEFT}|{EXPIRED}|{NO_SYNC}"
    polls = seen(0, BOTH), seen(130, BOTH), seen(500, B)
    assert settled(row(kind), *polls, of=generation()) == [LEFT, EXPIRED]
    early = seen(0, BOTH, first=40)  # Of the generation before.
    assert settled(row(kind), early, *polls[1:], of=generation()) == [LEFT, EXPIRED, NO_SYNC]
    slow = generation(b=DYNAMIC._replace(rebalance_timeout_ms=100_000))
    assert settled(row(kind), *polls, of=slow) == [LEFT, EXPIRED, NO_SYNC]
    assert settled(row(kind, before=6), *polls, of=generation(6)) == [LEFT, EXPIRED, NO_SYNC]


# static members ---------------------------------------------------------------------------------------


def test_a_static_member_that_was_absent_joined_again() -> None:
    known = row("member-joined|static-member-rejoins", instance_id="i", before=6)
    old = generation(6, old=DYNAMIC._replace(instance_id="i"))
    present = {"old": ObservedMember(instance_id="i")} | B
    assert settled(known, seen(0, present), seen(5, B), of=old) == ["member-joined"]
    both = ["member-joined", "static-member-rejoins"]
    assert settled(known, seen(5, B), of=old) == both
    assert settled(known, seen(0, present), seen(5, present), of=old) == both
    assert settled(known, seen(0, present), seen(5, B, before=False), of=old) == both
    assert settled(known, seen(0, present), seen(5, B)) == both


# all of them ------------------------------------------------------------------------------------------

KINDS = [LEFT, EXPIRED, TIMED_OUT, NO_SYNC, "member-joined", "static-member-rejoins", "leader-rejoined"]
MEMBERS = st.dictionaries(
    st.sampled_from("ab"),
    st.builds(
        ObservedMember, st.integers(-2, 3), st.sampled_from([-1, 500, 30_000]), st.integers(-1, 40_000),
        st.sampled_from([None, "i"]),
    ),
)  # fmt: skip
POLLS = st.lists(
    st.builds(
        seen, st.integers(0, 200), MEMBERS, before=st.booleans(),
        state=st.sampled_from([STABLE, PREPARING, "CompletingRebalance"]), run_ms=st.integers(0, 1),
        leader_epoch=st.integers(0, 1),
    )
)  # fmt: skip


@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, unique=True), polls=POLLS,
    group_type=st.sampled_from(["classic", "consumer"]), before=st.integers(5, 7), is_stored=st.booleans(),
)  # fmt: skip
def test_observations_only_remove_alternatives(
    kinds: list[str], polls: list[Observation], group_type: str, before: int, is_stored: bool
) -> None:
    known = row("|".join(kinds), group_type=group_type, before=before, instance_id="i")
    found = settled(known, *polls, of=generation(before) if is_stored else None)
    assert found and found == [kind for kind in kinds if kind in found]


# files ------------------------------------------------------------------------------------------------


@given(POLLS)
def test_observations_survive_their_file(polls: list[Observation]) -> None:
    assert [decode(encode(each)) for each in polls] == polls


@given(st.binary())
def test_other_lines_are_no_observations(line: bytes) -> None:
    assert decode(line) is None


@pytest.mark.parametrize(
    ("old", "new"), [(b'"g"', b"5"), (b"1000000", b'"x"'), (b"[-1,", b'["x",'), (b"{", b"[")]
)
def test_a_line_of_other_types_is_no_observation(old: bytes, new: bytes) -> None:
    assert decode(encode(seen(0, A)).replace(old, new, 1)) is None


def test_settled_rebalances_of_a_growing_file(tmp_path: Path) -> None:
    path = tmp_path / OBSERVATIONS_NAME
    observations = Observations([path])
    departed = row(f"{LEFT}|{EXPIRED}", group_type="consumer")
    polls = [
        encode(seen(at, members, group_type="consumer", before=before))
        for at, members, before in ((0, {}, True), (5, {"a": MODERN}, True), (8, {}, False))
    ]
    path.write_bytes(b"damage\n" + b"".join(polls[:2]) + polls[2][:20])
    observations.refresh()
    assert observations.settled(departed, Gold()) is departed
    with path.open("ab") as file:
        file.write(polls[2][20:])
    observations.refresh()
    found = observations.settled(departed, Gold())
    assert (found.cause, found.evidence, found.by_description) == (LEFT, "inferred", True)
    assert note(found) == "Inferred from the records of the log and descriptions of the group."
    assert observations.settled(found, Gold()) is found
    assert observation_files([tmp_path, tmp_path / "none"]) == [path]
