"""What Kafka answers, konvene answers: conversation by conversation, walk by walk."""

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
    at_once,
    difference,
    first_played,
    first_walked,
    staged,
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
"""Profiles with timeouts of tenths of a second, or of two. What differs there from a recording is played once
more, alone: a machine that was busy for as long differs from an idle one, not konvene from Kafka."""

BROKERS_AT_ONCE = len(TIMED)

WALKS: dict[str, Callable[[int], AnyWalk]] = {
    "walk": walks.Walk,
    "members": ConsumerWalk,
    "tasks": StreamsWalk,
    "transactions": TransactionsWalk,
    "shares": SharesWalk,
}
"""How conversations that are made by chance begin, and from what."""
TRIES = int(os.environ.get("KONVENE_DIFFERENTIAL_TRIES", "8"))
"""Kafka lets hash maps of random ids choose, among others who leads next. A conversation is begun again so
many times until its choices are konvene's."""


def seeds(kind: str) -> range:
    found_difference = os.environ.get("KONVENE_DIFFERENTIAL_SEEDS")
    if MODE != "live" or not found_difference:
        return RECORDED_FEWER.get(kind, RECORDED_SEEDS)
    first, _, last = found_difference.partition("-")
    return range(int(first), int(last or first) + 1)


def conversations(profile: str) -> list[Conversation]:
    walked = [
        Conversation(WALKS[kind](s).profile, f"{kind}-{s}", (f"{kind} {s}",))
        for kind in WALKS
        for s in seeds(kind)
    ]
    return [c for c in [*written(), *walked] if c.profile == profile and ONLY in c.id]


class Theatre:
    """Both brokers of a profile, as the mode wants them."""

    def __init__(self, directory: Path, profile: str) -> None:
        self.directory = directory
        self.profile = profile
        self.exit = ExitStack()
        self.alone = profile in ALONE
        self.shared: dict[type[Broker], Stage] = {}

    def stage(self, kind: type[Broker], name: str, closing: ExitStack) -> Stage:
        """The stage of a kind: that of all, or one for this play alone."""
        if self.alone:
            return closing.enter_context(staged(kind, self.directory / name / kind.name, self.profile))
        if kind not in self.shared:
            self.shared[kind] = self.exit.enter_context(
                staged(kind, self.directory / kind.name, self.profile)
            )
        return self.shared[kind]

    def begin(self) -> None:
        """Start what is shared before many ask for it at once."""
        if not self.alone:
            for kind in [BESIDE] if MODE == "recorded" else [Kafka, BESIDE]:
                self.stage(kind, "", self.exit)


def answers_of_kafka(theatre: Theatre, conversation: Conversation, name: str) -> list[Step]:
    first = conversation.lines[0].split()
    with ExitStack() as closing:
        stage = theatre.stage(Kafka, name, closing)
        if first[0] in WALKS:
            return first_walked(stage, WALKS[first[0]](int(first[1])), name)
        return first_played(stage, conversation, name)


def compared(theatre: Theatre, name: str, steps: list[Step]) -> str | None:
    with ExitStack() as closing:
        return difference(theatre.stage(BESIDE, name, closing), name, steps)


def judged(theatre: Theatre, conversation: Conversation, again: str = "") -> str | None:
    """The first difference of a conversation, if there is one. Who is played again has new names."""
    if MODE == "recorded":
        if not conversation.recording.exists():
            return f"{conversation.id} is not recorded"
        steps = read(conversation.recording)
        lines_ = tuple(line for line, _ in steps)
        if conversation.lines[0].split()[0] not in WALKS and lines_ != conversation.lines:
            return f"{conversation.id} was changed and not recorded again"
        return compared(theatre, conversation.name + again, steps)
    for attempt in range(TRIES):
        name = f"{conversation.name}.{attempt}"
        try:
            steps = answers_of_kafka(theatre, conversation, name)
            found = compared(theatre, f"{name}." if BESIDE is Kafka else name, steps)
        except Exception as error:
            return f"{conversation.id}: {error!r}"
        if found is None:
            break
    if MODE == "record":
        write(conversation.recording, steps)
    return found


def differences(directory: Path, profile: str) -> list[str]:
    """Play all conversations of a profile; what is not as it was with Kafka."""
    played = conversations(profile)
    if not played:
        return []
    theatre = Theatre(directory / profile, profile)
    with theatre.exit:
        theatre.begin()
        found = at_once(partial(judged, theatre), played, AT_ONCE)
        if MODE == "recorded" and profile in TIMED + TIMED_STREAMS:
            differ = [c for c, found_difference in zip(played, found, strict=True) if found_difference]
            found = [judged(theatre, conversation, ".again") for conversation in differ]
        return [found_difference for found_difference in found if found_difference]


def test_konvene_answers_as_kafka(tmp_path: Path) -> None:
    """Every answer of every conversation is Kafka's in every field that is not random, or known to differ."""
    if MODE != "recorded" or BESIDE is Kafka:
        try:
            os.environ.setdefault("KONVENE_AGAINST_KAFKA_JARS", str(kafka_jars()))
        except Unavailable as missing:
            pytest.skip(f"Kafka is missing: {missing}")
    brokers_at_once = BROKERS_AT_ONCE if MODE == "recorded" else 1
    by_profile = []
    for profiles in (TIMED, TIMED_STREAMS, [p for p in PROFILES if p not in TIMED + TIMED_STREAMS]):
        by_profile += at_once(partial(differences, tmp_path), profiles, brokers_at_once)
    found = [found_difference for several in by_profile for found_difference in several]
    assert not found, f"{len(found)} conversations differ\n\n" + "\n\n".join(found)
    assert ONLY or MODE == "live" or BESIDE is Kafka or set(KNOWN) == MET, (
        "a known difference that nothing shows"
    )


def test_every_known_difference_is_documented() -> None:
    """A difference that is meant stands in the documentation in the words of its row."""
    page = (Path(__file__).parents[2] / "docs" / "differences.md").read_text("utf-8")
    for row in KNOWN:
        assert row.sentence in page


def test_recordings_have_their_conversations() -> None:
    """No recording is left over."""
    known = {c.recording for profile in PROFILES for c in conversations(profile)}
    assert not ONLY or known
    assert ONLY or MODE != "recorded" or set(RECORDED.glob("*/*.txt")) == known
