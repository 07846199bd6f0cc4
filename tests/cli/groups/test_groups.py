"""`konvene groups list` and `describe`: tables, JSON documents, and errors for missing groups."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.cli.commands import call
from tests.client.scripted import ScriptedBroker

from konvene.client.admin.admin import Admin
from konvene.client.consumer.protocol import Assigned, Subscription, write_assignment, write_subscription
from konvene.client.errors import KafkaError
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.codec.compile import encode
from konvene.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeResponse,
    Member,
    TopicPartitions,
)
from konvene.messages.consumer_group_describe import DescribedGroup as Moving
from konvene.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from konvene.messages.heartbeat_extensions import (
    HEARTBEAT_EXTENSION,
    REQUEST_FIELD,
    HeartbeatExtension,
    MemberHeartbeat,
)
from konvene.messages.list_groups import ListedGroup, ListGroupsResponse
from konvene.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from konvene.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

MEMBER = DescribedGroupMember(
    member_id="ann-1", client_id="ann", client_host="/127.0.0.1",
    member_metadata=write_subscription(Subscription(("orders",))),
    member_assignment=write_assignment(Assigned((TopicPartition("orders", 0), TopicPartition("orders", 1)))),
)  # fmt: skip


def described(state: str, *members: DescribedGroupMember) -> DescribeGroupsResponse:
    group = DescribedGroup(
        group_id="billing",
        group_state=state,
        protocol_type="consumer",
        protocol_data="range",
        members=members,
    )
    return DescribeGroupsResponse(groups=(group,))


def committed(**offsets: int) -> OffsetFetchResponse:
    partitions = tuple(
        OffsetFetchResponsePartitions(partition_index=int(p[1:]), committed_offset=at, metadata="")
        for p, at in offsets.items()
    )
    topic = OffsetFetchResponseTopics(name="orders", partitions=partitions)
    return OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="billing", topics=(topic,)),))


def log_offsets(request: Any) -> ListOffsetsResponse:
    """Answer ListOffsets: every partition starts at 0 and ends at 100."""
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=t.name,
                partitions=tuple(
                    ListOffsetsPartitionResponse(
                        partition_index=p.partition_index, offset=100 if p.timestamp == -1 else 0
                    )
                    for p in t.partitions
                ),
            )
            for t in request.topics
        )
    )


def classic_group_broker(state: str, *members: DescribedGroupMember, **offsets: int) -> ScriptedBroker:
    broker = ScriptedBroker(
        DescribeGroups=described(state, *members), OffsetFetch=committed(**offsets), ListOffsets=log_offsets
    )
    broker.answers["Metadata"] = [broker.metadata(orders=3)]
    return broker


def test_groups_are_listed_with_type_and_state() -> None:
    listed = (
        ListedGroup(group_id="a", protocol_type="consumer", group_state="Stable", group_type="classic"),
        ListedGroup(group_id="b", protocol_type="", group_state="Empty", group_type="share"),
    )
    with ScriptedBroker(ListGroups=ListGroupsResponse(groups=listed)) as broker:
        result = call(broker, "groups", "list")
        assert call(broker, "groups", "list", "--json").json == [
            {"group": "a", "type": "classic", "protocol": "consumer", "state": "Stable"},
            {"group": "b", "type": "share", "protocol": None, "state": "Empty"},
        ]
        assert call(broker, "groups", "list", "--state", "empty,STABLE", "--type", "classic").code == 0
        filtered = broker.requests[-1]
    assert result.lines == [
        ["GROUP", "TYPE", "PROTOCOL", "STATE"],
        ["a", "classic", "consumer", "Stable"],
        ["b", "share", "-", "Empty"],
    ]
    assert (filtered.states_filter, filtered.types_filter) == (("Empty", "Stable"), ("classic",))


def test_unknown_state_is_rejected_with_the_valid_ones() -> None:
    result = call(None, "groups", "list", "--state", "Happy")
    assert result.code == 2
    assert "--state Happy is unknown; valid values: Stable, Empty" in result.err


def test_offsets_show_each_partition_with_its_lag_and_owner() -> None:
    with classic_group_broker("Stable", MEMBER, p0=90, p2=40) as broker:
        result = call(broker, "groups", "describe", "--group", "billing")
        document = call(broker, "groups", "describe", "--group", "billing", "--json").json
    owner = ["ann-1", "/127.0.0.1", "ann"]
    assert result.lines == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST",
         "CLIENT-ID"],
        ["billing", "orders", "0", "90", "100", "10", *owner],
        ["billing", "orders", "1", "-", "100", "-", *owner],
        ["billing", "orders", "2", "40", "100", "60", "-", "-", "-"],
    ]  # fmt: skip
    assert result.err == ""
    assert document[0]["offsets"][0] == {
        "topic": "orders", "partition": 0, "current_offset": 90, "leader_epoch": 0, "metadata": "",
        "log_end_offset": 100, "lag": 10, "member_id": "ann-1", "client_host": "/127.0.0.1",
        "client_id": "ann",
    } | {"leader_epoch": document[0]["offsets"][0]["leader_epoch"]}  # fmt: skip
    assert document[0]["member_count"] == 1


def test_offsets_of_a_deleted_topic_have_no_end_offset() -> None:
    with classic_group_broker("Empty", p0=90) as broker:
        broker.answers["Metadata"] = [broker.metadata()]
        result = call(broker, "groups", "describe", "--group", "billing")
    assert result.lines[1] == ["billing", "orders", "0", "90", "-", "-", "-", "-", "-"]
    assert result.err == "Consumer group 'billing' has no active members.\n"


def test_offsets_leave_out_members_without_partitions() -> None:
    """As Kafka's tool does; --members shows them."""
    idle = MEMBER.replace(member_id="bob-2", member_assignment=write_assignment(Assigned(())))
    with classic_group_broker("Stable", MEMBER, idle, p0=90) as broker:
        result = call(broker, "groups", "describe", "billing")
        document = call(broker, "groups", "describe", "billing", "--offsets", "--json").json
    assert [line[1:3] + line[6:7] for line in result.lines[1:]] == [
        ["orders", "0", "ann-1"], ["orders", "1", "ann-1"],
    ]  # fmt: skip
    assert [row["member_id"] for row in document[0]["offsets"]] == ["ann-1", "ann-1"]


