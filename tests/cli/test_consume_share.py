"""`konvene consume --share-group`: records are printed, and acknowledged as it was said."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.commands import Said, Serving, call, serving

SETTINGS = {
    "group.share.heartbeat.interval.ms": "50", "group.share.min.heartbeat.interval.ms": "50",
    "group.share.assignment.interval.ms": "0", "share.coordinator.state.topic.num.partitions": "2",
}  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("data"), SETTINGS) as broker:
        yield broker


def begin(broker: Serving, topic: str, group: str, lines: str) -> None:
    call(broker, "topics", "create", "--topic", topic, "--partitions", "1")
    call(broker, "produce", "--topic", topic, stdin=lines)
    earliest = "share.auto.offset.reset=earliest"
    call(
        broker, "configs", "alter", "--entity-type", "groups", "--entity-name", group,
        "--add-config", earliest,
    )  # fmt: skip


def consume(broker: Serving | None, topic: str, group: str, *words: str) -> Said:
    return call(broker, "consume", "--topic", topic, "--share-group", group, *words)


def test_records_are_accepted_once_they_are_printed(broker: Serving) -> None:
    begin(broker, "jobs", "workers", "a\nb\nc\n")
    assert consume(broker, "jobs", "workers", "--max-messages", "2") == (
        0, "a\nb\n", "Processed a total of 2 messages\n",
    )  # fmt: skip
    said = consume(broker, "jobs", "workers", "--timeout-ms", "300", "--property", "print.delivery=true")
    assert said.out == "Delivery:2\tc\n"
    assert consume(broker, "jobs", "workers", "--timeout-ms", "300", "--json").json == []


@pytest.mark.parametrize("words", [["--release"], ["--acknowledge", "release"]])
def test_released_records_come_again(broker: Serving, words: list[str]) -> None:
    name = f"again{len(words)}"
    begin(broker, name, name, "a\n")
    assert consume(broker, name, name, *words, "--max-messages", "1").out == "a\n"
    (record,) = consume(broker, name, name, "--timeout-ms", "300", "--json").json
    assert (record["value"], record["delivery_count"]) == ("a", 2)


def test_rejected_records_do_not(broker: Serving) -> None:
    begin(broker, "bad", "bad", "a\n")
    assert consume(broker, "bad", "bad", "--reject", "--max-messages", "1").out == "a\n"
    assert consume(broker, "bad", "bad", "--timeout-ms", "300").out == ""


def test_topics_may_be_named_by_an_expression(broker: Serving) -> None:
    begin(broker, "exp-one", "exp", "1\n")
    begin(broker, "exp-two", "exp", "2\n")
    said = call(broker, "consume", "--include", "exp-.*", "--share-group", "exp", "--max-messages", "2")
    assert sorted(said.out.split()) == ["1", "2"]


def test_a_record_without_a_share_group_has_no_delivery_count(broker: Serving) -> None:
    begin(broker, "plain", "plain", "a\n")
    said = call(broker, "consume", "--topic", "plain", "--from-beginning", "--max-messages", "1",
                "--property", "print.delivery=true")  # fmt: skip
    assert said.out == "Delivery:NOT_PRESENT\ta\n"


@pytest.mark.parametrize(
    ("words", "why"),
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
def test_what_contradicts_is_refused(words: list[str], why: str) -> None:
    said = consume(None, "jobs", "workers", *words)
    assert (said.code, said.out) == (2, "")
    assert why in said.err


def test_nothing_is_acknowledged_without_a_share_group() -> None:
    said = call(None, "consume", "--topic", "jobs", "--release")
    assert said.code == 2
    assert "Acknowledging records needs --share-group." in said.err


def test_a_setting_that_is_not_known_is_told(broker: Serving) -> None:
    begin(broker, "known", "known", "a\n")
    said = consume(broker, "known", "known", "--max-messages", "1", "--consumer-property", "linger.ms=1")
    assert said.err.startswith("--consumer-property linger.ms is unknown and ignored.\n")
