"""`konvene groups`: the tables and documents of groups, and what is said where there is none."""

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


def ends(request: Any) -> ListOffsetsResponse:
    """Every partition starts at 0 and ends at 100."""
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


def a_group(state: str, *members: DescribedGroupMember, **offsets: int) -> ScriptedBroker:
    broker = ScriptedBroker(
        DescribeGroups=described(state, *members), OffsetFetch=committed(**offsets), ListOffsets=ends
    )
    broker.answers["Metadata"] = [broker.metadata(orders=3)]
    return broker


def test_groups_are_listed_with_type_and_state() -> None:
    listed = (
        ListedGroup(group_id="a", protocol_type="consumer", group_state="Stable", group_type="classic"),
        ListedGroup(group_id="b", protocol_type="", group_state="Empty", group_type="share"),
    )
    with ScriptedBroker(ListGroups=ListGroupsResponse(groups=listed)) as broker:
        table = call(broker, "groups", "list")
        assert call(broker, "groups", "list", "--json").json == [
            {"group": "a", "type": "classic", "protocol": "consumer", "state": "Stable"},
            {"group": "b", "type": "share", "protocol": None, "state": "Empty"},
        ]
        assert call(broker, "groups", "list", "--state", "empty,STABLE", "--type", "classic").code == 0
        filtered = broker.requests[-1]
    assert table.lines == [
        ["GROUP", "TYPE", "PROTOCOL", "STATE"],
        ["a", "classic", "consumer", "Stable"],
        ["b", "share", "-", "Empty"],
    ]
    assert (filtered.states_filter, filtered.types_filter) == (("Empty", "Stable"), ("classic",))


def test_a_word_that_is_no_state_is_refused_with_those_that_are() -> None:
    said = call(None, "groups", "list", "--state", "Happy")
    assert said.code == 2
    assert "--state Happy is unknown; valid values: Stable, Empty" in said.err


def test_offsets_show_each_partition_with_its_lag_and_owner() -> None:
    with a_group("Stable", MEMBER, p0=90, p2=40) as broker:
        said = call(broker, "groups", "describe", "--group", "billing")
        document = call(broker, "groups", "describe", "--group", "billing", "--json").json
    owner = ["ann-1", "/127.0.0.1", "ann"]
    assert said.lines == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST",
         "CLIENT-ID"],
        ["billing", "orders", "0", "90", "100", "10", *owner],
        ["billing", "orders", "1", "-", "100", "-", *owner],
        ["billing", "orders", "2", "40", "100", "60", "-", "-", "-"],
    ]  # fmt: skip
    assert said.err == ""
    assert document[0]["offsets"][0] == {
        "topic": "orders", "partition": 0, "current_offset": 90, "leader_epoch": 0, "metadata": "",
        "log_end_offset": 100, "lag": 10, "member_id": "ann-1", "client_host": "/127.0.0.1",
        "client_id": "ann",
    } | {"leader_epoch": document[0]["offsets"][0]["leader_epoch"]}  # fmt: skip
    assert document[0]["member_count"] == 1


def test_offsets_of_a_topic_that_is_gone_have_no_end() -> None:
    with a_group("Empty", p0=90) as broker:
        broker.answers["Metadata"] = [broker.metadata()]
        said = call(broker, "groups", "describe", "--group", "billing")
    assert said.lines[1] == ["billing", "orders", "0", "90", "-", "-", "-", "-", "-"]
    assert said.err == "Consumer group 'billing' has no active members.\n"


def test_offsets_leave_out_members_without_partitions() -> None:
    """As Kafka's tool does; --members shows them."""
    idle = MEMBER.replace(member_id="bob-2", member_assignment=write_assignment(Assigned(())))
    with a_group("Stable", MEMBER, idle, p0=90) as broker:
        said = call(broker, "groups", "describe", "billing")
        document = call(broker, "groups", "describe", "billing", "--offsets", "--json").json
    assert [line[1:3] + line[6:7] for line in said.lines[1:]] == [
        ["orders", "0", "ann-1"], ["orders", "1", "ann-1"],
    ]  # fmt: skip
    assert [row["member_id"] for row in document[0]["offsets"]] == ["ann-1", "ann-1"]