def test_members_table_has_instance_ids_of_static_members_and_verbose_assignments() -> None:
    static = MEMBER.replace(member_id="bob-2", group_instance_id="i-2", member_assignment=b"")
    with classic_group_broker("PreparingRebalance", MEMBER, static) as broker:
        result = call(broker, "groups", "describe", "--group", "billing", "--members", "--verbose")
    assert result.lines == [
        ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "CURRENT-EPOCH",
         "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"],
        ["billing", "ann-1", "-", "/127.0.0.1", "ann", "2", "-", "orders:0,1", "-", "-"],
        ["billing", "bob-2", "i-2", "/127.0.0.1", "ann", "0", "-", "-", "-", "-"],
    ]  # fmt: skip
    assert result.err == "Warning: Consumer group 'billing' is rebalancing.\n"


def test_state_shows_the_coordinator() -> None:
    with classic_group_broker("Stable", MEMBER) as broker:
        result = call(broker, "groups", "describe", "--group", "billing", "--state")
        coordinator = broker.address
    assert result.lines == [
        ["GROUP", "COORDINATOR", "(ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"],
        ["billing", coordinator, "(1)", "range", "Stable", "1"],
    ]


def test_unknown_group_error_has_a_hint() -> None:
    with classic_group_broker("Dead") as broker:
        broker.answers["ListGroups"] = [ListGroupsResponse()]
        result = call(broker, "groups", "describe", "--group", "billing")
    assert result == (
        1,
        "",
        "konvene: there is no group billing\n  `konvene groups list` shows the existing groups.\n",
    )


