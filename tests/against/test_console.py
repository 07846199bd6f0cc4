"""The live page of Apache Kafka: what its log proves is shown and marked as inferred, the rest as unknown."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.against.brokers import Broker, Kafka, Unavailable
from tests.console.running import RunningConsole, State, is_live, running_console

SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100", "group.consumer.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "100", "group.share.heartbeat.interval.ms": "300",
    "group.min.session.timeout.ms": "1000", "share.coordinator.state.topic.num.partitions": "2",
}  # fmt: skip


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        broker = Kafka(tmp_path_factory.mktemp("kafka"), SETTINGS)
        broker.start()
    except Unavailable as error:
        pytest.skip(str(error))
    try:
        yield broker
    finally:
        broker.kill9()


@pytest.fixture(scope="module")
def console(kafka: Broker) -> Iterator[RunningConsole]:
    for topic in ("orders", "jobs"):
        run(kafka, "topics", "create", topic, "--partitions", "4")
    with running_console(kafka.bootstrap) as console:
        yield console


def run(kafka: Broker, *args: str) -> None:
    command = [sys.executable, "-m", "konvene", *args, "--bootstrap-server", kafka.bootstrap]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


@contextmanager
def member(kafka: Broker, directory: Path, name: str, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a consumer in a process of its own; it is killed at the end."""
    command = [sys.executable, "-m", "konvene", "consume", "--client-id", name, *args]
    with (directory / f"{name}.txt").open("wb") as output:
        process = subprocess.Popen(
            [*command, "--bootstrap-server", kafka.bootstrap], stdout=output, stderr=output
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait(30)


def names(state: State) -> set[str]:
    return {row["name"] for row in state["members"].values()}


def has_settled(state: State, members: set[str], partitions: int = 4) -> bool:
    owned = [row for row in state["units"].values() if row["owner_name"]]
    return is_live(state) and names(state) == members and len(owned) == partitions


PROTOCOLS = {"classic": "session.timeout.ms=3000", "consumer": "group.protocol=consumer"}


@pytest.mark.parametrize("kind", PROTOCOLS)
def test_rebalances_of_a_group_are_inferred(
    kafka: Broker, console: RunningConsole, tmp_path: Path, kind: str
) -> None:
    group = f"readers-{kind}"
    args = ("--topic", "orders", "--group", group, "--consumer-property", PROTOCOLS[kind])
    with ExitStack() as running, console.view("group", group=group) as view:
        running.enter_context(member(kafka, tmp_path, "ann", *args))
        view.until(lambda state: has_settled(state, {"ann"}))
        bob = running.enter_context(member(kafka, tmp_path, "bob", *args))
        state = view.until(
            lambda state: (
                has_settled(state, {"ann", "bob"})
                and {row["owner_name"] for row in state["units"].values()} == {"ann", "bob"}
            )
        )
        assert state["facts"]["type"] == kind
        assert state["facts"]["heartbeat_policy"] is None
        assert {row["heartbeat_ms"] for row in state["members"].values()} == {None}
        bob.kill()
        state = view.until(
            lambda state: (
                has_settled(state, {"ann"})
                and any("bob" in row["sentence"] and row["moved"] for row in state["rebalances"].values())
            )
        )
    assert {row["evidence"] for row in state["rebalances"].values()} == {"inferred"}
    assert set(state["lanes"]) == {f"orders:{p}" for p in range(4)}
    assert {span[2] for lane in state["lanes"].values() for span in lane["spans"]} == {"ann", "bob"}
    newest = max(state["rebalances"].values(), key=lambda row: row["epoch"])
    with console.view("rebalance", group=group, key=newest["key"]) as view:
        traced = view.until(lambda state: state["steps"])
    assert traced["facts"]["evidence"] == "inferred"
    assert traced["facts"]["sentence"] == newest["sentence"]
    with console.view("groups") as view:
        listed = view.until(lambda state: group in state["groups"])["groups"][group]
    assert (listed["type"], listed["last"]["key"]) == (kind, newest["key"])


def test_a_share_group_shows_start_offsets_and_lag(
    kafka: Broker, console: RunningConsole, tmp_path: Path
) -> None:
    with (
        member(kafka, tmp_path, "sam", "--topic", "jobs", "--share-group", "workers"),
        console.view("group", group="workers") as view,
    ):
        state = view.until(lambda state: has_settled(state, {"sam"}))
    assert state["facts"]["type"] == "share"
    assert {row["in_flight"] for row in state["units"].values()} == {None}
    assert {row["protocol"] for row in state["members"].values()} == {"share"}
