"""`konvene migrate`: on logs of Kafka and of ours, against a broker, and what it says of what it finds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import Said, Serving, call, serving
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
WORDS = {
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
    """A data directory with these batches at these times in a partition of the coordinator's log, and with so
    many folders of `orders`."""
    directory = LogDirectory.open(RealDisk(), str(path), Identity("clusterA", 1, "dirA"))
    place = TopicPartition("__consumer_offsets", partition)
    others = [TopicPartition("orders", number) for number in range(orders)]
    log, *_ = directory.create([place, *others], LogConfig(), NOW)
    for at_ms, records in batches:
        log.append_built([encode_group_record(each) for each in records], 0, at_ms)
    log.sync()
    directory.close(clean=True)
    return path


def rehearse(path: Path, *words: str) -> Said:
    return call(None, "migrate", "dry-run", str(path), *words)


def one(said: Said) -> dict[str, Any]:
    (found,) = said.json
    return dict(found)


def codes(found: dict[str, Any], kind: str = "blockers") -> list[str]:
    return [each["code"] for each in found[kind]]


# --- Kafka's logs ----------------------------------------------------------------------------------


def test_groups_of_kafkas_log_are_rehearsed() -> None:
    said = rehearse(VECTORS / "classic", "--json")
    assert said.code == 0
    found = {each["group"]: each for each in said.json}
    assert {"alive", "alive-coop", "billing"} <= found.keys()
    assert all(each["can_migrate"] and each["to"] == "consumer" for each in found.values())
    moves = found["alive"]["moves"]
    has = [len(each["has"]) for each in found["alive"]["members"]]
    would = [len(each["target"]) for each in found["alive"]["members"]]
    assert sorted(has) == [3, 7] and sorted(would) == [5, 5]
    assert (moves["stay"], moves["move"], moves["fresh"], moves["lost"]) == (8, 2, 0, 0)
    assert codes(found["billing"], "notes") == ["empty"]


def test_kafkas_streams_group_has_nobody_of_the_classic_protocol() -> None:
    assert rehearse(VECTORS / "streams", "--json").json == []
    found = one(rehearse(VECTORS / "streams", "--group", "alive", "--json", *KIP))
    assert {each["speaks"] for each in found["members"]} == {"streams"}
    assert codes(found, "notes") == ["nobody-classic"]


def test_the_way_back_of_a_mixed_group_of_kafka() -> None:
    words = ["--group", "alive-mixed", "--json"]
    found = one(rehearse(VECTORS / "consumer", *words))
    assert (found["to"], found["can_migrate"], codes(found, "notes")) == ("classic", True, ["still-new"])
    said = rehearse(VECTORS / "consumer", *words, "--config", "group.consumer.migration.policy=upgrade")
    assert said.code == 1 and codes(one(said)) == ["policy"]


# --- logs of ours ----------------------------------------------------------------------------------


def plain(path: Path) -> Path:
    early = record(consumer("ann", [0, 1, 2, 3]), group="g", generation=1)
    late = record(consumer("ann", [0, 1]), consumer("bob", [2, 3], instance_id="i1"), group="g", generation=2)
    bad = record(member("eve", b"\xff", b""), group="odd")
    other = record(member("worker", b"\0", b""), group="connect-1", protocol_type="connect")
    return write(path, (NOW, [early]), (NOW + 1_000, [late, bad, other]), orders=4)


def test_what_blocks_is_told_with_who_and_what_to_do(tmp_path: Path) -> None:
    said = rehearse(plain(tmp_path), "--explain")
    assert said.code == 1
    assert "Skipped 1 groups whose members are not consumers" in said.err
    assert "1 of 2 groups can migrate." in said.err
    rows = {line.split()[0]: line.split() for line in said.out.splitlines() if not line.startswith(" ")}
    assert rows["g"][2:] == ["consumer", "2", "range", "yes", "4", "0", "0", "0"]
    assert rows["odd"][5] == "NO"
    advice = advice_for("consumer", "malformed")
    assert advice is not None
    assert f"-> {advice.do}" in said.out
    assert "blocked (malformed): the embedded consumer protocol is malformed. [eve at /10.0.0.1]" in said.out


def test_a_group_is_told_as_it_was_then(tmp_path: Path) -> None:
    plain(tmp_path)
    words = ["--group", "g", "--json"]
    now, then = one(rehearse(tmp_path, *words)), one(rehearse(tmp_path, *words, "--at", str(NOW)))
    assert (now["epoch"], len(now["members"])) == (2, 2)
    assert (then["epoch"], len(then["members"])) == (1, 1)
    assert rehearse(tmp_path, *words, "--at", "soon").code == 2


def test_topics_are_as_large_as_the_logs_tell_or_as_somebody_says(tmp_path: Path) -> None:
    """By their folders, by assignments, and by what is said."""
    (only,) = [write(tmp_path / "a", (NOW, [record(consumer("ann", [0]))]), orders=3)]
    segment = next((only / "__consumer_offsets-0").glob("*.log"))
    for path, words, fresh in (
        (only, (), 2),
        (only / "__consumer_offsets-0", (), 0),
        (segment, (), 0),
        (only, ("--topic", "orders=12"), 11),
    ):
        assert one(rehearse(path, "--json", *words))["moves"]["fresh"] == fresh


def test_of_copies_the_one_that_reaches_further_counts(tmp_path: Path) -> None:
    old = write(tmp_path / "a", (NOW, [record(consumer("ann", [0]))]))
    new = write(tmp_path / "b", (NOW, [record(consumer("ann", [0]))]), (NOW, [record(consumer("bob", [0]))]))
    for paths in ((old, new), (new, old)):
        said = call(None, "migrate", "dry-run", *map(str, paths), "--json")
        assert [each["member_id"] for each in one(said)["members"]] == ["bob"]


def test_a_table_of_members_says_what_each_would_have(tmp_path: Path) -> None:
    write(tmp_path, (NOW, [record(consumer("ann", [0, 1, 2, 3]), consumer("bob", []))]))
    said = rehearse(tmp_path, "--members")
    assert ["g", "ann", "client-ann", "/10.0.0.1", "classic", "4", "2", "(-2)"] in said.lines
    assert ["g", "bob", "client-bob", "/10.0.0.1", "classic", "0", "2", "(+2)"] in said.lines


def test_damage_is_told_and_nothing_is_called_sound(tmp_path: Path) -> None:
    plain(tmp_path)
    segment = next((tmp_path / "__consumer_offsets-0").glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[-5] ^= 0xFF
    segment.write_bytes(data)
    said = rehearse(tmp_path, "--group", "g", "--json")
    assert said.code == 1
    assert "damaged" in said.err
    assert one(said)["epoch"] == 1


@pytest.mark.parametrize(
    ("words", "why"),
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
def test_bad_usage_is_exit_code_2_and_says_why(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    said = rehearse(plain(tmp_path), *words)
    assert said.code == 2 and why in said.err


def test_where_no_coordinators_log_is_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    said = rehearse(tmp_path)
    assert said.code == 2 and "__consumer_offsets" in said.err


# --- applications of Kafka Streams -----------------------------------------------------------------


def words(path: Path) -> Path:
    """The application `words`, and its twin `other`, which speaks the streams protocol already."""
    ann = thread("ann", [("0", 0), ("0", 1)], [("0", 2)])
    bob = thread("bob", [("0", 2), ("0", 3)], [("0", 0)])
    twin = topology_record("other", record_value(sent(sub("0", "orders", state="counts"))))
    return write(path, (NOW, [record(ann, bob, group="words", protocol="stream"), twin]), orders=4)


def test_an_application_is_told_with_what_a_log_has_of_it(tmp_path: Path) -> None:
    said = rehearse(words(tmp_path), "--group", "words", "--json")
    found = one(said)
    assert said.code == 1
    assert (found["to"], codes(found), found["moves"]) == ("streams", ["policy"], None)
    assert codes(found, "notes") == ["standbys", "no-topology"]
    assert [(each["has"], each["version"]) for each in found["members"]] == [
        (["0_0", "0_1"], 11),
        (["0_2", "0_3"], 11),
    ]


@pytest.mark.parametrize("case", ["ours", "kafka's", "group"])
def test_with_a_topology_the_assignor_is_asked(tmp_path: Path, case: str) -> None:
    file = tmp_path / "words.json"
    kafka = {
        "subtopologies": [
            {"subtopologyId": "0", "sourceTopics": ["orders"], "stateChangelogTopics": [{"name": "counts"}]}
        ]
    }
    file.write_text(json.dumps([WORDS] if case == "ours" else kafka))
    told = ["--topology-of", "other"] if case == "group" else ["--topology", str(file)]
    path = words(tmp_path / "data")
    said = rehearse(path, "--group", "words", "--json", *KIP, *told)
    found = one(said)
    assert said.code == 0
    assert (found["moves"]["stay"], found["moves"]["copies_removed"]) == (4, 2)
    kept = ["--config", "streams.num.standby.replicas=1"]
    found = one(rehearse(path, "--group", "words", "--json", *KIP, *told, *kept))
    assert (found["moves"]["copies_stay"], found["moves"]["copies_removed"]) == (2, 0)


@pytest.mark.parametrize("by_group", [True, False])
def test_internal_topics_are_named_after_the_group_that_is_rehearsed(tmp_path: Path, by_group: bool) -> None:
    """The topology of a copy under another application.id: internal topics have other names."""
    topology = sent(
        sub("0", "lines", writes="copy-split-repartition"),
        sub("1", repartitioned="copy-split-repartition:2", state="copy-counts-changelog"),
    )
    reads = ["lines", "words-split-repartition"]
    ann = thread("ann", [("1", 0), ("1", 1)], topics=reads, reads="words-split-repartition")
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
    told = ["--topology-of", "copy"] if by_group else ["--topology", str(file)]
    said = rehearse(path, "--group", "words", "--topic", "lines=2", "--json", *KIP, *told)
    assert (said.code, codes(one(said))) == (0, [])
    assert (one(said)["moves"]["stay"], one(said)["moves"]["fresh"]) == (2, 2)
    assert "words-counts-changelog" in one(said)["notes"][-1]["reason"]


def test_another_topology_stands_in_the_way(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(json.dumps(WORDS).replace('"orders"', '"customers"'))
    path = words(tmp_path / "data")
    more = ["--topology", str(file), "--topic", "customers=4"]
    said = rehearse(path, "--group", "words", "--explain", *KIP, *more)
    assert said.code == 1
    assert "blocked (tasks): " in said.out and "task 0_0 does not read orders-0" in said.out
    assert "blocked (topics): " in said.out


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"subtopologies": []}', '{"subtopologies": [{}]}', "3"])
def test_a_file_without_a_topology_is_bad_usage(tmp_path: Path, text: str) -> None:
    file = tmp_path / "words.json"
    file.write_text(text)
    said = rehearse(words(tmp_path / "data"), "--topology", str(file))
    assert said.code == 2 and "is not a topology" in said.err


# --- a cluster -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    settings = {"group.consumer.max.size": "2", "group.initial.rebalance.delay.ms": "0"}
    with serving(tmp_path_factory.mktemp("data"), settings) as found:
        found.create("orders", 1, 1, 1, 1)
        found.join("two", ["orders"], None, "i1")
        found.join("three", ["orders"], None, None, "i2")
        yield found


def test_a_group_of_a_cluster_is_checked_with_the_clusters_settings(broker: Serving) -> None:
    said = call(broker, "migrate", "check", "two", "--json")
    found = one(said)
    assert said.code == 0
    assert (found["to"], len(found["members"]), found["moves"]["stay"]) == ("consumer", 2, 4)
    said = call(broker, "migrate", "check", "two", "three", "--json")
    assert said.code == 1
    assert [each["can_migrate"] for each in said.json] == [True, False]
    assert codes(said.json[1]) == ["size"]
    more = ["--config", "group.consumer.max.size=3"]
    assert call(broker, "migrate", "check", "three", *more).code == 0


def joined(broker: Serving, group: str, metadata: bytes, assignment: bytes) -> None:
    """A member that says and is given these bytes, with the assignor of Kafka Streams."""

    async def job() -> None:
        async with Cluster(broker.address) as cluster:
            join = JoinGroupRequest(
                group_id=group, session_timeout_ms=45_000, rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=(JoinGroupRequestProtocol(name="stream", metadata=metadata),),
            )  # fmt: skip
            told = await cluster.ask_coordinator(group, join, lambda _: 0)
            if told.error_code == Errors.MEMBER_ID_REQUIRED:
                join = join.replace(member_id=told.member_id)
                told = await cluster.ask_coordinator(group, join, lambda _: 0)
            assert not told.error_code
            rows = (SyncGroupRequestAssignment(member_id=told.member_id, assignment=assignment),)
            sync = SyncGroupRequest(
                group_id=group, generation_id=told.generation_id, member_id=told.member_id,
                protocol_type="consumer", protocol_name="stream", assignments=rows,
            )  # fmt: skip
            assert not (await cluster.ask_coordinator(group, sync, lambda _: 0)).error_code

    broker.run(job())


def test_an_application_of_a_cluster_is_held_against_the_topics_there_are(
    broker: Serving, tmp_path: Path
) -> None:
    ann = thread("ann", [("0", p) for p in range(4)])
    joined(broker, "words", ann.subscription, ann.assignment)
    file = tmp_path / "words.json"
    file.write_text(json.dumps(WORDS))
    check = ["migrate", "check", "words", "--json", *KIP]
    found = one(call(broker, *check))
    assert (found["to"], codes(found), codes(found, "notes")) == ("streams", [], ["no-topology"])
    assert found["members"][0]["has"] == ["0_0", "0_1", "0_2", "0_3"]
    said = call(broker, *check, "--topology", str(file))
    assert said.code == 1 and codes(one(said)) == ["not-ready"]
    broker.create("counts", 0, 0, 0, 0)
    said = call(broker, *check, "--topology", str(file))
    assert said.code == 0 and one(said)["moves"]["stay"] == 4
    assert codes(one(call(broker, *check[:-2], "--topology", str(file)))) == ["policy"]


def test_the_way_back_of_a_clusters_consumer_group(broker: Serving) -> None:
    async def job() -> str:
        async with Cluster(broker.address) as cluster:
            request = ConsumerGroupHeartbeatRequest(
                group_id="new", member_id="ann", member_epoch=0, rebalance_timeout_ms=60_000,
                subscribed_topic_names=("orders",), topic_partitions=(),
            )  # fmt: skip
            answer = await cluster.ask_coordinator("new", request, lambda a: a.error_code)
            return str(answer.member_id)

    name = broker.run(job())
    found = one(call(broker, "migrate", "check", "new", "--json"))
    assert (found["type"], found["to"], found["can_migrate"]) == ("consumer", "classic", True)
    assert [(each["member_id"], each["speaks"]) for each in found["members"]] == [(name, "consumer")]
    assert call(broker, "migrate", "check", "new", "--to", "streams").code == 2


def test_what_is_no_group_is_told(broker: Serving) -> None:
    said = call(broker, "migrate", "check", "nobody")
    assert said.code == 1 and "nobody" in said.err and "Traceback" not in said.err


# --- what to do ------------------------------------------------------------------------------------


def told_codes() -> set[str]:
    """All codes that are told anywhere."""
    files = ["migration/dry_run.py", "consumer/conversion.py", "streams/classic/conversion.py"]
    text = "".join((ROOT / "src/konvene/groups" / name).read_text() for name in files)
    return set(re.findall(r"\b(?:Blocker|Note)\(\s*\"([a-z-]+)\"", text))


def test_there_is_advice_for_all_that_is_told_and_for_nothing_else() -> None:
    assert len(told_codes()) > 20
    assert {row.code for row in ADVICE} == told_codes()
    places = [(to, row.code) for row in ADVICE for to in row.to]
    assert len(places) == len(set(places))


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


def test_all_that_can_stand_in_the_way_is_printed() -> None:
    said = call(None, "migrate", "explain")
    assert said.code == 0
    for row in ADVICE:
        assert row.code in said.out and row.do in said.out
    assert ["3.2", "to", "4.4", "11", "cooperative"] in [line[:5] for line in said.lines]
    told = call(None, "migrate", "explain", "--json").json
    assert len(told["obstacles"]) == len(ADVICE)
    assert told["kafka_streams"]["releases"][-1]["version"] == 11