def test_members_show_instance_ids_where_there_are_any_and_assignments_when_verbose() -> None:
    static = MEMBER.replace(member_id="bob-2", group_instance_id="i-2", member_assignment=b"")
    with a_group("PreparingRebalance", MEMBER, static) as broker:
        said = call(broker, "groups", "describe", "--group", "billing", "--members", "--verbose")
    assert said.lines == [
        ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "CURRENT-EPOCH",
         "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"],
        ["billing", "ann-1", "-", "/127.0.0.1", "ann", "2", "-", "orders:0,1", "-", "-"],
        ["billing", "bob-2", "i-2", "/127.0.0.1", "ann", "0", "-", "-", "-", "-"],
    ]  # fmt: skip
    assert said.err == "Warning: Consumer group 'billing' is rebalancing.\n"


def test_state_shows_the_coordinator() -> None:
    with a_group("Stable", MEMBER) as broker:
        said = call(broker, "groups", "describe", "--group", "billing", "--state")
        where = broker.address
    assert said.lines == [
        ["GROUP", "COORDINATOR", "(ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"],
        ["billing", where, "(1)", "range", "Stable", "1"],
    ]


def test_a_group_that_is_not_there_is_told_with_what_to_do() -> None:
    with a_group("Dead") as broker:
        broker.answers["ListGroups"] = [ListGroupsResponse()]
        said = call(broker, "groups", "describe", "--group", "billing")
    assert said == (
        1,
        "",
        "konvene: there is no group billing\n  `konvene groups list` shows the existing groups.\n",
    )


def test_a_group_that_moves_between_protocols_shows_who_speaks_which() -> None:
    """Only where some members do and some do not."""

    def answer(*kinds: int) -> ConsumerGroupDescribeResponse:
        held = Assignment(topic_partitions=(TopicPartitions(topic_name="orders", partitions=(0,)),))
        members = tuple(
            Member(
                member_id=f"m{i}", client_id="c", client_host="/h", member_epoch=4, member_type=kind,
                assignment=held if i == 0 else Assignment(), target_assignment=held,
            )
            for i, kind in enumerate(kinds)
        )  # fmt: skip
        group = Moving(
            group_id="billing", group_state="Reconciling", group_epoch=5, assignment_epoch=5,
            assignor_name="uniform", members=members,
        )  # fmt: skip
        return ConsumerGroupDescribeResponse(groups=(group,))

    with ScriptedBroker(ConsumerGroupDescribe=[answer(0, 1), answer(1, 1)]) as broker:
        moving = call(broker, "groups", "describe", "billing", "--members", "--verbose")
        moved = call(broker, "groups", "describe", "billing", "--members", "--verbose")
    assert [line[-5:] for line in moving.lines] == [
        ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT", "UPGRADED"],
        ["4", "orders:0", "5", "orders:0", "false"],
        ["4", "-", "5", "orders:0", "true"],
    ]
    assert [line[-1] for line in moved.lines] == ["TARGET-ASSIGNMENT", "orders:0", "orders:0"]


def reconciling() -> ConsumerGroupDescribeResponse:
    """Ann gives orders:1 to bob and orders:2 to a classic member, and has let go of neither."""

    def topics(*partitions: int) -> Assignment:
        return Assignment(
            topic_partitions=(TopicPartitions(topic_name="orders", partitions=partitions),)
            if partitions
            else ()
        )

    def member(name: str, epoch: int, has: tuple[int, ...], target: tuple[int, ...], **more: Any) -> Member:
        return Member(
            member_id=f"{name}-1", client_id=name, client_host="/h", member_epoch=epoch, member_type=1,
            assignment=topics(*has), target_assignment=topics(*target), subscribed_topic_names=("orders",),
        ).replace(**more)  # fmt: skip

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


