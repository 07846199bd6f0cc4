"""`konvene groups history`: the audit told, or what the group's own records let one infer."""

from __future__ import annotations

from typing import Any

from tests.cli.commands import Said, call
from tests.client.scripted import ScriptedBroker
from tests.groups.history.logs import LOGS

from konvene.codec.batches import build_simple
from konvene.codec.hashes import group_partition
from konvene.codec.schema import Struct
from konvene.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from konvene.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from konvene.records.audit import Cause, RebalancedMember, RebalanceKey, RebalanceValue
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from konvene.records.consumer import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from konvene.records.coordinator import AUDIT_RECORDS, GROUP_RECORDS, Record, encode_record


def log(*batches: tuple[Struct, Struct | None], table: Any, at_ms: int = 1_700_000_000_000) -> bytes:
    pairs = [encode_record(Record(key, value), table) for key, value in batches]
    return b"".join(build_simple([pair], at_ms + i * 1_000, base_offset=i) for i, pair in enumerate(pairs))


def reading(topic: str, partition: int, data: bytes, end: int) -> dict[str, Any]:
    """Answers for one partition that holds `data` up to `end`; every other is empty."""

    def offsets(request: Any) -> ListOffsetsResponse:
        def at(t: Any, p: Any) -> int:
            return end if (t.name, p.partition_index, p.timestamp) == (topic, partition, -1) else 0

        return ListOffsetsResponse(
            topics=tuple(
                ListOffsetsTopicResponse(
                    name=t.name,
                    partitions=tuple(
                        ListOffsetsPartitionResponse(partition_index=p.partition_index, offset=at(t, p))
                        for p in t.partitions
                    ),
                )
                for t in request.topics
            )
        )

    def fetched(request: Any) -> FetchResponse:
        (t,) = request.topics
        row = PartitionData(partition_index=t.partitions[0].partition, records=data, high_watermark=end)
        return FetchResponse(
            responses=(FetchableTopicResponse(topic=t.topic, topic_id=t.topic_id, partitions=(row,)),)
        )

    return {"ListOffsets": offsets, "Fetch": fetched}


def rebalance(epoch: int, *causes: Cause) -> RebalanceValue:
    started = 1_700_000_000_000 + epoch * 10_000
    return RebalanceValue(
        group_type="classic", epoch=epoch, state="Stable", started_ms=started, joined_ms=started + 400,
        ended_ms=started + 2_500, partition=4, base_offset=epoch, last_offset=epoch, protocol="range",
        leader="ann-1", causes=causes,
        members=(RebalancedMember(member_id="ann-1", client_id="ann", client_host="/127.0.0.1"),),
    )  # fmt: skip


MEMBERS = {"ann": "CNzXjoxfQjiMAv1SZfTtzg", "bob": "gn7sQD_CREuykd1-UmRcvw"}
"""Of the streams group `wordcount` in Kafka's log, by their clients."""

JOINED = Cause(
    kind="member-joined", at_ms=1_700_000_010_000, member_id="ann-1", client_id="ann",
    client_host="/127.0.0.1", reason="fresh start",
)  # fmt: skip
LEFT = Cause(kind="member-left", member_id="bob-1", client_id="bob", client_host="/127.0.0.1")


def with_audit() -> ScriptedBroker:
    data = log(
        (RebalanceKey(group="billing"), rebalance(2, LEFT)),
        (RebalanceKey(group="other"), rebalance(1, LEFT)),
        (RebalanceKey(group="billing"), rebalance(1, JOINED)),
        table=AUDIT_RECORDS,
    )
    broker = ScriptedBroker(**reading("__konvene_audit", 1, data, 3))
    broker.answers["Metadata"] = [broker.metadata(__konvene_audit=2, __consumer_offsets=8)]
    return broker


def test_the_audit_is_told_in_the_order_of_time() -> None:
    with with_audit() as broker:
        said = call(broker, "groups", "history", "--group", "billing")
        last = call(broker, "groups", "history", "--group", "billing", "--limit", "1").lines
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[1:] == [
        "1           2023-11-14 22:13:32.500  Stable  2.5 s     1         range     ann-1",
        "    member-joined: ann-1 (client ann at /127.0.0.1) joined; reason: fresh start",
        "2           2023-11-14 22:13:42.500  Stable  2.5 s     1         range     ann-1",
        "    member-left: bob-1 (client bob at /127.0.0.1) left",
    ]
    assert [line[0] for line in last] == ["GENERATION", "2", "member-left:"]


