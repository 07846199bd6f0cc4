"""Cluster APIs on a single node: log directories, elections, reassignments, the quorum, producers."""

from __future__ import annotations

from pathlib import Path

from tests.broker.handlers.broker_client import BrokerClient, run_with_broker

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from konvene.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from konvene.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from konvene.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from konvene.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from konvene.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from konvene.messages.describe_producers import DescribeProducersRequest, TopicRequest
from konvene.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from konvene.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from konvene.messages.list_config_resources import ListConfigResourcesRequest
from konvene.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from konvene.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from konvene.messages.metadata import MetadataRequest, MetadataRequestTopic


def test_log_directory_is_described(tmp_path: Path) -> None:
    """All partitions, the requested ones, or none; never the log of `__cluster_metadata`."""

    async def scenario(client: BrokerClient) -> None:
        await client.topic("t", 2)
        client.write("t", b"a", index=1)
        everything = await client.send(DescribeLogDirsRequest(topics=None))
        (found,) = everything.results
        assert (found.error_code, found.log_dir, found.is_cordoned) == (0, str(tmp_path), False)
        assert found.total_bytes > found.usable_bytes > 0
        (topic,) = found.topics
        assert [(p.partition_index, p.partition_size > 0) for p in topic.partitions] == [
            (0, False),
            (1, True),
        ]
        requested = (DescribableLogDirTopic(topic="t", partitions=(1, 9)), DescribableLogDirTopic(topic="no"))
        (some,) = (await client.send(DescribeLogDirsRequest(topics=requested))).results
        assert [p.partition_index for t in some.topics for p in t.partitions] == [1]
        (none,) = (await client.send(DescribeLogDirsRequest(topics=()))).results
        assert none.topics == ()

    run_with_broker(tmp_path, scenario)


def test_only_the_log_directory_of_a_replica_is_accepted(tmp_path: Path) -> None:
    """Any other directory is LOG_DIR_NOT_FOUND."""

    async def scenario(client: BrokerClient) -> None:
        await client.topic("t")
        for path, topic, error in (
            (str(tmp_path), "t", Errors.NONE),
            (str(tmp_path), "no", Errors.UNKNOWN_TOPIC_OR_PARTITION),
            ("/elsewhere", "t", Errors.LOG_DIR_NOT_FOUND),
        ):
            wanted = AlterReplicaLogDirTopic(name=topic, partitions=(0,))
            dirs = (AlterReplicaLogDir(path=path, topics=(wanted,)),)
            (result,) = (await client.send(AlterReplicaLogDirsRequest(dirs=dirs))).results
            assert [(p.partition_index, p.error_code) for p in result.partitions] == [(0, error)]

    run_with_broker(tmp_path, scenario)


def test_elections_are_not_needed(tmp_path: Path) -> None:
    """Requested partitions have a result each; without a list there is none. Unknown types are rejected."""

    async def scenario(client: BrokerClient) -> None:
        await client.topic("t")
        requested = (
            TopicPartitions(topic="t", partitions=(0, 9)),
            TopicPartitions(topic="no", partitions=(0,)),
        )
        for version in (0, 1, 2):
            answer = await client.send(ElectLeadersRequest(topic_partitions=requested), version)
            codes = [p.error_code for t in answer.replica_election_results for p in t.partition_result]
            missing = Errors.UNKNOWN_TOPIC_OR_PARTITION
            assert codes == [Errors.ELECTION_NOT_NEEDED, missing, missing]
        (everything,) = (
            await client.send(ElectLeadersRequest(topic_partitions=None))
        ).replica_election_results
        assert (everything.topic, everything.partition_result) == ("t", ())
        invalid = await client.send(ElectLeadersRequest(election_type=7, topic_partitions=requested))
        assert invalid.error_code == Errors.INVALID_REQUEST

    run_with_broker(tmp_path, scenario)