def test_reconciliation_names_first_who_holds_up_others_and_says_who_waits_for_what() -> None:
    with ScriptedBroker(ConsumerGroupDescribe=reconciling()) as broker:
        said = call(broker, "groups", "describe", "billing", "--reconciliation")
        where = broker.address
    state, members = said.out.split("\n\n")
    assert [line.split() for line in state.splitlines()] == [
        ["GROUP", "COORDINATOR", "(ID)", "ASSIGNMENT-STRATEGY", "STATE", "GROUP-EPOCH",
         "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"],
        ["billing", where, "(1)", "uniform", "Reconciling", "5", "5", "4"],
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
    assert said.err == (
        "Warning: Consumer group 'billing' is rebalancing.\n"
        "ann-1 (client ann at /h) still owns orders:1 (revocation pending); i-2 is waiting for it; "
        "and orders:2 (revocation pending); old-1 (old) is waiting for it\n"
    )


def test_every_part_says_who_holds_up_others_and_the_tables_stay_those_of_kafka() -> None:
    with ScriptedBroker(
        ConsumerGroupDescribe=reconciling(), OffsetFetch=committed(p0=90), ListOffsets=ends
    ) as broker:
        broker.answers["Metadata"] = [broker.metadata(orders=4)]
        said = {
            part: call(broker, "groups", "describe", "billing", *part.split())
            for part in ("--offsets", "--members --verbose", "--state")
        }
    assert {each.err.splitlines()[1].split(" (")[0] for each in said.values()} == {"ann-1"}
    assert [line[1] for line in said["--members --verbose"].lines[1:]] == ["cat-1", "bob-1", "old-1", "ann-1"]
    assert [line[6] for line in said["--offsets"].lines[1:]] == ["ann-1", "ann-1", "ann-1", "cat-1"]


def test_verbose_asks_how_members_heartbeat_and_shows_what_a_broker_tells() -> None:
    """Whose policy it is, what each member is told, and who is held; Kafka's broker passes over the question,
    and its tables are as ever."""
    notes = HeartbeatExtension(
        policy="responsive",
        members=(
            MemberHeartbeat(member_id="ann-1", interval_ms=500),
            MemberHeartbeat(member_id="old-1"),
            MemberHeartbeat(member_id="cat-1", interval_ms=1000, is_held=True),
        ),
    )
    tags: list[Any] = []

    def answered(request: Any) -> ConsumerGroupDescribeResponse:
        tags.append(request.unknown_tags)
        answer = reconciling()
        if REQUEST_FIELD not in request.unknown_tags:
            return answer
        told = answer.groups[0].replace(unknown_tags=((HEARTBEAT_EXTENSION, encode(notes, 0)),))
        return answer.replace(groups=(told,))

    with ScriptedBroker(ConsumerGroupDescribe=answered) as broker:
        plain = call(broker, "groups", "describe", "billing", "--members")
        members = call(broker, "groups", "describe", "billing", "--members", "--verbose")
        state = call(broker, "groups", "describe", "billing", "--state", "--verbose")
        (group,) = call(broker, "groups", "describe", "billing", "--members", "--verbose", "--json").json
    assert tags == [(), (REQUEST_FIELD,), (REQUEST_FIELD,), (REQUEST_FIELD,)]
    assert "HEARTBEAT-MS" not in plain.lines[0]
    assert members.lines[0][-2:] == ["HEARTBEAT-MS", "HELD"]
    assert {line[1]: line[-2:] for line in members.lines[1:]} == {
        "cat-1": ["1000", "true"], "bob-1": ["-", "-"], "old-1": ["-", "false"], "ann-1": ["500", "false"],
    }  # fmt: skip
    assert (state.lines[0][-2:], state.lines[1][-2:]) == (
        ["HEARTBEAT-POLICY", "#MEMBERS"],
        ["responsive", "4"],
    )
    assert group["heartbeat_policy"] == "responsive"
    told = {m["member_id"]: m.get("heartbeats") for m in group["members"]}
    assert told["cat-1"] == {"interval_ms": 1000, "held": True}
    assert told["old-1"] == {"interval_ms": None, "held": False}
    assert told["bob-1"] is None


def test_a_group_without_a_target_says_what_may_keep_it_from_one() -> None:
    answer = reconciling()
    ahead = answer.groups[0].replace(group_state="Assigning", group_epoch=6)
    with ScriptedBroker(ConsumerGroupDescribe=answer.replace(groups=(ahead,))) as broker:
        said = call(broker, "groups", "describe", "billing", "--state")
    assert "Epoch 6 has no target assignment yet" in said.err
    assert "max.message.bytes of __consumer_offsets" in said.err


def test_the_document_of_a_consumer_group_has_all_of_it() -> None:
    with ScriptedBroker(ConsumerGroupDescribe=reconciling()) as broker:
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


def test_a_static_member_that_left_for_a_while_is_told_as_such() -> None:
    answer = reconciling()
    (group,) = answer.groups
    bob = group.members[1].replace(member_epoch=-2)
    answer = answer.replace(groups=(group.replace(members=(bob,), group_state="Stable"),))
    with ScriptedBroker(ConsumerGroupDescribe=answer) as broker:
        said = call(broker, "groups", "describe", "billing", "--reconciliation")
    assert said.lines[4][6:8] == ["-2", "AWAY"]
    assert "gets orders:1 with its next heartbeat: no other member owns that" not in said.out
    assert "has left temporarily; its partitions stay assigned to it until its session expires" in said.out
    assert said.err == ""


def test_a_classic_group_has_nothing_to_reconcile() -> None:
    with a_group("Stable", MEMBER) as broker:
        said = call(broker, "groups", "describe", "billing", "--reconciliation")
    assert said == (
        0, "", "Group 'billing' is a classic group: its members have no target assignments.\n"
    )  # fmt: skip


def test_what_the_first_coordinator_call_said_of_a_missing_group_is_passed_on() -> None:
    """ConsumerGroupDescribe knows more of why than DescribeGroups does."""
    gone = ConsumerGroupDescribeResponse(
        groups=(
            Moving(group_id="billing", error_code=69, error_message="Group billing is not a consumer group."),
        )
    )

    async def job(address: str) -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).describe_group("billing")

    with a_group("Dead") as broker, pytest.raises(KafkaError, match="is not a consumer group"):
        broker.answers["ConsumerGroupDescribe"] = [gone]
        asyncio.run(job(broker.address))


