"""`konvene consume --share-group`: printing and acknowledging records."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.commands import CommandResult, RunningBroker, call, running_broker

SETTINGS = {
    "group.share.heartbeat.interval.ms": "50", "group.share.min.heartbeat.interval.ms": "50",
    "group.share.assignment.interval.ms": "0", "share.coordinator.state.topic.num.partitions": "2",
}  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("data"), SETTINGS) as broker:
        yield broker


def produce_and_configure(broker: RunningBroker, topic: str, group: str, lines: str) -> None:
    call(broker, "topics", "create", "--topic", topic, "--partitions", "1")
    call(broker, "produce", "--topic", topic, stdin=lines)
    from_earliest = "share.auto.offset.reset=earliest"
    call(
        broker, "configs", "alter", "--entity-type", "groups", "--entity-name", group,
        "--add-config", from_earliest,
    )  # fmt: skip


def consume(broker: RunningBroker | None, topic: str, group: str, *args: str) -> CommandResult:
    return call(broker, "consume", "--topic", topic, "--share-group", group, *args)


def test_records_are_accepted_once_they_are_printed(broker: RunningBroker) -> None:
    produce_and_configure(broker, "jobs", "workers", "a\nb\nc\n")
    assert consume(broker, "jobs", "workers", "--max-messages", "2") == (
        0, "a\nb\n", "Processed a total of 2 messages\n",
    )  # fmt: skip
    result = consume(broker, "jobs", "workers", "--timeout-ms", "300", "--property", "print.delivery=true")
    assert result.out == "Delivery:2\tc\n"
    assert consume(broker, "jobs", "workers", "--timeout-ms", "300", "--json").json == []


@pytest.mark.parametrize("args", [["--release"], ["--acknowledge", "release"]])
def test_released_records_are_redelivered(broker: RunningBroker, args: list[str]) -> None:
    topic = f"again{len(args)}"
    produce_and_configure(broker, topic, topic, "a\n")
    assert consume(broker, topic, topic, *args, "--max-messages", "1").out == "a\n"
    (record,) = consume(broker, topic, topic, "--timeout-ms", "300", "--json").json
    assert (record["value"], record["delivery_count"]) == ("a", 2)


def test_rejected_records_are_not_redelivered(broker: RunningBroker) -> None:
    produce_and_configure(broker, "bad", "bad", "a\n")
    assert consume(broker, "bad", "bad", "--reject", "--max-messages", "1").out == "a\n"
    assert consume(broker, "bad", "bad", "--timeout-ms", "300").out == ""


def test_include_selects_topics_by_pattern(broker: RunningBroker) -> None:
    produce_and_configure(broker, "exp-one", "exp", "1\n")
    produce_and_configure(broker, "exp-two", "exp", "2\n")
    result = call(broker, "consume", "--include", "exp-.*", "--share-group", "exp", "--max-messages", "2")
    assert sorted(result.out.split()) == ["1", "2"]


def test_a_record_without_a_share_group_has_no_delivery_count(broker: RunningBroker) -> None:
    produce_and_configure(broker, "plain", "plain", "a\n")
    result = call(broker, "consume", "--topic", "plain", "--from-beginning", "--max-messages", "1",
                "--property", "print.delivery=true")  # fmt: skip
    assert result.out == "Delivery:NOT_PRESENT\ta\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--group", "g"], "--share-group and --group cannot be used together."),
        (["--partition", "0"], "--share-group and --partition cannot be used together."),
        (["--assignor", "range"], "--share-group and --assignor cannot be used together."),
        (["--release", "--reject"], "release and reject cannot be used together."),
        (["--acknowledge", "accept", "--reject"], "accept and reject cannot be used together"),
        (["--from-beginning"], "--entity-name workers --add-config share.auto.offset.reset=earliest"),
        (["--isolation-level", "read_committed"], "--add-config share.isolation.level=read_committed"),
        (["--consumer-property", "group.id=other"], "group.id=other are different."),
        (["--consumer-property", "max.poll.records"], "max.poll.records: write KEY=VALUE."),
        (
            ["--consumer-property", "enable.auto.commit=true"],
            "--consumer-property: enable.auto.commit cannot be set when using a share group.",
        ),
    ],
)  # fmt: skip
def test_contradictory_options_are_usage_errors(args: list[str], message: str) -> None:
    result = consume(None, "jobs", "workers", *args)
    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_acknowledgement_options_need_a_share_group() -> None:
    result = call(None, "consume", "--topic", "jobs", "--release")
    assert result.code == 2
    assert "Acknowledging records needs --share-group." in result.err


def test_unknown_consumer_property_is_reported(broker: RunningBroker) -> None:
    produce_and_configure(broker, "known", "known", "a\n")
    result = consume(broker, "known", "known", "--max-messages", "1", "--consumer-property", "linger.ms=1")
    assert result.err.startswith("--consumer-property linger.ms is unknown and ignored.\n")
