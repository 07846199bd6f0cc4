"""`konvene groups reset-offsets` against a broker of ours: what is planned, refused, exported and done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import Said, Serving, call, serving
from tests.cli.groups.test_groups import described, ends
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
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Topic `orders` holds 0..10 in partition 0, 3..6 in partition 1 and nothing in partition 2; the records'
    times are 1000, 2000, … ms."""
    with serving(tmp_path_factory.mktemp("data")) as broker:
        broker.create("orders", 10, 6, 0)
        broker.create("payments", 2)

        async def delete() -> None:
            partition = DeleteRecordsPartition(partition_index=1, offset=3)
            topic = DeleteRecordsTopic(name="orders", partitions=(partition,))
            async with Cluster(broker.address) as cluster:
                await cluster.ask(DeleteRecordsRequest(topics=(topic,), timeout_ms=1000))

        broker.run(delete())
        yield broker


def reset(broker: Serving, *words: str, dry: bool = True) -> Said:
    return call(broker, "groups", "reset-offsets", *words, "--dry-run" if dry else "--execute")


def offsets(said: Said) -> dict[str, int]:
    """The table of a plan, by partition."""
    assert said.code == 0, said
    head, *rows = said.lines
    assert head == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    return {f"{topic}-{partition}": int(at) for _, topic, partition, at in rows}


ALL = ("--topic", "orders")


