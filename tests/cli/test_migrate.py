"""`konvene migrate`: dry runs on Kafka's and konvene's logs, checks against a cluster, and the printed
advice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import CommandResult, RunningBroker, call, running_broker
from tests.groups.migration.migrating import consumer, member, record, thread
from tests.groups.streams.topology.topologies import sent, sub

from konvene.cli.migrate.advice import ADVICE, advice_for
from konvene.client.net.cluster import Cluster
from konvene.errors import Errors
from konvene.groups.streams.log import topology_record
from konvene.groups.streams.topology.topology import record_value
from konvene.log.config import LogConfig
from konvene.log.directory import Identity, LogDirectory, TopicPartition
from konvene.log.disk.files import RealDisk
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from konvene.records.commits import encode_group_record
from konvene.records.coordinator import Record

VECTORS = Path(__file__).parents[1] / "vectors" / "logs"
ROOT = Path(__file__).parents[2]
NOW = 1_760_000_000_000
KIP = ("--config", "konvene.streams.mode=kip")
WORDS_TOPOLOGY = {
    "topology": {
        "epoch": 3,
        "subtopologies": [
            {
                "id": "0",
                "source_topics": ["orders"],
                "state_changelog_topics": [{"name": "counts", "partitions": 4, "configs": {}}],
            }
        ],
    }
}


def write(path: Path, *batches: tuple[int, list[Record]], partition: int = 0, orders: int = 0) -> Path:
    """Write a data directory with these `(time, records)` batches in a partition of the group coordinator's
    log, and with `orders` partition folders of topic `orders`.
    """
    directory = LogDirectory.open(RealDisk(), str(path), Identity("clusterA", 1, "dirA"))
    log_partition = TopicPartition("__consumer_offsets", partition)
    others = [TopicPartition("orders", number) for number in range(orders)]
    log, *_ = directory.create([log_partition, *others], LogConfig(), NOW)
    for at_ms, records in batches:
        log.append_built([encode_group_record(entry) for entry in records], 0, at_ms)
    log.sync()
    directory.close(clean=True)
    return path


def dry_run(path: Path, *args: str) -> CommandResult:
    return call(None, "migrate", "dry-run", str(path), *args)


def single_group(result: CommandResult) -> dict[str, Any]:
    (group,) = result.json
    return dict(group)


def codes(group: dict[str, Any], field: str = "blockers") -> list[str]:
    return [entry["code"] for entry in group[field]]


# --- Kafka's logs ----------------------------------------------------------------------------------


def test_dry_run_of_kafkas_classic_groups() -> None:
    result = dry_run(VECTORS / "classic", "--json")
    assert result.code == 0
    groups = {each["group"]: each for each in result.json}
    assert {"alive", "alive-coop", "billing"} <= groups.keys()
    assert all(each["can_migrate"] and each["to"] == "consumer" for each in groups.values())
    moves = groups["alive"]["moves"]
    owned_counts = [len(each["has"]) for each in groups["alive"]["members"]]
    target_counts = [len(each["target"]) for each in groups["alive"]["members"]]
    assert sorted(owned_counts) == [3, 7] and sorted(target_counts) == [5, 5]
    assert (moves["stay"], moves["move"], moves["fresh"], moves["lost"]) == (8, 2, 0, 0)
    assert codes(groups["billing"], "notes") == ["empty"]


def test_kafkas_streams_group_has_no_classic_member() -> None:
    assert dry_run(VECTORS / "streams", "--json").json == []
    group = single_group(dry_run(VECTORS / "streams", "--group", "alive", "--json", *KIP))
    assert {each["speaks"] for each in group["members"]} == {"streams"}
    assert codes(group, "notes") == ["no-classic-members"]


def test_downgrade_of_kafkas_mixed_group() -> None:
    args = ["--group", "alive-mixed", "--json"]
    group = single_group(dry_run(VECTORS / "consumer", *args))
    assert (group["to"], group["can_migrate"], codes(group, "notes")) == ("classic", True, ["still-new"])
    result = dry_run(VECTORS / "consumer", *args, "--config", "group.consumer.migration.policy=upgrade")
    assert result.code == 1 and codes(single_group(result)) == ["policy"]


# --- logs of ours ----------------------------------------------------------------------------------


def write_consumer_groups(path: Path) -> Path:
    early = record(consumer("ann", [0, 1, 2, 3]), group="g", generation=1)
    late = record(consumer("ann", [0, 1]), consumer("bob", [2, 3], instance_id="i1"), group="g", generation=2)
    bad = record(member("eve", b"\xff", b""), group="odd")
    other = record(member("worker", b"\0", b""), group="connect-1", protocol_type="connect")
    return write(path, (NOW, [early]), (NOW + 1_000, [late, bad, other]), orders=4)


def test_blockers_name_the_member_and_the_advice(tmp_path: Path) -> None:
    result = dry_run(write_consumer_groups(tmp_path), "--explain")
    assert result.code == 1
    assert "Skipped 1 group without consumers as members" in result.err
    assert "1 of 2 groups can migrate." in result.err
    rows = {line.split()[0]: line.split() for line in result.out.splitlines() if not line.startswith(" ")}
    assert rows["g"][2:] == ["consumer", "2", "range", "yes", "4", "0", "0", "0"]
    assert rows["odd"][5] == "NO"
    advice = advice_for("consumer", "malformed")
    assert advice is not None
    assert f"-> {advice.do}" in result.out
    assert (
        "blocked (malformed): the embedded consumer protocol is malformed. [eve at /10.0.0.1]" in result.out
    )


def test_at_reports_the_group_as_of_that_time(tmp_path: Path) -> None:
    write_consumer_groups(tmp_path)
    args = ["--group", "g", "--json"]
    now, then = (
        single_group(dry_run(tmp_path, *args)),
        single_group(dry_run(tmp_path, *args, "--at", str(NOW))),
    )
    assert (now["epoch"], len(now["members"])) == (2, 2)
    assert (then["epoch"], len(then["members"])) == (1, 1)
    assert dry_run(tmp_path, *args, "--at", "soon").code == 2


def test_partition_counts_come_from_folders_assignments_or_options(tmp_path: Path) -> None:
    (only,) = [write(tmp_path / "a", (NOW, [record(consumer("ann", [0]))]), orders=3)]
    segment = next((only / "__consumer_offsets-0").glob("*.log"))
    for path, args, fresh in (
        (only, (), 2),
        (only / "__consumer_offsets-0", (), 0),
        (segment, (), 0),
        (only, ("--topic", "orders=12"), 11),
    ):
        assert single_group(dry_run(path, "--json", *args))["moves"]["fresh"] == fresh


def test_longest_copy_of_a_log_is_used(tmp_path: Path) -> None:
    old = write(tmp_path / "a", (NOW, [record(consumer("ann", [0]))]))
    new = write(tmp_path / "b", (NOW, [record(consumer("ann", [0]))]), (NOW, [record(consumer("bob", [0]))]))
    for paths in ((old, new), (new, old)):
        result = call(None, "migrate", "dry-run", *map(str, paths), "--json")
        assert [each["member_id"] for each in single_group(result)["members"]] == ["bob"]


def test_members_table_shows_owned_and_target_counts(tmp_path: Path) -> None:
    write(tmp_path, (NOW, [record(consumer("ann", [0, 1, 2, 3]), consumer("bob", []))]))
    result = dry_run(tmp_path, "--members")
    assert ["g", "ann", "client-ann", "/10.0.0.1", "classic", "4", "2", "(-2)"] in result.lines
    assert ["g", "bob", "client-bob", "/10.0.0.1", "classic", "0", "2", "(+2)"] in result.lines


def test_damaged_log_is_reported_with_exit_code_1(tmp_path: Path) -> None:
    write_consumer_groups(tmp_path)
    segment = next((tmp_path / "__consumer_offsets-0").glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[-5] ^= 0xFF
    segment.write_bytes(data)
    result = dry_run(tmp_path, "--group", "g", "--json")
    assert result.code == 1
    assert "damaged" in result.err
    assert single_group(result)["epoch"] == 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--group", "nobody"), "no such group"),
        (("--group", "g", "--to", "classic"), "a classic group already"),
        (("--config", "group.consumer.migration.policie=x"), "policie"),
        (("--config", "streams.num.standby.replicas=many"), "many"),
        (("--config", "policy"), "NAME=VALUE"),
        (("--topic", "orders=0"), "NAME=PARTITIONS"),
        (("--topology-of", "g"), "streams group"),
        (("--to", "share"), "share"),
    ],
)
def test_invalid_options_are_usage_errors(tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    result = dry_run(write_consumer_groups(tmp_path), *args)
    assert result.code == 2 and message in result.err


def test_directory_without_a_coordinator_log_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    result = dry_run(tmp_path)
    assert result.code == 2 and "__consumer_offsets" in result.err


# --- applications of Kafka Streams -----------------------------------------------------------------


def write_streams_app(path: Path) -> Path:
    """Write the application `words`, and its copy `other`, which already uses the streams protocol."""
    ann = thread("ann", [("0", 0), ("0", 1)], [("0", 2)])
    bob = thread("bob", [("0", 2), ("0", 3)], [("0", 0)])
    twin = topology_record("other", record_value(sent(sub("0", "orders", state="counts"))))
    return write(path, (NOW, [record(ann, bob, group="words", protocol="stream"), twin]), orders=4)


def test_streams_app_without_a_topology_is_blocked_by_policy(tmp_path: Path) -> None:
    result = dry_run(write_streams_app(tmp_path), "--group", "words", "--json")
    group = single_group(result)
    assert result.code == 1
    assert (group["to"], codes(group), group["moves"]) == ("streams", ["policy"], None)
    assert codes(group, "notes") == ["standbys", "no-topology"]
    assert [(each["has"], each["version"]) for each in group["members"]] == [
        (["0_0", "0_1"], 11),
        (["0_2", "0_3"], 11),
    ]


@pytest.mark.parametrize("case", ["ours", "kafka's", "group"])
def test_with_a_topology_the_assignor_computes_the_moves(tmp_path: Path, case: str) -> None:
    file = tmp_path / "words.json"
    kafka = {
        "subtopologies": [
            {"subtopologyId": "0", "sourceTopics": ["orders"], "stateChangelogTopics": [{"name": "counts"}]}
        ]
    }
    file.write_text(json.dumps([WORDS_TOPOLOGY] if case == "ours" else kafka))
    topology_args = ["--topology-of", "other"] if case == "group" else ["--topology", str(file)]
    path = write_streams_app(tmp_path / "data")
    result = dry_run(path, "--group", "words", "--json", *KIP, *topology_args)
    group = single_group(result)
    assert result.code == 0
    assert (group["moves"]["stay"], group["moves"]["copies_removed"]) == (4, 2)
    standby_args = ["--config", "streams.num.standby.replicas=1"]
    group = single_group(dry_run(path, "--group", "words", "--json", *KIP, *topology_args, *standby_args))
    assert (group["moves"]["copies_stay"], group["moves"]["copies_removed"]) == (2, 0)


@pytest.mark.parametrize("by_group", [True, False])
def test_internal_topics_are_renamed_to_the_migrating_application(tmp_path: Path, by_group: bool) -> None:
    """The topology is that of a copy with another application.id, so its internal topics have other names."""
    topology = sent(
        sub("0", "lines", writes="copy-split-repartition"),
        sub("1", repartitioned="copy-split-repartition:2", state="copy-counts-changelog"),
    )
    source_topics = ["lines", "words-split-repartition"]
    ann = thread("ann", [("1", 0), ("1", 1)], topics=source_topics, reads="words-split-repartition")
    twin = topology_record("copy", record_value(topology))
    path = write(tmp_path / "data", (NOW, [record(ann, group="words", protocol="stream"), twin]))
    file = tmp_path / "copy.json"
    rows = [
        {"id": "0", "source_topics": ["lines"], "repartition_sink_topics": ["copy-split-repartition"]},
        {
            "id": "1", "repartition_source_topics": [{"name": "copy-split-repartition", "partitions": 2}],
            "state_changelog_topics": [{"name": "copy-counts-changelog", "partitions": 2}],
        },
    ]  # fmt: skip
    file.write_text(json.dumps([{"group": "copy", "topology": {"epoch": 0, "subtopologies": rows}}]))
    topology_args = ["--topology-of", "copy"] if by_group else ["--topology", str(file)]
    result = dry_run(path, "--group", "words", "--topic", "lines=2", "--json", *KIP, *topology_args)
    assert (result.code, codes(single_group(result))) == (0, [])
    assert (single_group(result)["moves"]["stay"], single_group(result)["moves"]["fresh"]) == (2, 2)
    assert "words-counts-changelog" in single_group(result)["notes"][-1]["reason"]


def test_mismatching_topology_blocks_the_migration(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(json.dumps(WORDS_TOPOLOGY).replace('"orders"', '"customers"'))
    path = write_streams_app(tmp_path / "data")
    args = ["--topology", str(file), "--topic", "customers=4"]
    result = dry_run(path, "--group", "words", "--explain", *KIP, *args)
    assert result.code == 1
    assert "blocked (tasks): " in result.out and "task 0_0 does not read orders-0" in result.out
    assert "blocked (topics): " in result.out


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"subtopologies": []}', '{"subtopologies": [{}]}', "3"])
def test_file_without_a_topology_is_a_usage_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "words.json"
    file.write_text(text)
    result = dry_run(write_streams_app(tmp_path / "data"), "--topology", str(file))
    assert result.code == 2 and "is not a topology" in result.err


# --- a cluster -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {"group.consumer.max.size": "2", "group.initial.rebalance.delay.ms": "0"}
    with running_broker(tmp_path_factory.mktemp("data"), settings) as running:
        running.create("orders", 1, 1, 1, 1)
        running.join("two", ["orders"], None, "i1")
        running.join("three", ["orders"], None, None, "i2")
        yield running


def test_check_uses_the_clusters_settings(broker: RunningBroker) -> None:
    result = call(broker, "migrate", "check", "two", "--json")
    group = single_group(result)
    assert result.code == 0
    assert (group["to"], len(group["members"]), group["moves"]["stay"]) == ("consumer", 2, 4)
    result = call(broker, "migrate", "check", "two", "three", "--json")
    assert result.code == 1
    assert [each["can_migrate"] for each in result.json] == [True, False]
    assert codes(result.json[1]) == ["size"]
    args = ["--config", "group.consumer.max.size=3"]
    assert call(broker, "migrate", "check", "three", *args).code == 0


def join_streams_member(broker: RunningBroker, group: str, metadata: bytes, assignment: bytes) -> None:
    """Join a member of assignor `stream` with this subscription and assignment."""

    async def job() -> None:
        async with Cluster(broker.address) as cluster:
            join = JoinGroupRequest(
                group_id=group, session_timeout_ms=45_000, rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=(JoinGroupRequestProtocol(name="stream", metadata=metadata),),
            )  # fmt: skip
            response = await cluster.ask_coordinator(group, join, lambda _: 0)
            if response.error_code == Errors.MEMBER_ID_REQUIRED:
                join = join.replace(member_id=response.member_id)
                response = await cluster.ask_coordinator(group, join, lambda _: 0)
            assert not response.error_code
            rows = (SyncGroupRequestAssignment(member_id=response.member_id, assignment=assignment),)
            sync = SyncGroupRequest(
                group_id=group, generation_id=response.generation_id, member_id=response.member_id,
                protocol_type="consumer", protocol_name="stream", assignments=rows,
            )  # fmt: skip
            assert not (await cluster.ask_coordinator(group, sync, lambda _: 0)).error_code

    broker.run(job())


def test_check_of_a_streams_app_uses_the_clusters_topics(broker: RunningBroker, tmp_path: Path) -> None:
    ann = thread("ann", [("0", p) for p in range(4)])
    join_streams_member(broker, "words", ann.subscription, ann.assignment)
    file = tmp_path / "words.json"
    file.write_text(json.dumps(WORDS_TOPOLOGY))
    check = ["migrate", "check", "words", "--json", *KIP]
    group = single_group(call(broker, *check))
    assert (group["to"], codes(group), codes(group, "notes")) == ("streams", [], ["no-topology"])
    assert group["members"][0]["has"] == ["0_0", "0_1", "0_2", "0_3"]
    result = call(broker, *check, "--topology", str(file))
    assert result.code == 1 and codes(single_group(result)) == ["not-ready"]
    broker.create("counts", 0, 0, 0, 0)
    result = call(broker, *check, "--topology", str(file))
    assert result.code == 0 and single_group(result)["moves"]["stay"] == 4
    assert codes(single_group(call(broker, *check[:-2], "--topology", str(file)))) == ["policy"]


def test_check_of_a_downgrade_in_a_cluster(broker: RunningBroker) -> None:
    async def job() -> str:
        async with Cluster(broker.address) as cluster:
            request = ConsumerGroupHeartbeatRequest(
                group_id="new", member_id="ann", member_epoch=0, rebalance_timeout_ms=60_000,
                subscribed_topic_names=("orders",), topic_partitions=(),
            )  # fmt: skip
            response = await cluster.ask_coordinator("new", request, lambda r: r.error_code)
            return str(response.member_id)

    member_id = broker.run(job())
    group = single_group(call(broker, "migrate", "check", "new", "--json"))
    assert (group["type"], group["to"], group["can_migrate"]) == ("consumer", "classic", True)
    assert [(each["member_id"], each["speaks"]) for each in group["members"]] == [(member_id, "consumer")]
    assert call(broker, "migrate", "check", "new", "--to", "streams").code == 2


def test_check_of_an_unknown_group_fails(broker: RunningBroker) -> None:
    result = call(broker, "migrate", "check", "nobody")
    assert result.code == 1 and "nobody" in result.err and "Traceback" not in result.err


# --- advice ----------------------------------------------------------------------------------------


def emitted_codes() -> set[str]:
    """Return the codes of all blockers and notes in the source."""
    files = ["migration/dry_run.py", "consumer/conversion.py", "streams/classic/conversion.py"]
    text = "".join((ROOT / "src/konvene/groups" / name).read_text() for name in files)
    return set(re.findall(r"\b(?:Blocker|Note)\(\s*\"([a-z-]+)\"", text))


def test_every_emitted_code_has_advice_and_no_other() -> None:
    assert len(emitted_codes()) > 20
    assert {row.code for row in ADVICE} == emitted_codes()
    pairs = [(to, row.code) for row in ADVICE for to in row.to]
    assert len(pairs) == len(set(pairs))


def test_settings_that_advice_names_exist() -> None:
    from konvene.configs.broker.table import BROKER
    from konvene.configs.group import GROUP

    of_clients = {
        "application.id", "group.protocol", "group.remote.assignor", "num.standby.replicas",
        "partition.assignment.strategy", "topology.optimization", "upgrade.from",
    }  # fmt: skip
    named = {
        name for row in ADVICE for name in re.findall(r"\b[a-z]+(?:\.[a-z]+)+\b", f"{row.what} {row.do}")
    }
    assert named - of_clients <= BROKER.keys() | GROUP.keys()
    assert len(named - of_clients) > 5


def test_explain_prints_all_advice() -> None:
    result = call(None, "migrate", "explain")
    assert result.code == 0
    for row in ADVICE:
        assert row.code in result.out and row.do in result.out
    assert ["3.2", "to", "4.4", "11", "cooperative"] in [line[:5] for line in result.lines]
    output = call(None, "migrate", "explain", "--json").json
    assert len(output["obstacles"]) == len(ADVICE)
    assert output["kafka_streams"]["releases"][-1]["version"] == 11