def test_only_this_node_can_be_assigned(tmp_path: Path) -> None:
    """Reassignment to this node succeeds, and no reassignment is ever in progress."""

    async def scenario(client: BrokerClient) -> None:
        await client.topic("t")
        cases = {
            (1,): Errors.NONE,
            (2,): Errors.INVALID_REPLICA_ASSIGNMENT,
            (1, 1): Errors.INVALID_REPLICA_ASSIGNMENT,
            (): Errors.INVALID_REPLICA_ASSIGNMENT,
            None: Errors.NO_REASSIGNMENT_IN_PROGRESS,
        }
        for replicas, error in cases.items():
            moved = ReassignablePartition(partition_index=0, replicas=replicas)
            topics = (ReassignableTopic(name="t", partitions=(moved,)),)
            answer = await client.send(AlterPartitionReassignmentsRequest(topics=topics))
            assert answer.responses[0].partitions[0].error_code == error
        listed = await client.send(ListPartitionReassignmentsRequest())
        assert (listed.error_code, listed.topics) == (Errors.NONE, ())

    run_with_broker(tmp_path, scenario, {"node.id": "1"})


def test_this_node_is_the_only_voter(tmp_path: Path) -> None:
    """It leads and is caught up. Other topics have no quorum."""

    async def scenario(client: BrokerClient) -> None:
        the_log = TopicData(topic_name="__cluster_metadata", partitions=(PartitionData(partition_index=0),))
        answer = await client.send(DescribeQuorumRequest(topics=(the_log,)))
        (quorum,) = answer.topics[0].partitions
        (voter,) = quorum.current_voters
        assert quorum.leader_id == voter.replica_id == client.broker.catalogue.node_id
        assert quorum.high_watermark == voter.log_end_offset > 0
        assert (
            answer.nodes[0].listeners[0].host,
            answer.nodes[0].listeners[0].port,
        ) == client.broker.catalogue.advertised
        other = TopicData(topic_name="t", partitions=(PartitionData(partition_index=0),))
        refused = await client.send(DescribeQuorumRequest(topics=(other,)))
        assert refused.topics[0].partitions[0].error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION

    run_with_broker(tmp_path, scenario)


def test_producers_of_a_partition_are_described(tmp_path: Path) -> None:
    """Active producers, and the start offset of an ongoing transaction."""

    async def scenario(client: BrokerClient) -> None:
        await client.topic("t")
        client.write("t", b"a")
        partition = client.broker.partitions.get("t", 0)
        assert partition is not None
        partition.log.append_built(
            [(None, b"b")], 0, 5_000, producer_id=9, producer_epoch=3, transactional=True
        )
        requested = tuple(TopicRequest(name=name, partition_indexes=(0,)) for name in ("t", "no", "b@d"))
        first, missing, wrong = (await client.send(DescribeProducersRequest(topics=requested))).topics
        (producer,) = first.partitions[0].active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_timestamp) == (9, 3, 5_000)
        assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (1, -1)
        assert missing.partitions[0].error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION
        assert wrong.partitions[0].error_code == Errors.INVALID_TOPIC_EXCEPTION

    run_with_broker(tmp_path, scenario)


def test_read_committed_offsets_end_at_the_last_stable_offset(tmp_path: Path) -> None:
    """Latest offset and timestamp lookups ignore an open transaction."""

    async def scenario(client: BrokerClient) -> None:
        await client.topic("t")
        client.write("t", b"a")
        partition = client.broker.partitions.get("t", 0)
        assert partition is not None
        partition.log.append_built(
            [(None, b"b")], 0, 5_000, producer_id=9, producer_epoch=0, transactional=True
        )
        found = {}
        for level in (0, 1):
            for timestamp in (-1, 5_000, -3, 1):
                wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
                topics = (ListOffsetsTopic(name="t", partitions=(wanted,)),)
                answer = await client.send(ListOffsetsRequest(isolation_level=level, topics=topics))
                found[level, timestamp] = answer.topics[0].partitions[0].offset
        assert found == {
            (0, -1): 2, (0, 5_000): 1, (0, -3): 1, (0, 1): 0,
            (1, -1): 1, (1, 5_000): -1, (1, -3): -1, (1, 1): 0,
        }  # fmt: skip

    run_with_broker(tmp_path, scenario)


