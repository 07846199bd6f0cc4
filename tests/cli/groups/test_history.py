"""`konvene groups history`: from the audit topic, or inferred from the group's own records."""

from __future__ import annotations

from typing import Any

from tests.cli.commands import CommandResult, call
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


def encode_log(*batches: tuple[Struct, Struct | None], table: Any, at_ms: int = 1_700_000_000_000) -> bytes:
    pairs = [encode_record(Record(key, value), table) for key, value in batches]
    return b"".join(build_simple([pair], at_ms + i * 1_000, base_offset=i) for i, pair in enumerate(pairs))


def partition_answers(topic: str, partition: int, data: bytes, end: int) -> dict[str, Any]:
    """Answer ListOffsets and Fetch for one partition that holds `data` up to `end`; all others are empty."""

    def list_offsets(request: Any) -> ListOffsetsResponse:
        def offset_of(t: Any, p: Any) -> int:
            return end if (t.name, p.partition_index, p.timestamp) == (topic, partition, -1) else 0

        return ListOffsetsResponse(
            topics=tuple(
                ListOffsetsTopicResponse(
                    name=t.name,
                    partitions=tuple(
                        ListOffsetsPartitionResponse(
                            partition_index=p.partition_index, offset=offset_of(t, p)
                        )
                        for p in t.partitions
                    ),
                )
                for t in request.topics
            )
        )

    def fetch(request: Any) -> FetchResponse:
        (t,) = request.topics
        row = PartitionData(partition_index=t.partitions[0].partition, records=data, high_watermark=end)
        return FetchResponse(
            responses=(FetchableTopicResponse(topic=t.topic, topic_id=t.topic_id, partitions=(row,)),)
        )

    return {"ListOffsets": list_offsets, "Fetch": fetch}


def rebalance(epoch: int, *causes: Cause) -> RebalanceValue:
    started = 1_700_000_000_000 + epoch * 10_000
    return RebalanceValue(
        group_type="classic", epoch=epoch, state="Stable", started_ms=started, joined_ms=started + 400,
        ended_ms=started + 2_500, partition=4, base_offset=epoch, last_offset=epoch, protocol="range",
        leader="ann-1", causes=causes,
        members=(RebalancedMember(member_id="ann-1", client_id="ann", client_host="/127.0.0.1"),),
    )  # fmt: skip


MEMBERS = {"ann": "CNzXjoxfQjiMAv1SZfTtzg", "bob": "gn7sQD_CREuykd1-UmRcvw"}
"""Member ids of the streams group `wordcount` in Kafka's log, by client."""

JOINED = Cause(
    kind="member-joined", at_ms=1_700_000_010_000, member_id="ann-1", client_id="ann",
    client_host="/127.0.0.1", reason="fresh start",
)  # fmt: skip
LEFT = Cause(kind="member-left", member_id="bob-1", client_id="bob", client_host="/127.0.0.1")


def audit_broker() -> ScriptedBroker:
    data = encode_log(
        (RebalanceKey(group="billing"), rebalance(2, LEFT)),
        (RebalanceKey(group="other"), rebalance(1, LEFT)),
        (RebalanceKey(group="billing"), rebalance(1, JOINED)),
        table=AUDIT_RECORDS,
    )
    broker = ScriptedBroker(**partition_answers("__konvene_audit", 1, data, 3))
    broker.answers["Metadata"] = [broker.metadata(__konvene_audit=2, __consumer_offsets=8)]
    return broker


def test_audit_is_printed_in_order_of_time() -> None:
    with audit_broker() as broker:
        result = call(broker, "groups", "history", "--group", "billing")
        last = call(broker, "groups", "history", "--group", "billing", "--limit", "1").lines
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[1:] == [
        "1           2023-11-14 22:13:32.500  Stable  2.5 s     1         range     ann-1",
        "    member-joined: ann-1 (client ann at /127.0.0.1) joined; reason: fresh start",
        "2           2023-11-14 22:13:42.500  Stable  2.5 s     1         range     ann-1",
        "    member-left: bob-1 (client bob at /127.0.0.1) left",
    ]
    assert [line[0] for line in last] == ["GENERATION", "2", "member-left:"]


def test_json_of_the_audit_has_null_for_unknown_fields() -> None:
    with audit_broker() as broker:
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


def test_epochs_have_a_row_at_start_and_at_convergence() -> None:
    """The group was a classic one before, so generations are listed as well."""
    assigning = rebalance(3, JOINED).replace(
        group_type="consumer", state="Assigning", members=(), protocol=None, leader=None
    )
    key = RebalanceKey(group="billing")
    stable = assigning.replace(
        state="Stable", epoch=3, started_ms=assigning.ended_ms - 900, members=rebalance(3).members,
        protocol="uniform",
    )  # fmt: skip
    rows = [(key, assigning), (key, stable)]

    def history(*rows: tuple[Struct, Struct]) -> tuple[CommandResult, Any]:
        with ScriptedBroker(
            **partition_answers("__konvene_audit", 0, encode_log(*rows, table=AUDIT_RECORDS), len(rows))
        ) as broker:
            broker.answers["Metadata"] = [broker.metadata(__konvene_audit=1, __consumer_offsets=8)]
            args = ("groups", "history", "--group", "billing")
            return call(broker, *args), call(broker, *args, "--json").json

    result, document = history(*rows)
    assert result.out.splitlines()[0].split() == [
        "EPOCH", "ENDED", "(UTC)", "STATE", "DURATION", "#MEMBERS", "PROTOCOL",
    ]  # fmt: skip
    assert [line[3:] for line in result.lines if line[0] == "3"] == [
        ["Assigning", "-", "-", "-"], ["Stable", "900", "ms", "1", "uniform"],
    ]  # fmt: skip
    assert [(row.get("generation"), row["epoch"], row["duration_ms"]) for row in document] == [
        (None, 3, None), (None, 3, 900),
    ]  # fmt: skip
    mixed, _ = history((key, rebalance(2, LEFT)), *rows)
    assert mixed.lines[0][0] == "GENERATION/EPOCH"
    assert [line[-2:] for line in mixed.lines if line[0] in ("GENERATION/EPOCH", "2", "3")] == [
        ["LEADER", "TYPE"], ["ann-1", "classic"], ["-", "consumer"], ["-", "consumer"],
    ]  # fmt: skip


