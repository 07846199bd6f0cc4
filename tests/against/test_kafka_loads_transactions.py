"""What konvene's coordinators wrote of transactions, Apache Kafka loads, and goes on with: the files of
`__transaction_state` and `__consumer_offsets` change hands.

Transactions of both protocols are made on konvene: one is open when konvene stops, one is committed, one
aborted, one producer has only its id. Kafka is given both logs, describes them alike, and ends the
open one. The lines are those of `tests/differential`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.differential.playing import Player, await_ready

from .brokers import Kafka, Konvene, Unavailable

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
LOGS = ("__consumer_offsets-0", "__transaction_state-0")
LIVES = (
    "init a", "stow a orders-0:1,orders-1:2:deep",
    "init b", "stow b orders-2:3", "end b commit",
    "init c v=1", "pledge c", "stow c orders-2:4 v=3", "end c abort v=3",
    "init d",
    "commit e orders-0:9,orders-3:9 generation=-1 member=-",
)  # fmt: skip
QUESTIONS = (
    "inquire admin a,b,c,d",
    "fetch admin all",
    "fetch admin orders-0,orders-1,orders-2,orders-3 stable=yes",
)

pytestmark = pytest.mark.java


@pytest.fixture
def kafka(tmp_path: Path) -> Kafka:
    try:
        return Kafka(tmp_path / "kafka", SETTINGS)
    except Unavailable as why:
        pytest.skip(str(why))


def test_kafka_goes_on_with_the_transactions_that_konvene_had(tmp_path: Path, kafka: Kafka) -> None:
    konvene = Konvene(tmp_path / "konvene", SETTINGS)
    konvene.start()
    try:
        await_ready(konvene.port, transactions=True)
        player = Player(konvene.port, "moved.", transactional=True)
        for line in LIVES:
            (answer,) = player.play(line)
            assert "NONE" in answer, (line, answer)
        ours = [player.play(question, 1) for question in QUESTIONS]
        player.close()
    finally:
        konvene.stop()
    assert "UNSTABLE_OFFSET_COMMIT" in ours[2][0]
    kafka.start()
    try:
        await_ready(kafka.port, transactions=True)
    finally:
        kafka.stop()
    hand_over(konvene, kafka)
    kafka.start()
    try:
        await_ready(kafka.port, transactions=True)
        other = Player(kafka.port, "moved.", transactional=True)
        other.speaker.memories = player.speaker.memories
        other.reader.producers = player.reader.producers
        assert [other.play(question, 1) for question in QUESTIONS] == ours
        (ended,) = other.play("end a commit", 1)
        assert ended.startswith("a <- EndTxn v5 NONE producer_id=p1 producer_epoch=1")
        (fetched,) = other.play(QUESTIONS[2], 1)
        offsets = [
            part.partition("committed_offset=")[2].split()[0]
            for part in fetched.split("{partition_index")[1:]
        ]
        assert offsets == ["9", "2", "3", "9"]  # of the first, the plain commit came later
        for line in ("init b", "init c", "init d"):
            assert "NONE" in other.play(line)[0]
        other.close()
    finally:
        kafka.stop()


def hand_over(konvene: Konvene, kafka: Kafka) -> None:
    """Kafka gets konvene's logs in place of its own, as after a crash: it reads them whole."""
    data = kafka.directory / "data"
    for name in LOGS:
        for file in (data / name).iterdir():
            if file.suffix in (".log", ".index", ".timeindex", ".snapshot", ".txnindex"):
                file.unlink()
        shutil.copy(konvene.directory / "data" / name / f"{0:020d}.log", data / name)
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        version, _, *rows = (data / name).read_text().splitlines()
        rows = [row for row in rows if not row.startswith("__")]
        (data / name).write_text("\n".join([version, str(len(rows)), *rows, ""]))