def test_the_audit_as_a_document_has_null_for_what_is_not_known() -> None:
    with with_audit() as broker:
        (first, _) = call(broker, "groups", "history", "--group", "billing", "--json").json
    assert first == {
        "group": "billing", "group_type": "classic", "generation": 1, "state": "Stable",
        "started_ms": 1_700_000_010_000, "joined_ms": 1_700_000_010_400, "ended_ms": 1_700_000_012_500,
        "duration_ms": 2_500, "partition": 4, "base_offset": 1, "last_offset": 1, "inferred": False,
        "protocol": "range", "leader": "ann-1",
        "causes": [
            {"kind": "member-joined", "at_ms": 1_700_000_010_000, "member_id": "ann-1", "instance_id": None,
             "client_id": "ann", "client_host": "/127.0.0.1", "reason": "fresh start", "topic": None},
        ],
        "tasks_moved": None,
        "causes_left_out": 0,
        "members_left_out": 0,
        "members": [
            {"member_id": "ann-1", "instance_id": None, "client_id": "ann", "client_host": "/127.0.0.1",
             "joined_ms": None},
        ],
    }  # fmt: skip


def test_epochs_are_told_when_they_begin_and_when_all_have_come_to_them() -> None:
    """Beside the generations of a group that was a classic one before."""
    begun = rebalance(3, JOINED).replace(
        group_type="consumer", state="Assigning", members=(), protocol=None, leader=None
    )
    key = RebalanceKey(group="billing")
    rows = [(key, begun), (key, begun.replace(state="Stable", epoch=3, started_ms=begun.ended_ms - 900,
            members=rebalance(3).members, protocol="uniform"))]  # fmt: skip

    def told(*rows: tuple[Struct, Struct]) -> tuple[Said, Any]:
        with ScriptedBroker(
            **reading("__konvene_audit", 0, log(*rows, table=AUDIT_RECORDS), len(rows))
        ) as broker:
            broker.answers["Metadata"] = [broker.metadata(__konvene_audit=1, __consumer_offsets=8)]
            words = ("groups", "history", "--group", "billing")
            return call(broker, *words), call(broker, *words, "--json").json

    said, document = told(*rows)
    assert said.out.splitlines()[0].split() == [
        "EPOCH", "ENDED", "(UTC)", "STATE", "DURATION", "#MEMBERS", "PROTOCOL",
    ]  # fmt: skip
    assert [line[3:] for line in said.lines if line[0] == "3"] == [
        ["Assigning", "-", "-", "-"], ["Stable", "900", "ms", "1", "uniform"],
    ]  # fmt: skip
    assert [(row.get("generation"), row["epoch"], row["duration_ms"]) for row in document] == [
        (None, 3, None), (None, 3, 900),
    ]  # fmt: skip
    mixed, _ = told((key, rebalance(2, LEFT)), *rows)
    assert mixed.lines[0][0] == "GENERATION/EPOCH"
    assert [line[-2:] for line in mixed.lines if line[0] in ("GENERATION/EPOCH", "2", "3")] == [
        ["LEADER", "TYPE"], ["ann-1", "classic"], ["-", "consumer"], ["-", "consumer"],
    ]  # fmt: skip


def test_without_an_audit_the_past_of_a_consumer_group_is_inferred_too() -> None:
    ann = ConsumerGroupMemberMetadataValue(
        client_id="ann", client_host="/127.0.0.1", subscribed_topic_names=("orders",)
    )
    g = {"group_id": "billing"}
    data = log(
        (ConsumerGroupMemberMetadataKey(**g, member_id="m-1"), ann),
        (ConsumerGroupMetadataKey(**g), ConsumerGroupMetadataValue(epoch=2)),
        table=GROUP_RECORDS,
    )
    partition = group_partition("billing", 8)
    with ScriptedBroker(**reading("__consumer_offsets", partition, data, 2)) as broker:
        broker.answers["Metadata"] = [broker.metadata(__consumer_offsets=8)]
        said = call(broker, "groups", "history", "--group", "billing")
    assert said.out.splitlines()[0].startswith("EPOCH")
    assert said.lines[1][0] == "2" and said.lines[1][3] == "Assigning"


def test_without_an_audit_the_past_is_inferred_from_the_groups_own_records() -> None:
    ann = MemberMetadata(member_id="ann-1", client_id="ann", client_host="/127.0.0.1")
    key = GroupMetadataKey(group="billing")
    value = GroupMetadataValue(protocol_type="consumer", protocol="range", leader="ann-1")
    data = log(
        (key, value.replace(generation=1, members=(ann,))),
        (GroupMetadataKey(group="other"), value.replace(generation=9, members=(ann,))),
        (key, value.replace(generation=2, protocol=None, leader=None)),
        (key, None),
        table=GROUP_RECORDS,
    )
    partition = group_partition("billing", 8)
    with ScriptedBroker(**reading("__consumer_offsets", partition, data, 4)) as broker:
        broker.answers["Metadata"] = [broker.metadata(__consumer_offsets=8)]
        said = call(broker, "groups", "history", "--group", "billing")
        nobody = call(broker, "groups", "history", "--group", "nobody")
    assert said.err == f"The cluster has no audit topic: inferred from __consumer_offsets-{partition}.\n"
    assert said.out.splitlines()[1:] == [
        "1           2023-11-14 22:13:20.000  Stable  -         1         range     ann-1",
        "    member-joined: ann-1 (client ann at /127.0.0.1) joined",
        "2           2023-11-14 22:13:22.000  Empty   -         0         -         -",
        "    member-gone: ann-1 (client ann at /127.0.0.1) left, or was removed",
    ]
    assert nobody == (
        1,
        "",
        "konvene: no rebalance of group nobody is recorded\n"
        "  `konvene groups list` shows the existing groups.\n",
    )


