"""`konvene groups reset-offsets`: plans, errors, exports and execution against a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import CommandResult, RunningBroker, call, running_broker
from tests.cli.groups.test_groups import described, log_offsets
from tests.client.scripted import ScriptedBroker

from konvene.client.net.cluster import Cluster
from konvene.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from konvene.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Topic `orders` with offsets 0..10 in partition 0, 3..6 in partition 1 and none in partition 2; record
    timestamps are 1000, 2000, … ms.
    """
    with running_broker(tmp_path_factory.mktemp("data")) as broker:
        broker.create("orders", 10, 6, 0)
        broker.create("payments", 2)

        async def delete() -> None:
            partition = DeleteRecordsPartition(partition_index=1, offset=3)
            topic = DeleteRecordsTopic(name="orders", partitions=(partition,))
            async with Cluster(broker.address) as cluster:
                await cluster.ask(DeleteRecordsRequest(topics=(topic,), timeout_ms=1000))

        broker.run(delete())
        yield broker


def reset(broker: RunningBroker, *args: str, dry_run: bool = True) -> CommandResult:
    return call(broker, "groups", "reset-offsets", *args, "--dry-run" if dry_run else "--execute")


def offsets(result: CommandResult) -> dict[str, int]:
    """Return the offsets of a printed plan by partition."""
    assert result.code == 0, result
    heading, *rows = result.lines
    assert heading == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    return {f"{topic}-{partition}": int(offset) for _, topic, partition, offset in rows}


ALL = ("--topic", "orders")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("--to-earliest",), (0, 3, 0)),
        (("--to-latest",), (10, 6, 0)),
        (("--to-current",), (4, 5, 0)),
        (("--to-offset", "5"), (5, 5, 0)),
        (("--to-offset", "0"), (0, 3, 0)),
        (("--to-datetime", "1970-01-01T00:00:04.500"), (4, 4, 0)),
        (("--to-datetime", "1970-01-01T02:00:05.000+02:00"), (4, 4, 0)),
        (("--to-datetime", "1950-01-01T00:00:00.000"), (0, 3, 0)),
        (("--by-duration", "P30000D"), (0, 3, 0)),
        (("--by-duration", "PT1M"), (10, 6, 0)),
    ],
)
def test_reset_specification_gives_the_expected_offsets(
    broker: RunningBroker, args: tuple[str, ...], expected: tuple[int, ...]
) -> None:
    """--dry-run prints the plan without committing; --execute prints and commits it."""
    broker.commit("ways", "orders", p0=4, p1=5)
    planned = offsets(reset(broker, "ways", *ALL, *args))
    assert planned == {f"orders-{i}": offset for i, offset in enumerate(expected)}
    assert {name: offset for name, offset in broker.committed("ways").items() if name != "orders-2"} == {
        "orders-0": 4, "orders-1": 5,
    }  # fmt: skip
    assert offsets(reset(broker, "ways", *ALL, *args, dry_run=False)) == planned
    assert broker.committed("ways") == planned


def test_shift_starts_at_the_committed_offset_and_stays_within_the_log(broker: RunningBroker) -> None:
    broker.commit("shifts", "orders", p0=8, p1=4)
    result = reset(broker, "shifts", "--all-topics", "--shift-by", "-2", dry_run=False)
    assert offsets(result) == {"orders-0": 6, "orders-1": 3}
    assert result.err == (
        "WARN: New offset (2) is lower than earliest offset for topic partition orders-1. "
        "Value will be set to 3.\n"
    )
    assert broker.committed("shifts") == {"orders-0": 6, "orders-1": 3}
    rejected = reset(broker, "shifts", "--topic", "orders:2", "--shift-by", "1")
    assert rejected == (
        1,
        "",
        "konvene: group shifts: Cannot shift offset for partition orders-2 since there is no current "
        "committed offset.\n",
    )


def test_topics_and_single_partitions_can_be_reset(broker: RunningBroker) -> None:
    """A group that does not exist yet gets its first offsets."""
    result = reset(
        broker, "new", "--topic", "orders:2,1", "--topic", "payments", "--to-latest", dry_run=False
    )
    assert offsets(result) == {"orders-1": 6, "orders-2": 0, "payments-0": 2}
    assert broker.committed("new") == offsets(result)
    assert offsets(reset(broker, "--group", "new", "--all-topics", "--to-earliest")) == {
        "orders-1": 3, "orders-2": 0, "payments-0": 0,
    }  # fmt: skip


