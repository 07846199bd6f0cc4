"""konvene's responses equal Kafka's in every conversation and random walk."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from tests.against.brokers import Broker, Kafka, Unavailable, kafka_jars
from tests.differential import walks
from tests.differential.consumer_walks import ConsumerWalk
from tests.differential.differences import KNOWN, MET
from tests.differential.recordings import RECORDED, Conversation, Step, read, write, written
from tests.differential.shares_walks import SharesWalk
from tests.differential.stage import (
    ALONE,
    AT_ONCE,
    BESIDE,
    PROFILES,
    AnyWalk,
    Stage,
    difference,
    play_anew,
    run_concurrently,
    running_stage,
    walk_anew,
)
from tests.differential.streams_walks import StreamsWalk
from tests.differential.transactions_walks import TransactionsWalk

MODE = os.environ.get("KONVENE_DIFFERENTIAL", "recorded")
ONLY = os.environ.get("KONVENE_DIFFERENTIAL_ONLY", "")
RECORDED_SEEDS = range(1, 21)
RECORDED_FEWER = {"tasks": range(1, 17), "transactions": range(1, 17), "shares": range(1, 17)}
TIMED = ["plain", "delayed", "expiring", "crowded", "restart"]
TIMED_STREAMS = [
    "streams-timed", "streams-delayed", "streams-interval", "streams-expiring", "transactions-timed",
    "shares-timed",
]  # fmt: skip
"""Profiles with timeouts of 0.1 s to 2 s. A conversation that differs from its recording is played once more,
alone, because a busy machine may have exceeded a timeout."""

BROKERS_AT_ONCE = len(TIMED)

WALKS: dict[str, Callable[[int], AnyWalk]] = {
    "walk": walks.Walk,
    "members": ConsumerWalk,
    "tasks": StreamsWalk,
    "transactions": TransactionsWalk,
    "shares": SharesWalk,
}
"""Class of each kind of random walk, by the verb that starts its line."""
TRIES = int(os.environ.get("KONVENE_DIFFERENTIAL_TRIES", "8"))
"""How many times to play a conversation with Kafka before reporting a difference: the order of hash maps of
random ids decides some of Kafka's choices, such as the next leader."""


def seeds(kind: str) -> range:
    seed_range = os.environ.get("KONVENE_DIFFERENTIAL_SEEDS")
    if MODE != "live" or not seed_range:
        return RECORDED_FEWER.get(kind, RECORDED_SEEDS)
    first, _, last = seed_range.partition("-")
    return range(int(first), int(last or first) + 1)


def conversations(profile: str) -> list[Conversation]:
    walked = [
        Conversation(WALKS[kind](s).profile, f"{kind}-{s}", (f"{kind} {s}",))
        for kind in WALKS
        for s in seeds(kind)
    ]
    return [c for c in [*written(), *walked] if c.profile == profile and ONLY in c.id]


class ProfileBrokers:
    """The brokers of a profile that the mode needs, started on demand."""

    def __init__(self, directory: Path, profile: str) -> None:
        self.directory = directory
        self.profile = profile
        self.exit = ExitStack()
        self.alone = profile in ALONE
        self.shared: dict[type[Broker], Stage] = {}

    def stage(self, kind: type[Broker], name: str, closing: ExitStack) -> Stage:
        """Return the running broker of a kind: the shared one, or a new one for a profile in `ALONE`."""
        if self.alone:
            return closing.enter_context(running_stage(kind, self.directory / name / kind.name, self.profile))
        if kind not in self.shared:
            self.shared[kind] = self.exit.enter_context(
                running_stage(kind, self.directory / kind.name, self.profile)
            )
        return self.shared[kind]

    def begin(self) -> None:
        """Start the shared brokers before the conversations run concurrently."""
        if not self.alone:
            for kind in [BESIDE] if MODE == "recorded" else [Kafka, BESIDE]:
                self.stage(kind, "", self.exit)