def test_the_past_of_a_streams_group_is_inferred_from_kafkas_own_log() -> None:
    """Its epochs with their causes, how many tasks moved, who came last; that topics were missing."""
    data = (LOGS / "streams" / "__consumer_offsets-1" / f"{0:020d}.log").read_bytes()
    with ScriptedBroker(**reading("__consumer_offsets", 1, data, 120)) as broker:
        broker.answers["Metadata"] = [broker.metadata(__consumer_offsets=2)]
        said = call(broker, "groups", "history", "--group", "wordcount")
        rows = call(broker, "groups", "history", "--group", "wordcount", "--json").json
    assert said.err == "The cluster has no audit topic: inferred from __consumer_offsets-1.\n"
    lines = said.out.splitlines()
    member = {who: f"{m} (client {who}-StreamThread-1-consumer at /127.0.0.1)" for who, m in MEMBERS.items()}
    assert lines[0].split() == ["EPOCH", "ENDED", "(UTC)", "STATE", "DURATION", "#MEMBERS", "PROTOCOL"]
    assert lines[1:11] == [
        "2      2026-11-21 02:24:41.430  Assigning  -         -         -",
        f"    member-joined: {member['ann']} joined",
        f"    topology-initialized: {member['ann']} sent the application's topology",
        "2      2026-11-21 02:24:46.805  NotReady   5.4 s     1         -",
        f"    member-joined: {member['ann']} joined",
        f"    topology-initialized: {member['ann']} sent the application's topology",
        "    tasks moved: none",
        "3      2026-11-21 02:24:50.238  Assigning  -         -         -",
        "    topic-metadata-changed: the group's topics changed",
        "    topology-ready: all topics of the topology exist",
    ]
    at = lines.index("6      2026-11-21 02:27:04.178  Stable     3.4 s     2         -")
    assert lines[at + 1 : at + 4] == [
        f"    member-joined: {member['bob']} joined",
        "    tasks moved: 3 active, 3 standby",
        f"    slow to converge: {member['bob']} converged last, 3.4 s after the new target assignment",
    ]
    stable = [row for row in rows if row["state"] == "Stable"]
    assert [(row["epoch"], row["tasks_moved"]["standby"]) for row in stable] == [
        (3, 0), (4, 3), (5, 0), (6, 3), (7, 0),
    ]  # fmt: skip
    assert {row["group_type"] for row in rows} == {"streams"}


def test_the_past_of_a_share_group_is_inferred_from_kafkas_own_log() -> None:
    """Its epochs with their causes, and when its members had what had begun."""
    data = (LOGS / "share" / "__consumer_offsets-0" / f"{0:020d}.log").read_bytes()
    with ScriptedBroker(**reading("__consumer_offsets", 0, data, 59)) as broker:
        broker.answers["Metadata"] = [broker.metadata(__consumer_offsets=1)]
        said = call(broker, "groups", "history", "--group", "late")
    assert said.err == "The cluster has no audit topic: inferred from __consumer_offsets-0.\n"
    lou = "7hiqeVLYTu-5tiAHpEDI6w (client lou at /127.0.0.1)"
    assert said.out.splitlines()[1:] == [
        "2      2026-11-21 02:21:09.511  Assigning  -         -         -",
        f"    member-joined: {lou} joined",
        "2      2026-11-21 02:21:09.511  Stable     0 ms      1         -",
        f"    member-joined: {lou} joined",
        "3      2026-11-21 02:21:09.764  Assigning  -         -         -",
        "    share-partitions-initialized: share partitions were initialized or deleted",
        "3      2026-11-21 02:21:10.763  Stable     999 ms    1         -",
        "    share-partitions-initialized: share partitions were initialized or deleted",
        "4      2026-11-21 02:21:14.902  Empty      -         0         -",
        f"    member-gone: {lou} left, or was removed",
    ]


def test_a_cluster_that_never_had_a_group_says_so() -> None:
    with ScriptedBroker() as broker:
        broker.answers["Metadata"] = [broker.metadata()]
        said = call(broker, "groups", "history", "--group", "billing")
        assert call(broker, "groups", "history", "--group", "billing", "--json").json == []
    assert said.err.startswith(
        "konvene: no rebalance of group billing is recorded: the cluster has never had a group\n"
    )
