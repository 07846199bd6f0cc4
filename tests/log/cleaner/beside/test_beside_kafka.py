"""Kafka's own Cleaner makes the same files as ours, after each cleaning of stories that chance makes.

Some stories and Kafka's answers are kept, so that they are compared where there is no Java. With
`KONVENE_CLEANER_RECORD=1` they are written anew.
"""

from __future__ import annotations

import lzma
import os
import zlib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from tests.against.beside import Beside
from tests.against.brokers import kafka_jars
from tests.log.cleaner.beside.ours import Story

HERE = Path(__file__).parent
KEPT = HERE / "stories.txt.xz"
KEPT_STORIES = 6
STORIES = int(os.environ.get("KONVENE_CLEANER_STORIES", "10"))


class Kafka(Beside):
    """A JVM with Kafka's Cleaner in it."""

    def __init__(self, jars: Path, directory: Path) -> None:
        super().__init__(
            HERE / "Beside.java", "org.apache.kafka.storage.internals.log.Beside", jars, directory
        )

    def run(self, line: str) -> str:
        answer = super().run(line)
        assert not answer.startswith("threw"), answer
        return answer


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    kafka = Kafka(kafka_jars(), tmp_path_factory.mktemp("beside"))
    yield kafka
    kafka.close()


@pytest.mark.java
def test_both_leave_the_same_files(kafka: Kafka, tmp_path: Path) -> None:
    kept: list[str] = []
    cleanings = apart = 0
    for seed in range(STORIES):
        transcript: list[str] = []

        def send_command(line: str, transcript: list[str] = transcript, seed: int = seed) -> str:
            answer = kafka.run(line)
            transcript.append(f"{seed}\t{zlib.crc32(line.encode())}\t{answer}")
            return answer

        assert kafka.run(f"open {tmp_path}/story{seed}-0") == "opened"
        story = Story(seed, send_command)
        story.run()
        cleanings += story.cleanings
        apart += story.apart
        if seed < KEPT_STORIES:
            kept += transcript
    assert cleanings >= 2 * STORIES
    assert apart <= STORIES // 4
    if os.environ.get("KONVENE_CLEANER_RECORD"):
        KEPT.write_bytes(lzma.compress("\n".join(kept).encode()))


def test_we_leave_the_files_that_kafka_left_once() -> None:
    lines = [line.split("\t") for line in lzma.decompress(KEPT.read_bytes()).decode().split("\n")]
    stories = 0
    for seed, story in groupby(lines, key=lambda parts: parts[0]):
        answers = list(story)

        def send_command(line: str, answers: list[list[str]] = answers) -> str:
            _, checksum, answer = answers.pop(0)
            assert checksum == str(zlib.crc32(line.encode()))
            return answer

        Story(int(seed), send_command).run()
        assert not answers
        stories += 1
    assert stories == KEPT_STORIES