def test_mixed_group_shows_each_members_protocol() -> None:
    """The UPGRADED column appears only while members of both protocols exist."""

    def describe_response(*member_types: int) -> ConsumerGroupDescribeResponse:
        assignment = Assignment(topic_partitions=(TopicPartitions(topic_name="orders", partitions=(0,)),))
        members = tuple(
            Member(
                member_id=f"m{i}", client_id="c", client_host="/h", member_epoch=4, member_type=member_type,
                assignment=assignment if i == 0 else Assignment(), target_assignment=assignment,
            )
            for i, member_type in enumerate(member_types)
        )  # fmt: skip
        group = Moving(
            group_id="billing", group_state="Reconciling", group_epoch=5, assignment_epoch=5,
            assignor_name="uniform", members=members,
        )  # fmt: skip
        return ConsumerGroupDescribeResponse(groups=(group,))

    with ScriptedBroker(ConsumerGroupDescribe=[describe_response(0, 1), describe_response(1, 1)]) as broker:
        moving = call(broker, "groups", "describe", "billing", "--members", "--verbose")
        moved = call(broker, "groups", "describe", "billing", "--members", "--verbose")
    assert [line[-5:] for line in moving.lines] == [
        ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT", "UPGRADED"],
        ["4", "orders:0", "5", "orders:0", "false"],
        ["4", "-", "5", "orders:0", "true"],
    ]
    assert [line[-1] for line in moved.lines] == ["TARGET-ASSIGNMENT", "orders:0", "orders:0"]


def reconciling_response() -> ConsumerGroupDescribeResponse:
    """Describe a group in which ann has yet to revoke orders:1 for bob and orders:2 for a classic member."""

    def topics(*partitions: int) -> Assignment:
        return Assignment(
            topic_partitions=(TopicPartitions(topic_name="orders", partitions=partitions),)
            if partitions
            else ()
        )

    def member(
        name: str, epoch: int, owned: tuple[int, ...], target: tuple[int, ...], **fields: Any
    ) -> Member:
        return Member(
            member_id=f"{name}-1", client_id=name, client_host="/h", member_epoch=epoch, member_type=1,
            assignment=topics(*owned), target_assignment=topics(*target), subscribed_topic_names=("orders",),
        ).replace(**fields)  # fmt: skip

    group = Moving(
        group_id="billing", group_state="Reconciling", group_epoch=5, assignment_epoch=5,
        assignor_name="uniform",
        members=(
            member("cat", 5, (3,), (3,)),
            member("bob", 5, (), (1,), instance_id="i-2", rack_id="r1"),
            member("old", 4, (), (2,), member_type=0),
            member("ann", 4, (0, 1, 2), (0,), subscribed_topic_names=(), subscribed_topic_regex="ord.*"),
        ),
    )  # fmt: skip
    return ConsumerGroupDescribeResponse(groups=(group,))


def test_reconciliation_lists_blocking_members_first() -> None:
    with ScriptedBroker(ConsumerGroupDescribe=reconciling_response()) as broker:
        result = call(broker, "groups", "describe", "billing", "--reconciliation")
        coordinator = broker.address
    state, members = result.out.split("\n\n")
    assert [line.split() for line in state.splitlines()] == [
        ["GROUP", "COORDINATOR", "(ID)", "ASSIGNMENT-STRATEGY", "STATE", "GROUP-EPOCH",
         "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"],
        ["billing", coordinator, "(1)", "uniform", "Reconciling", "5", "5", "4"],
    ]  # fmt: skip
    assert [" ".join(line.split()) for line in members.splitlines()] == [
        "CONSUMER-ID GROUP-INSTANCE-ID HOST CLIENT-ID RACK PROTOCOL EPOCH STATE ASSIGNMENT TARGET",
        "ann-1 - /h ann - consumer 4 UNREVOKED_PARTITIONS orders:0,1,2 orders:0",
        "still owns orders:1 (revocation pending); i-2 is waiting for it; "
        "and orders:2 (revocation pending); old-1 (old) is waiting for it",
        "bob-1 i-2 /h bob r1 consumer 5 UNRELEASED_PARTITIONS - orders:1",
        "is waiting for orders:1, owned by ann-1 (ann)",
        "old-1 - /h old - classic 4 STABLE - orders:2",
        "is waiting for orders:2, owned by ann-1 (ann)",
        "is at epoch 4; the target assignment has epoch 5",
        "cat-1 - /h cat - consumer 5 STABLE orders:3 orders:3",
    ]
    assert result.err == (
        "Warning: Consumer group 'billing' is rebalancing.\n"
        "ann-1 (client ann at /h) still owns orders:1 (revocation pending); i-2 is waiting for it; "
        "and orders:2 (revocation pending); old-1 (old) is waiting for it\n"
    )


