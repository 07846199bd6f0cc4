"""Kafka's own SharePartition says the same as ours, after each step of stories that chance makes.

Compared are what members are given and told, what is written, the window's ends and each offset in it. Some
stories and Kafka's answers are kept, so that they are compared where there is no Java. With
`KONVENE_DELIVERY_RECORD=1` they are written anew.
"""

from __future__ import annotations

import gzip
import os
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from tests.against.beside import Beside
from tests.against.brokers import kafka_jars
from tests.delivery.beside.ours import Ours, Script, heard
from tests.delivery.beside.telling import Heard, contradiction, difference, lags

HERE = Path(__file__).parent
KEPT = HERE / "stories.txt.gz"
KEPT_STORIES = 60
STEPS = 60
STORIES = int(os.environ.get("KONVENE_DELIVERY_STORIES", "200"))
TOLD_APART = (9774,)
"""Kafka reads a gap again that it had read two steps before."""


class Kafka(Beside):
    """A JVM with Kafka's SharePartition in it."""

    def __init__(self, jars: Path, directory: Path) -> None:
        super().__init__(HERE / "Beside.java", "kafka.server.share.Beside", jars, directory)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    kafka = Kafka(kafka_jars(), tmp_path_factory.mktemp("beside"))
    yield kafka
    kafka.close()


def compared(
    ours: Ours, line: str, answer: str, before: tuple[Heard, Heard] | None
) -> tuple[Heard, Heard] | str:
    """Both answers, or why the story ends here: Kafka contradicts itself. Raises AssertionError otherwise."""
    mine = ours.run(line)
    if answer.startswith("threw"):
        return answer
    theirs = heard(answer, line)
    if line.startswith(("ack", "release")) and answer.split(" |")[1].strip() and not mine[1]:
        ours.pass_over()  # Kafka writes of what lies before the start.
    wrong = contradiction(line, before[1] if before is not None else None, theirs, ours.holes)
    if wrong:
        return wrong
    what = difference(mine, theirs)
    if what and before is not None and lags(*before) and line.startswith("take"):
        return "the start has not moved over what is done"
    assert not what, f"{what} differs after {line!r}:\n{mine}\n{theirs}"
    return mine, theirs


@pytest.mark.java
def test_both_say_the_same(kafka: Kafka) -> None:
    ends: Counter[str] = Counter()
    kept: list[str] = []
    for seed in (*range(STORIES), *TOLD_APART):
        script = Script(seed)
        told: list[str] = []
        line, before, end = script.first(), None, "agreed"
        for _ in range(STEPS):
            answer = kafka.run(line)
            told.append(f"{seed}\t{line}\t{answer}")
            now = compared(script.ours, line, answer, before)
            if isinstance(now, str):
                end = now
                break
            before = now
            line = script.next()
        ends[end] += 1
        if end == "agreed" and len(kept) < KEPT_STORIES * STEPS:
            kept += told
    assert ends["agreed"] >= STORIES * 3 // 5, ends
    if os.environ.get("KONVENE_DELIVERY_RECORD"):
        KEPT.write_bytes(gzip.compress("\n".join(kept).encode(), mtime=0))


def test_we_say_what_kafka_said_once() -> None:
    lines = [line.split("\t") for line in gzip.decompress(KEPT.read_bytes()).decode().split("\n")]
    stories = 0
    for _, story in groupby(lines, key=lambda parts: parts[0]):
        ours, before = Ours(), None
        for _, line, answer in story:
            now = compared(ours, line, answer, before)
            assert not isinstance(now, str), now
            before = now
        stories += 1
    assert stories == KEPT_STORIES