@pytest.mark.parametrize(
    ("words", "expected"),
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
def test_each_way_to_say_where(broker: Serving, words: tuple[str, ...], expected: tuple[int, ...]) -> None:
    """Planned with --dry-run, which commits nothing, and the same with --execute, which does."""
    broker.commit("ways", "orders", p0=4, p1=5)
    planned = offsets(reset(broker, "ways", *ALL, *words))
    assert planned == {f"orders-{i}": at for i, at in enumerate(expected)}
    assert {name: at for name, at in broker.committed("ways").items() if name != "orders-2"} == {
        "orders-0": 4, "orders-1": 5,
    }  # fmt: skip
    assert offsets(reset(broker, "ways", *ALL, *words, dry=False)) == planned
    assert broker.committed("ways") == planned


def test_a_shift_goes_from_what_is_committed_and_stays_in_the_log(broker: Serving) -> None:
    broker.commit("shifts", "orders", p0=8, p1=4)
    said = reset(broker, "shifts", "--all-topics", "--shift-by", "-2", dry=False)
    assert offsets(said) == {"orders-0": 6, "orders-1": 3}
    assert said.err == (
        "WARN: New offset (2) is lower than earliest offset for topic partition orders-1. "
        "Value will be set to 3.\n"
    )
    assert broker.committed("shifts") == {"orders-0": 6, "orders-1": 3}
    refused = reset(broker, "shifts", "--topic", "orders:2", "--shift-by", "1")
    assert refused == (
        1,
        "",
        "konvene: group shifts: Cannot shift offset for partition orders-2 since there is no current "
        "committed offset.\n",
    )


def test_topics_and_single_partitions_are_meant(broker: Serving) -> None:
    """A group that does not exist yet is given its first offsets."""
    said = reset(broker, "new", "--topic", "orders:2,1", "--topic", "payments", "--to-latest", dry=False)
    assert offsets(said) == {"orders-1": 6, "orders-2": 0, "payments-0": 2}
    assert broker.committed("new") == offsets(said)
    assert offsets(reset(broker, "--group", "new", "--all-topics", "--to-earliest")) == {
        "orders-1": 3, "orders-2": 0, "payments-0": 0,
    }  # fmt: skip


def test_a_late_time_falls_back_to_the_end_and_says_so(broker: Serving) -> None:
    said = reset(broker, "late", "--topic", "payments", "--to-datetime", "2026-01-01T00:00:00.000")
    assert offsets(said) == {"payments-0": 2}
    assert said.err == (
        "WARN: Partition 0 from topic payments has no record at or after that time. "
        "Falling back to latest known offset.\n"
    )


def test_without_execute_nothing_is_done_and_that_is_said(broker: Serving) -> None:
    words = ("groups", "reset-offsets", "undecided", "--topic", "payments", "--to-latest")
    said = call(broker, *words)
    assert said.err.splitlines()[0] == (
        "WARN: No action will be performed as the --execute option is missing."
    )
    assert offsets(said) == {"payments-0": 2}
    assert broker.committed("undecided") == {}


def test_a_group_with_members_is_refused_by_its_state_and_others_go_on(broker: Serving) -> None:
    broker.join("busy", ["orders"], None)
    broker.commit("idle", "orders", p0=1)
    said = reset(broker, "busy", "idle", "--topic", "orders:0", "--to-latest", dry=False)
    assert said.code == 1
    assert said.lines[1:] == [["idle", "orders", "0", "10"]]
    assert said.err == (
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


def test_what_does_not_exist_is_named(broker: Serving) -> None:
    said = reset(broker, "g", "--topic", "orders:1,9", "--topic", "nowhere:0", "--to-latest")
    assert said == (
        1,
        "",
        'konvene: group g: The partitions "nowhere-0,orders-9" do not exist\n'
        "  `konvene topics describe` shows a topic's partitions.\n",
    )
    said = reset(broker, "g", "--topic", "nowhere", "--to-latest")
    assert said.err.startswith("konvene: there is no topic nowhere\n")
    said = reset(broker, "nobody", "--all-topics", "--to-latest")
    assert (said.code, said.out) == (0, "")
    assert said.err == "WARN: Group 'nobody' has no committed offsets to reset.\n"


def test_an_export_of_one_group_is_taken_back_by_from_file(broker: Serving, tmp_path: Path) -> None:
    broker.commit("saved", "orders", p0=7, p1=5)
    broker.commit("saved", "payments", p0=1)
    exported = reset(broker, "saved", "--all-topics", "--to-current", "--export").out
    assert exported == "orders,0,7\norders,1,5\npayments,0,1\n"
    file = tmp_path / "saved.csv"
    file.write_text(exported)
    reset(broker, "saved", "--all-topics", "--to-earliest", dry=False)
    assert broker.committed("saved") == {"orders-0": 0, "orders-1": 3, "payments-0": 0}
    back = reset(broker, "saved", "--from-file", str(file), dry=False)
    assert offsets(back) == broker.committed("saved") == {"orders-0": 7, "orders-1": 5, "payments-0": 1}
    ignored = reset(broker, "saved", "--all-topics", "--from-file", str(file))
    assert offsets(ignored) == offsets(back)
    assert ignored.err.startswith("The file of --from-file lists the partitions")


def test_an_export_of_several_groups_names_them(broker: Serving, tmp_path: Path) -> None:
    broker.commit("ann", "orders", p0=1)
    broker.commit("bob's, too", "orders", p0=2)
    several = ("ann", "bob's, too")
    exported = reset(broker, *several, "--all-topics", "--to-current", "--export").out
    assert exported == 'ann,orders,0,1\n"bob\'s, too",orders,0,2\n'
    file = tmp_path / "several.csv"
    file.write_text(exported + "nobody,orders,0,3\n")
    reset(broker, *several, "--all-topics", "--to-latest", dry=False)
    said = reset(broker, *several, "--from-file", str(file), dry=False)
    assert said.code == 0, said
    assert broker.committed("ann") == {"orders-0": 1}
    assert broker.committed("bob's, too") == {"orders-0": 2}
    stranger = reset(broker, "carl", "--from-file", str(file))
    assert stranger.err.startswith("konvene: No reset plan for group carl found.\n")
    assert stranger.code == 1


def test_all_groups_are_those_of_consumers(tmp_path: Path) -> None:
    """One group in all, and yet its name stands in the export, as by Kafka."""
    with serving(tmp_path) as broker:
        broker.create("orders", 3)
        broker.commit("only", "orders", p0=1)
        said = reset(broker, "--all-groups", "--all-topics", "--to-latest", "--export")
        assert said == (0, "only,orders,0,3\n", "")


def test_a_commit_that_is_refused_is_told_and_its_plan_not_shown() -> None:
    refused = OffsetCommitResponsePartition(partition_index=0, error_code=25)
    topic = OffsetCommitResponseTopic(name="t", partitions=(refused,))
    broker = ScriptedBroker(
        DescribeGroups=described("Empty"),
        ListOffsets=ends,
        OffsetCommit=OffsetCommitResponse(topics=(topic,)),
    )
    broker.answers["Metadata"] = [broker.metadata(t=1)]
    with broker:
        said = call(broker, "groups", "reset-offsets", "billing", "--topic", "t", "--to-latest", "--execute")
    assert said == (1, "", "konvene: the offset of t-0 in group billing: UNKNOWN_MEMBER_ID\n")


ONE_WAY = "Give exactly one of --to-earliest, --to-latest, "


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--all-topics", "--to-latest"), "Give GROUP... (or --group GROUP) or --all-groups."),
        (("g", "--all-groups", "--all-topics", "--to-latest"), "Give GROUP... (or --group GROUP) or"),
        (("g", "--to-latest"), "One of the reset scopes should be defined: --all-topics, --topic."),
        (
            ("g", "--all-topics", "--topic", "t", "--to-latest"),
            "--all-topics and --topic cannot be used together",
        ),
        (("g", "--all-topics"), ONE_WAY),
        (("g", "--all-topics", "--to-latest", "--to-offset", "0"), ONE_WAY),
        (("g", "--all-topics", "--shift-by", "1", "--by-duration", "P1D"), ONE_WAY),
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
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(
    words: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    """Exit code 2, and no broker is needed to say so."""
    file = tmp_path / "plan.csv"
    file.write_text("t,0,1\ng,t,0,1\n")
    said = call(None, "groups", "reset-offsets", *(str(file) if w == "FILE" else w for w in words))
    assert said.code == 2
    assert why in " ".join(said.err.split()), said.err