def test_all_groups_are_those_that_consumers_are_in() -> None:
    """As for Kafka's tool: others are described only where they are named."""
    rows = (("a", "classic", "consumer"), ("b", "consumer", "consumer"), ("c", "classic", "connect"),
            ("d", "share", "share"), ("e", "classic", ""), ("f", "", "consumer"))  # fmt: skip
    listed = tuple(ListedGroup(group_id=g, group_type=t, protocol_type=p) for g, t, p in rows)
    named: list[str] = []

    def described_(request: Any) -> DescribeGroupsResponse:
        named.extend(request.groups)
        return described("Empty")

    with ScriptedBroker(ListGroups=ListGroupsResponse(groups=listed), DescribeGroups=described_) as broker:
        assert call(broker, "groups", "describe", "--all-groups", "--state").code == 0
        assert named == ["a", "b", "e", "f"]
        named.clear()
        assert call(broker, "groups", "describe", "c", "--group", "a", "c", "--state").code == 0
        assert named == ["c", "a"]


def test_a_group_of_another_type_is_told_by_its_type() -> None:
    """A coordinator says only that it has no such consumer group."""
    listed = (ListedGroup(group_id="billing", group_type="share", protocol_type="share"),)
    with a_group("Dead") as broker:
        broker.answers["ListGroups"] = [ListGroupsResponse(groups=listed)]
        said = call(broker, "groups", "remove-members", "billing", "--all-members")
    assert (said.code, said.out) == (1, "")
    assert said.err == (
        "konvene: group billing is a share group; this command needs a classic or consumer group\n"
        "  `konvene groups list` shows the type of each group.\n"
    )


@pytest.mark.parametrize("words", [[], ["g", "--all-groups"], ["--group", "g", "--all-groups"]])
def test_describe_needs_one_way_to_name_groups(words: list[str]) -> None:
    assert call(None, "groups", "describe", *words).code == 2
