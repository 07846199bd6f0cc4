"""Konvene's share partition and Kafka's `SharePartition` give equal answers to random scripts.

After each command the test compares the result, the write, the bounds of the window and each offset in it.
Some scripts are recorded with Kafka's answers for machines without Java; `KONVENE_DELIVERY_RECORD=1` records
them again.
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
from tests.delivery.beside.comparison import Answer, contradiction, difference, start_differs
from tests.delivery.beside.konvene_partition import KonvenePartition, RandomScript, parse_answer

HERE = Path(__file__).parent
RECORDED = HERE / "stories.txt.gz"
RECORDED_SCRIPTS = 60
STEPS = 60
SCRIPTS = int(os.environ.get("KONVENE_DELIVERY_STORIES", "200"))
KNOWN_DEVIATIONS = (9774,)
"""Seeds of further scripts. 9774: Kafka reads a gap again that it read two steps before."""


class Kafka(Beside):
    """A JVM with Kafka's SharePartition in it."""

    def __init__(self, jars: Path, directory: Path) -> None:
        super().__init__(HERE / "Beside.java", "kafka.server.share.Beside", jars, directory)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    kafka = Kafka(kafka_jars(), tmp_path_factory.mktemp("beside"))
    yield kafka
    kafka.close()


def compare(
    partition: KonvenePartition, line: str, answer: str, before: tuple[Answer, Answer] | None
) -> tuple[Answer, Answer] | str:
    """Return both answers, or the reason to end the script if Kafka's answer is inconsistent."""
    konvene = partition.run(line)
    if answer.startswith("threw"):
        return answer
    kafka_answer = parse_answer(answer, line)
    if line.startswith(("ack", "release")) and answer.split(" |")[1].strip() and not konvene[1]:
        partition.skip_write()  # Kafka also writes offsets below the start.
    reason = contradiction(line, before[1] if before is not None else None, kafka_answer, partition.log_gaps)
    if reason:
        return reason
    aspect = difference(konvene, kafka_answer)
    if aspect and before is not None and start_differs(*before) and line.startswith("take"):
        return "the start has not moved over completed records"
    assert not aspect, f"{aspect} differs after {line!r}:\n{konvene}\n{kafka_answer}"
    return konvene, kafka_answer


@pytest.mark.java
def test_konvene_and_kafka_agree(kafka: Kafka) -> None:
    ends: Counter[str] = Counter()
    recorded_lines: list[str] = []
    for seed in (*range(SCRIPTS), *KNOWN_DEVIATIONS):
        script = RandomScript(seed)
        recorded: list[str] = []
        line, before, end = script.first(), None, "agreed"
        for _ in range(STEPS):
            answer = kafka.run(line)
            recorded.append(f"{seed}\t{line}\t{answer}")
            answers = compare(script.partition, line, answer, before)
            if isinstance(answers, str):
                end = answers
                break
            before = answers
            line = script.next()
        ends[end] += 1
        if end == "agreed" and len(recorded_lines) < RECORDED_SCRIPTS * STEPS:
            recorded_lines += recorded
    assert ends["agreed"] >= SCRIPTS * 3 // 5, ends
    if os.environ.get("KONVENE_DELIVERY_RECORD"):
        RECORDED.write_bytes(gzip.compress("\n".join(recorded_lines).encode(), mtime=0))


def test_konvene_agrees_with_recorded_answers() -> None:
    lines = [line.split("\t") for line in gzip.decompress(RECORDED.read_bytes()).decode().split("\n")]
    scripts = 0
    for _, script_lines in groupby(lines, key=lambda parts: parts[0]):
        partition, before = KonvenePartition(), None
        for _, line, answer in script_lines:
            answers = compare(partition, line, answer, before)
            assert not isinstance(answers, str), answers
            before = answers
        scripts += 1
    assert scripts == RECORDED_SCRIPTS