def play_on_kafka(brokers: ProfileBrokers, conversation: Conversation, name: str) -> list[Step]:
    first = conversation.lines[0].split()
    with ExitStack() as closing:
        stage = brokers.stage(Kafka, name, closing)
        if first[0] in WALKS:
            return walk_anew(stage, WALKS[first[0]](int(first[1])), name)
        return play_anew(stage, conversation, name)


def compare(brokers: ProfileBrokers, name: str, steps: list[Step]) -> str | None:
    with ExitStack() as closing:
        return difference(brokers.stage(BESIDE, name, closing), name, steps)


def first_difference(brokers: ProfileBrokers, conversation: Conversation, again: str = "") -> str | None:
    """Return the first difference of a conversation, or None. `again` renames a repeated conversation."""
    if MODE == "recorded":
        if not conversation.recording.exists():
            return f"{conversation.id} is not recorded"
        steps = read(conversation.recording)
        lines_ = tuple(line for line, _ in steps)
        if conversation.lines[0].split()[0] not in WALKS and lines_ != conversation.lines:
            return f"{conversation.id} was changed and not recorded again"
        return compare(brokers, conversation.name + again, steps)
    for attempt in range(TRIES):
        name = f"{conversation.name}.{attempt}"
        try:
            steps = play_on_kafka(brokers, conversation, name)
            found = compare(brokers, f"{name}." if BESIDE is Kafka else name, steps)
        except Exception as error:
            return f"{conversation.id}: {error!r}"
        if found is None:
            break
    if MODE == "record":
        write(conversation.recording, steps)
    return found


def differences(directory: Path, profile: str) -> list[str]:
    """Play all conversations of a profile; return the reports of those that differ from Kafka."""
    played = conversations(profile)
    if not played:
        return []
    brokers = ProfileBrokers(directory / profile, profile)
    with brokers.exit:
        brokers.begin()
        found = run_concurrently(partial(first_difference, brokers), played, AT_ONCE)
        if MODE == "recorded" and profile in TIMED + TIMED_STREAMS:
            differ = [c for c, report in zip(played, found, strict=True) if report]
            found = [first_difference(brokers, conversation, ".again") for conversation in differ]
        return [report for report in found if report]


def test_responses_equal_kafkas(tmp_path: Path) -> None:
    """Every deterministic field of every response equals Kafka's, except for the known differences."""
    if MODE != "recorded" or BESIDE is Kafka:
        try:
            os.environ.setdefault("KONVENE_AGAINST_KAFKA_JARS", str(kafka_jars()))
        except Unavailable as missing:
            pytest.skip(f"Kafka is missing: {missing}")
    brokers_at_once = BROKERS_AT_ONCE if MODE == "recorded" else 1
    by_profile = []
    for profiles in (TIMED, TIMED_STREAMS, [p for p in PROFILES if p not in TIMED + TIMED_STREAMS]):
        by_profile += run_concurrently(partial(differences, tmp_path), profiles, brokers_at_once)
    found = [report for reports in by_profile for report in reports]
    assert not found, f"{len(found)} conversations differ\n\n" + "\n\n".join(found)
    assert ONLY or MODE == "live" or BESIDE is Kafka or set(KNOWN) == MET, (
        "a known difference that no conversation shows"
    )


def test_every_known_difference_is_documented() -> None:
    """`docs/differences.md` contains the sentence of every known difference."""
    page = (Path(__file__).parents[2] / "docs" / "differences.md").read_text("utf-8")
    for row in KNOWN:
        assert row.sentence in page


def test_recordings_have_their_conversations() -> None:
    """The recorded files are those of the conversations: none is missing, none is left over."""
    known = {c.recording for profile in PROFILES for c in conversations(profile)}
    assert not ONLY or known
    assert ONLY or MODE != "recorded" or set(RECORDED.glob("*/*.txt")) == known