def test_every_part_warns_about_blocking_members() -> None:
    with ScriptedBroker(
        ConsumerGroupDescribe=reconciling_response(), OffsetFetch=committed(p0=90), ListOffsets=log_offsets
    ) as broker:
        broker.answers["Metadata"] = [broker.metadata(orders=4)]
        results = {
            part: call(broker, "groups", "describe", "billing", *part.split())
            for part in ("--offsets", "--members --verbose", "--state")
        }
    assert {result.err.splitlines()[1].split(" (")[0] for result in results.values()} == {"ann-1"}
    assert [line[1] for line in results["--members --verbose"].lines[1:]] == [
        "cat-1",
        "bob-1",
        "old-1",
        "ann-1",
    ]
    assert [line[6] for line in results["--offsets"].lines[1:]] == ["ann-1", "ann-1", "ann-1", "cat-1"]


def test_verbose_shows_heartbeat_extensions() -> None:
    """A konvene broker answers the extension field with policy, intervals and holding; Kafka's broker
    ignores it, and its tables are unchanged.
    """
    notes = HeartbeatExtension(
        policy="responsive",
        members=(
            MemberHeartbeat(member_id="ann-1", interval_ms=500),
            MemberHeartbeat(member_id="old-1"),
            MemberHeartbeat(member_id="cat-1", interval_ms=1000, is_held=True, age_ms=250),
        ),
    )
    tags: list[Any] = []

    def describe_groups(request: Any) -> ConsumerGroupDescribeResponse:
        tags.append(request.unknown_tags)
        response = reconciling_response()
        if REQUEST_FIELD not in request.unknown_tags:
            return response
        group = response.groups[0].replace(unknown_tags=((HEARTBEAT_EXTENSION, encode(notes, 0)),))
        return response.replace(groups=(group,))

    with ScriptedBroker(ConsumerGroupDescribe=describe_groups) as broker:
        plain = call(broker, "groups", "describe", "billing", "--members")
        members = call(broker, "groups", "describe", "billing", "--members", "--verbose")
        state = call(broker, "groups", "describe", "billing", "--state", "--verbose")
        (group,) = call(broker, "groups", "describe", "billing", "--members", "--verbose", "--json").json
    assert tags == [(), (REQUEST_FIELD,), (REQUEST_FIELD,), (REQUEST_FIELD,)]
    assert "HEARTBEAT-MS" not in plain.lines[0]
    assert members.lines[0][-3:] == ["HEARTBEAT-MS", "HELD", "HEARTBEAT-AGE-MS"]
    assert {line[1]: line[-3:] for line in members.lines[1:]} == {
        "cat-1": ["1000", "true", "250"], "bob-1": ["-", "-", "-"], "old-1": ["-", "false", "-"],
        "ann-1": ["500", "false", "-"],
    }  # fmt: skip
    assert (state.lines[0][-2:], state.lines[1][-2:]) == (
        ["HEARTBEAT-POLICY", "#MEMBERS"],
        ["responsive", "4"],
    )
    assert group["heartbeat_policy"] == "responsive"
    heartbeats = {m["member_id"]: m.get("heartbeats") for m in group["members"]}
    assert heartbeats["cat-1"] == {"interval_ms": 1000, "held": True, "age_ms": 250}
    assert heartbeats["old-1"] == {"interval_ms": None, "held": False, "age_ms": None}
    assert heartbeats["bob-1"] is None


def test_missing_target_assignment_is_explained() -> None:
    response = reconciling_response()
    assigning = response.groups[0].replace(group_state="Assigning", group_epoch=6)
    with ScriptedBroker(ConsumerGroupDescribe=response.replace(groups=(assigning,))) as broker:
        result = call(broker, "groups", "describe", "billing", "--state")
    assert "Epoch 6 has no target assignment yet" in result.err
    assert "max.message.bytes of __consumer_offsets" in result.err