def test_timestamp_after_the_last_record_falls_back_to_latest(broker: RunningBroker) -> None:
    result = reset(broker, "late", "--topic", "payments", "--to-datetime", "2026-01-01T00:00:00.000")
    assert offsets(result) == {"payments-0": 2}
    assert result.err == (
        "WARN: Partition 0 from topic payments has no record at or after that time. "
        "Falling back to latest known offset.\n"
    )


def test_without_execute_a_warning_is_printed_and_nothing_committed(broker: RunningBroker) -> None:
    args = ("groups", "reset-offsets", "undecided", "--topic", "payments", "--to-latest")
    result = call(broker, *args)
    assert result.err.splitlines()[0] == (
        "WARN: No action will be performed as the --execute option is missing."
    )
    assert offsets(result) == {"payments-0": 2}
    assert broker.committed("undecided") == {}


def test_active_group_is_rejected_and_others_are_reset(broker: RunningBroker) -> None:
    broker.join("busy", ["orders"], None)
    broker.commit("idle", "orders", p0=1)
    result = reset(broker, "busy", "idle", "--topic", "orders:0", "--to-latest", dry_run=False)
    assert result.code == 1
    assert result.lines[1:] == [["idle", "orders", "0", "10"]]
    assert result.err == (
        "konvene: Assignments can only be reset if the group 'busy' is inactive, but the current state is "
        "Stable.\n"
        "  Stop its members first: `konvene groups describe --members` shows them.\n"
    )
    assert broker.committed("busy") == {}
    assert broker.committed("idle") == {"orders-0": 10}
    document = call(
        broker, "groups", "reset-offsets", "busy", "idle", *ALL, "--to-latest", "--execute", "--json"
    ).json
    assert document["executed"] is True
    busy, idle = document["groups"]
    assert (busy["executed"], busy["offsets"]) == (False, [])
    assert busy["error"].endswith("the current state is Stable.")
    assert (idle["executed"], idle["error"], idle["warnings"]) == (True, None, [])
    assert idle["offsets"][0] == {"topic": "orders", "partition": 0, "offset": 10}


def test_unknown_topics_partitions_and_groups_are_named(broker: RunningBroker) -> None:
    result = reset(broker, "g", "--topic", "orders:1,9", "--topic", "nowhere:0", "--to-latest")
    assert result == (
        1,
        "",
        'konvene: group g: The partitions "nowhere-0,orders-9" do not exist\n'
        "  `konvene topics describe` shows a topic's partitions.\n",
    )
    result = reset(broker, "g", "--topic", "nowhere", "--to-latest")
    assert result.err.startswith("konvene: there is no topic nowhere\n")
    result = reset(broker, "nobody", "--all-topics", "--to-latest")
    assert (result.code, result.out) == (0, "")
    assert result.err == "WARN: Group 'nobody' has no committed offsets to reset.\n"


def test_from_file_restores_an_export_of_one_group(broker: RunningBroker, tmp_path: Path) -> None:
    broker.commit("saved", "orders", p0=7, p1=5)
    broker.commit("saved", "payments", p0=1)
    exported = reset(broker, "saved", "--all-topics", "--to-current", "--export").out
    assert exported == "orders,0,7\norders,1,5\npayments,0,1\n"
    file = tmp_path / "saved.csv"
    file.write_text(exported)
    reset(broker, "saved", "--all-topics", "--to-earliest", dry_run=False)
    assert broker.committed("saved") == {"orders-0": 0, "orders-1": 3, "payments-0": 0}
    restored = reset(broker, "saved", "--from-file", str(file), dry_run=False)
    assert offsets(restored) == broker.committed("saved") == {"orders-0": 7, "orders-1": 5, "payments-0": 1}
    ignored = reset(broker, "saved", "--all-topics", "--from-file", str(file))
    assert offsets(ignored) == offsets(restored)
    assert ignored.err.startswith("The file of --from-file lists the partitions")


