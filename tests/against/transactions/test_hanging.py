"""Hanging transactions are found and aborted by Kafka's own tool, kafka-transactions, and by konvene's."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ..brokers import Broker
from ..clients import Client, Fleet, eventually
from ..conftest import a_running_broker
from ..tools import ToolResult, Tools, tools
from .conftest import SETTINGS
from .hanging import leave_hanging
from .readers import TOPIC
from .test_producers import transactional

pytestmark = pytest.mark.java

VERIFICATION = "transaction.partition.verification.enable"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One that takes records of transactions in which their partition is not."""
    with a_running_broker(tmp_path_factory.mktemp("broker"), SETTINGS | {VERIFICATION: "false"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    with tools(tmp_path_factory.mktemp("tools") / "tools.log") as jvm:
        yield jvm


class Topic:
    """A topic with a transaction that hangs, one that is merely open, and a record behind both."""

    def __init__(self, name: str, broker: Broker, fleet: Fleet) -> None:
        self.name = name
        self.fleet = fleet
        self.admin = fleet.admin("java")
        self.admin.call("create_topics", topics=[{"name": name, "partitions": 2}])
        self.producer_id = leave_hanging(broker.port, f"lost-{name}", name, 0, "hanging")
        self.open = transactional(fleet, "java", f"open-{name}")
        self.open.call("begin")
        self.send(self.open, 1, "open")
        plain = fleet.producer("confluent-kafka", idempotence=True)
        self.send(plain, 0, "behind"), self.send(plain, 1, "behind")
        self.reader = fleet.consumer(
            "confluent-kafka", assign=[[name, 0], [name, 1]], isolation_level="read_committed"
        )

    def send(self, producer: Client, partition: int, value: str) -> None:
        record = {"topic": self.name, "partition": partition, "key": None, "value": value}
        producer.call("send", records=[record])

    def stable(self, partition: int) -> int:
        rows_ = self.admin.call(
            "list_offsets", partitions=[[self.name, partition]], at="latest", isolation_level="read_committed"
        )
        return int(rows_[0][2])

    def is_healed(self) -> None:
        """Past the one that hung, the other one goes on and ends as if nothing had been."""
        self.reader.until("what is behind", lambda: self.reader.values() == ["behind"], 20)
        assert (self.stable(0), self.stable(1)) == (3, 0)  # the record, what is behind, the marker
        self.open.call("commit")
        self.reader.until("the rest", lambda: len(self.reader.values()) == 3, 20)
        assert sorted(self.reader.values()) == ["behind", "behind", "open"]


def test_kafkas_tool_finds_and_aborts(broker: Broker, fleet: Fleet, jvm: Tools) -> None:
    """Of two open transactions it finds the one that its coordinator does not know, and ends that one."""
    topic = Topic("found", broker, fleet)
    assert (topic.stable(0), topic.stable(1)) == (0, 0)

    def rows(line: str) -> list[list[str]]:
        result: ToolResult = jvm.run(broker, f"kafka-transactions {line}")
        assert result.status == 0, result
        return [[cell.strip() for cell in row.strip().split("\t")] for row in result.out.splitlines()][1:]

    find = f"find-hanging --topic {topic.name} --max-transaction-timeout 0"
    found = eventually("a find", lambda: rows(find), 20)
    assert [row[:6] for row in found] == [[topic.name, "0", str(topic.producer_id), "0", "-1", "0"]]
    listed = {row[0]: row[3] for row in rows("list")}
    assert listed[f"lost-{topic.name}"] == "Empty"
    assert listed[f"open-{topic.name}-java"] == "Ongoing"
    (rows_,) = rows(f"describe --transactional-id open-{topic.name}-java")
    assert rows_[-1] == f"{topic.name}-1"
    assert len(rows(f"describe-producers --topic {topic.name} --partition 0")) == 2
    rows(f"abort --topic {topic.name} --partition 0 --start-offset 0")
    assert rows(find) == []
    topic.is_healed()


def test_konvenes_tool_finds_and_aborts(broker: Broker, fleet: Fleet) -> None:
    """The same, by `konvene transactions`."""
    topic = Topic("sought", broker, fleet)

    def transactions(*words: str) -> str:
        command = [sys.executable, "-m", "konvene", "transactions", words[0]]
        where = ["--bootstrap-server", broker.bootstrap]
        done = subprocess.run([*command, *where, *words[1:]], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done
        return done.stdout

    find = ("find-hanging", "--topic", topic.name, "--max-transaction-timeout", "0", "--json")
    (found,) = eventually("a find", lambda: json.loads(transactions(*find)), 20)
    assert (found["topic"], found["partition"], found["producer_id"]) == (topic.name, 0, topic.producer_id)
    transactions("abort", "--topic", topic.name, "--partition", "0", "--start-offset", "0")
    assert json.loads(transactions(*find)) == []
    topic.is_healed()


def test_what_is_not_in_a_transaction_is_refused(own_broker: Broker, own_fleet: Fleet) -> None:
    """With the default settings, records of a transaction without their partition are rejected:
    INVALID_TXN_STATE."""
    own_fleet.admin("java").call("create_topics", topics=[{"name": TOPIC, "partitions": 1}])
    with pytest.raises(AssertionError, match="Produce: error 48"):
        leave_hanging(own_broker.port, "nobody", TOPIC, 0, "hanging")