def test_history_of_a_consumer_group_is_inferred_without_an_audit() -> None:
    ann = ConsumerGroupMemberMetadataValue(
        client_id="ann", client_host="/127.0.0.1", subscribed_topic_names=("orders",)
    )
    g = {"group_id": "billing"}
    data = encode_log(
        (ConsumerGroupMemberMetadataKey(**g, member_id="m-1"), ann),
        (ConsumerGroupMetadataKey(**g), ConsumerGroupMetadataValue(epoch=2)),
        table=GROUP_RECORDS,
    )
    partition = group_partition("billing", 8)
    with ScriptedBroker(**partition_answers("__consumer_offsets", partition, data, 2)) as broker:
        broker.answers["Metadata"] = [broker.metadata(__consumer_offsets=8)]
        result = call(broker, "groups", "history", "--group", "billing")
    assert result.out.splitlines()[0].startswith("EPOCH")
    assert result.lines[1][0] == "2" and result.lines[1][3] == "Assigning"


def test_history_of_a_classic_group_is_inferred_without_an_audit() -> None:
    ann = MemberMetadata(member_id="ann-1", client_id="ann", client_host="/127.0.0.1")
    key = GroupMetadataKey(group="billing")
    value = GroupMetadataValue(protocol_type="consumer", protocol="range", leader="ann-1")
    data = encode_log(
        (key, value.replace(generation=1, members=(ann,))),
        (GroupMetadataKey(group="other"), value.replace(generation=9, members=(ann,))),
        (key, value.replace(generation=2, protocol=None, leader=None)),
        (key, None),
        table=GROUP_RECORDS,
    )
    partition = group_partition("billing", 8)
    with ScriptedBroker(**partition_answers("__consumer_offsets", partition, data, 4)) as broker:
        broker.answers["Metadata"] = [broker.metadata(__consumer_offsets=8)]
        result = call(broker, "groups", "history", "--group", "billing")
        unknown = call(broker, "groups", "history", "--group", "nobody")
    assert result.err == f"The cluster has no audit topic: inferred from __consumer_offsets-{partition}.\n"
    assert result.out.splitlines()[1:] == [
        "1           2023-11-14 22:13:20.000  Stable  -         1         range     ann-1",
        "    member-joined: ann-1 (client ann at /127.0.0.1) joined",
        "2           2023-11-14 22:13:22.000  Empty   -         0         -         -",
        "    member-gone: ann-1 (client ann at /127.0.0.1) left, or was removed",
    ]
    assert unknown == (
        1,
        "",
        "konvene: no rebalance of group nobody is recorded\n"
        "  `konvene groups list` shows the existing groups.\n",
    )


def test_history_of_a_streams_group_is_inferred_from_kafkas_log() -> None:
    """Epochs with causes, numbers of moved tasks, the last member to converge, and missing topics."""
    data = (LOGS / "streams" / "__consumer_offsets-1" / f"{0:020d}.log").read_bytes()
    with ScriptedBroker(**partition_answers("__consumer_offsets", 1, data, 120)) as broker:
        broker.answers["Metadata"] = [broker.metadata(__consumer_offsets=2)]
        result = call(broker, "groups", "history", "--group", "wordcount")
        rows = call(broker, "groups", "history", "--group", "wordcount", "--json").json
    assert result.err == "The cluster has no audit topic: inferred from __consumer_offsets-1.\n"
    lines = result.out.splitlines()
    member = {
        client: f"{member_id} (client {client}-StreamThread-1-consumer at /127.0.0.1)"
        for client, member_id in MEMBERS.items()
    }
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


def test_history_of_a_share_group_is_inferred_from_kafkas_log() -> None:
    """Epochs with causes, and when members converged."""
    data = (LOGS / "share" / "__consumer_offsets-0" / f"{0:020d}.log").read_bytes()
    with ScriptedBroker(**partition_answers("__consumer_offsets", 0, data, 59)) as broker:
        broker.answers["Metadata"] = [broker.metadata(__consumer_offsets=1)]
        result = call(broker, "groups", "history", "--group", "late")
    assert result.err == "The cluster has no audit topic: inferred from __consumer_offsets-0.\n"
    lou = "7hiqeVLYTu-5tiAHpEDI6w (client lou at /127.0.0.1)"
    assert result.out.splitlines()[1:] == [
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


def test_history_in_a_cluster_without_groups() -> None:
    with ScriptedBroker() as broker:
        broker.answers["Metadata"] = [broker.metadata()]
        result = call(broker, "groups", "history", "--group", "billing")
        assert call(broker, "groups", "history", "--group", "billing", "--json").json == []
    assert result.err.startswith(
        "konvene: no rebalance of group billing is recorded: the cluster has never had a group\n"
    )