def test_resources_with_settings_are_listed(tmp_path: Path) -> None:
    """Topics, this node, and groups with settings. An unknown type rejects the request."""

    async def scenario(client: BrokerClient) -> None:
        await client.topic("t")
        await client.send(
            AlterConfigsRequest(resources=(AlterConfigsResource(resource_type=32, resource_name="g"),))
        )
        node = str(client.broker.catalogue.node_id)
        everything = await client.send(ListConfigResourcesRequest())
        listed = [(r.resource_type, r.resource_name) for r in everything.config_resources]
        assert listed == [(8, node), (4, node), (2, "t")]
        assert (await client.send(ListConfigResourcesRequest(), 0)).config_resources == ()
        invalid = await client.send(ListConfigResourcesRequest(resource_types=(2, 5)))
        assert (invalid.error_code, invalid.config_resources) == (Errors.UNSUPPORTED_VERSION, ())

    run_with_broker(tmp_path, scenario)


def test_authorized_operations_have_kafkas_bits(tmp_path: Path) -> None:
    """3576 for a topic, missing or not, and 8096 for the cluster: as Kafka 4.4 without an authorizer."""

    async def scenario(client: BrokerClient) -> None:
        await client.topic("t")
        topics = tuple(MetadataRequestTopic(name=name) for name in ("t", "no"))
        requested = {"include_topic_authorized_operations": True, "allow_auto_topic_creation": False}
        answer = await client.send(MetadataRequest(topics=topics, **requested))
        assert [t.topic_authorized_operations for t in answer.topics] == [3576, 3576]
        older = await client.send(MetadataRequest(include_cluster_authorized_operations=True), 10)
        assert older.cluster_authorized_operations == 8096

    run_with_broker(tmp_path, scenario)


def test_metadata_by_topic_id_ignores_the_name(tmp_path: Path) -> None:
    """The Java client sends an empty name with an id, librdkafka none. If any topic is requested by id, those
    requested by name only are ignored."""

    async def scenario(client: BrokerClient) -> None:
        topic_id = await client.topic("t", 2)
        unknown = Uuid(b"\1" * 16)
        for name in ("", None, "no"):
            requested = MetadataRequestTopic(topic_id=topic_id, name=name)
            (found,) = (await client.send(MetadataRequest(topics=(requested,)))).topics
            assert (found.error_code, found.name, found.topic_id, len(found.partitions)) == (
                0, "t", topic_id, 2,
            )  # fmt: skip
        both = (MetadataRequestTopic(name="t"), MetadataRequestTopic(topic_id=unknown, name=""))
        (missing,) = (await client.send(MetadataRequest(topics=both))).topics
        assert (missing.error_code, missing.name, missing.topic_id, missing.partitions) == (
            Errors.UNKNOWN_TOPIC_ID, None, unknown, (),
        )  # fmt: skip

    run_with_broker(tmp_path, scenario, {"auto.create.topics.enable": "true"})


def test_invalid_manual_assignments_have_kafkas_messages(tmp_path: Path) -> None:
    """For new topics and new partitions; the lowest invalid broker id is reported first."""
    prefix = "The manual partition assignment includes"

    async def scenario(client: BrokerClient) -> None:
        await client.topic("t")
        for brokers, message in (
            ((), f"{prefix} an empty replica list."),
            ((1, 2), f"{prefix} broker 2, but no such broker is registered."),
            ((1, 1, 0), f"{prefix} broker 0, but no such broker is registered."),
            ((2, 1, 1), f"{prefix} the broker 1 more than once."),
        ):
            assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=brokers)
            new = CreatableTopic(
                name="new", num_partitions=-1, replication_factor=-1, assignments=(assignment,)
            )
            (created,) = (await client.send(CreateTopicsRequest(topics=(new,)))).topics
            assert (created.error_code, created.error_message) == (Errors.INVALID_REPLICA_ASSIGNMENT, message)
            more = CreatePartitionsTopic(
                name="t", count=2, assignments=(CreatePartitionsAssignment(broker_ids=brokers),)
            )
            (grown,) = (await client.send(CreatePartitionsRequest(topics=(more,)))).results
            assert (grown.error_code, grown.error_message) == (Errors.INVALID_REPLICA_ASSIGNMENT, message)

    run_with_broker(tmp_path, scenario)