def test_json_document_of_a_consumer_group() -> None:
    with ScriptedBroker(ConsumerGroupDescribe=reconciling_response()) as broker:
        (group,) = call(broker, "groups", "describe", "billing", "--reconciliation", "--json").json
    ann, bob = group["members"][:2]
    assert (group["type"], group["state"], group["epoch"], group["assignment_epoch"], group["assignor"]) == (
        "consumer", "Reconciling", 5, 5, "uniform",
    )  # fmt: skip
    assert ann["to_release"] == [
        {"topic": "orders", "partition": 1, "wanted_by": "bob-1"},
        {"topic": "orders", "partition": 2, "wanted_by": "old-1"},
    ]
    assert (ann["state"], ann["subscribed_regex"], ann["waits_for"]) == ("UNREVOKED_PARTITIONS", "ord.*", [])
    assert bob["waits_for"] == [{"topic": "orders", "partition": 1, "held_by": "ann-1"}]
    assert (bob["rack_id"], bob["protocol"], bob["to_release"]) == ("r1", "consumer", [])


def test_static_member_that_left_temporarily_is_described() -> None:
    response = reconciling_response()
    (group,) = response.groups
    bob = group.members[1].replace(member_epoch=-2)
    response = response.replace(groups=(group.replace(members=(bob,), group_state="Stable"),))
    with ScriptedBroker(ConsumerGroupDescribe=response) as broker:
        result = call(broker, "groups", "describe", "billing", "--reconciliation")
    assert result.lines[4][6:8] == ["-2", "AWAY"]
    assert "gets orders:1 with its next heartbeat: no other member owns that" not in result.out
    assert "has left temporarily; its partitions stay assigned to it until its session expires" in result.out
    assert result.err == ""


def test_a_classic_group_has_nothing_to_reconcile() -> None:
    with classic_group_broker("Stable", MEMBER) as broker:
        result = call(broker, "groups", "describe", "billing", "--reconciliation")
    assert result == (
        0, "", "Group 'billing' is a classic group: its members have no target assignments.\n"
    )  # fmt: skip


def test_missing_group_error_has_the_message_of_the_first_describe() -> None:
    """The error of ConsumerGroupDescribe is more specific than that of DescribeGroups."""
    not_found = ConsumerGroupDescribeResponse(
        groups=(
            Moving(group_id="billing", error_code=69, error_message="Group billing is not a consumer group."),
        )
    )

    async def job(address: str) -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).describe_group("billing")

    with classic_group_broker("Dead") as broker, pytest.raises(KafkaError, match="is not a consumer group"):
        broker.answers["ConsumerGroupDescribe"] = [not_found]
        asyncio.run(job(broker.address))


def test_all_groups_selects_groups_of_consumers() -> None:
    """As with Kafka's tool: other groups are described only if named."""
    rows = (("a", "classic", "consumer"), ("b", "consumer", "consumer"), ("c", "classic", "connect"),
            ("d", "share", "share"), ("e", "classic", ""), ("f", "", "consumer"))  # fmt: skip
    listed = tuple(ListedGroup(group_id=g, group_type=t, protocol_type=p) for g, t, p in rows)
    requested: list[str] = []

    def describe_groups(request: Any) -> DescribeGroupsResponse:
        requested.extend(request.groups)
        return described("Empty")

    with ScriptedBroker(
        ListGroups=ListGroupsResponse(groups=listed), DescribeGroups=describe_groups
    ) as broker:
        assert call(broker, "groups", "describe", "--all-groups", "--state").code == 0
        assert requested == ["a", "b", "e", "f"]
        requested.clear()
        assert call(broker, "groups", "describe", "c", "--group", "a", "c", "--state").code == 0
        assert requested == ["c", "a"]


def test_error_for_another_group_type_names_the_type() -> None:
    """The coordinator reports only that it has no such consumer group."""
    listed = (ListedGroup(group_id="billing", group_type="share", protocol_type="share"),)
    with classic_group_broker("Dead") as broker:
        broker.answers["ListGroups"] = [ListGroupsResponse(groups=listed)]
        result = call(broker, "groups", "remove-members", "billing", "--all-members")
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        "konvene: group billing is a share group; this command needs a classic or consumer group\n"
        "  `konvene groups list` shows the type of each group.\n"
    )


@pytest.mark.parametrize("args", [[], ["g", "--all-groups"], ["--group", "g", "--all-groups"]])
def test_describe_rejects_missing_or_contradictory_group_options(args: list[str]) -> None:
    assert call(None, "groups", "describe", *args).code == 2