def test_from_file_restores_an_export_of_several_groups(broker: RunningBroker, tmp_path: Path) -> None:
    broker.commit("ann", "orders", p0=1)
    broker.commit("bob's, too", "orders", p0=2)
    several = ("ann", "bob's, too")
    exported = reset(broker, *several, "--all-topics", "--to-current", "--export").out
    assert exported == 'ann,orders,0,1\n"bob\'s, too",orders,0,2\n'
    file = tmp_path / "several.csv"
    file.write_text(exported + "nobody,orders,0,3\n")
    reset(broker, *several, "--all-topics", "--to-latest", dry_run=False)
    result = reset(broker, *several, "--from-file", str(file), dry_run=False)
    assert result.code == 0, result
    assert broker.committed("ann") == {"orders-0": 1}
    assert broker.committed("bob's, too") == {"orders-0": 2}
    unlisted = reset(broker, "carl", "--from-file", str(file))
    assert unlisted.err.startswith("konvene: No reset plan for group carl found.\n")
    assert unlisted.code == 1


def test_export_of_all_groups_names_the_group(tmp_path: Path) -> None:
    """An export with --all-groups names the group even if there is only one, as Kafka's does."""
    with running_broker(tmp_path) as broker:
        broker.create("orders", 3)
        broker.commit("only", "orders", p0=1)
        result = reset(broker, "--all-groups", "--all-topics", "--to-latest", "--export")
        assert result == (0, "only,orders,0,3\n", "")


def test_failed_commit_is_reported_without_its_plan() -> None:
    failed_partition = OffsetCommitResponsePartition(partition_index=0, error_code=25)
    topic = OffsetCommitResponseTopic(name="t", partitions=(failed_partition,))
    broker = ScriptedBroker(
        DescribeGroups=described("Empty"),
        ListOffsets=log_offsets,
        OffsetCommit=OffsetCommitResponse(topics=(topic,)),
    )
    broker.answers["Metadata"] = [broker.metadata(t=1)]
    with broker:
        result = call(
            broker, "groups", "reset-offsets", "billing", "--topic", "t", "--to-latest", "--execute"
        )
    assert result == (1, "", "konvene: the offset of t-0 in group billing: UNKNOWN_MEMBER_ID\n")


EXACTLY_ONE = "Give exactly one of --to-earliest, --to-latest, "


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--all-topics", "--to-latest"), "Give GROUP... (or --group GROUP) or --all-groups."),
        (("g", "--all-groups", "--all-topics", "--to-latest"), "Give GROUP... (or --group GROUP) or"),
        (("g", "--to-latest"), "One of the reset scopes should be defined: --all-topics, --topic."),
        (
            ("g", "--all-topics", "--topic", "t", "--to-latest"),
            "--all-topics and --topic cannot be used together",
        ),
        (("g", "--all-topics"), EXACTLY_ONE),
        (("g", "--all-topics", "--to-latest", "--to-offset", "0"), EXACTLY_ONE),
        (("g", "--all-topics", "--shift-by", "1", "--by-duration", "P1D"), EXACTLY_ONE),
        (
            ("g", "--all-topics", "--to-latest", "--dry-run", "--execute"),
            "--execute and --dry-run cannot be used together",
        ),
        (
            ("g", "--all-topics", "--to-latest", "--export", "--json"),
            "--export and --json cannot be used together",
        ),
        (("g", "--topic", "t:x", "--to-latest"), "Invalid partition 'x' specified in topic arg 't:x'."),
        (("g", "--all-topics", "--to-datetime", "now"), "--to-datetime: 'now' is not a time of the form"),
        (("g", "--all-topics", "--by-duration", "1h"), "--by-duration: '1h' is not a duration of the form"),
        (("g", "--all-topics", "--shift-by", "x"), "Invalid value for '--shift-by'"),
        (("g", "--from-file", "FILE"), "line 2 has 4 columns, expected topic,partition,offset."),
        (("g", "--from-file", "no-such-file"), "'no-such-file' does not exist"),
    ],
)
def test_invalid_options_are_usage_errors(args: tuple[str, ...], message: str, tmp_path: Path) -> None:
    """Exit code 2, without a connection to a broker."""
    file = tmp_path / "plan.csv"
    file.write_text("t,0,1\ng,t,0,1\n")
    result = call(None, "groups", "reset-offsets", *(str(file) if arg == "FILE" else arg for arg in args))
    assert result.code == 2
    assert message in " ".join(result.err.split()), result.err
