"""Kafka's APIs and their messages: a row of `API_KEYS` and a module of declarations for each API.

The broker derives its ApiVersions response and its handlers from `API_KEYS`, and the client its requests. An
API's module is imported when the API is first used, so that a process loads only what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from konvene.codec.schema import Struct, Versions


class Api(NamedTuple):
    """One API: its key, Kafka's name for it, the module with its messages, and its versions in Kafka 4.4."""

    key: int
    name: str
    module: str
    versions: Versions
    latest_stable: int
    first_flexible: int
    """First version with tagged fields and compact lengths; above the last if there is none."""

    @property
    def request(self) -> type[Struct]:
        return self._struct("Request")

    @property
    def response(self) -> type[Struct]:
        return self._struct("Response")

    def _struct(self, kind: str) -> type[Struct]:
        found: type[Struct] = getattr(import_module(f"konvene.messages.{self.module}"), self.name + kind)
        return found

    def request_header_version(self, version: int) -> int:
        return 2 if version >= self.first_flexible else 1

    def response_header_version(self, version: int) -> int:
        """Return the version of the response's header for a request of `version`.

        It is 0 for every version of ApiVersions, so that a client of any age can read the response.
        """
        return 1 if version >= self.first_flexible and self.key != API_VERSIONS else 0


API_VERSIONS = 18

_ROWS = (
    (0, "Produce", "produce", 3, 13, 13, 9),
    (1, "Fetch", "fetch", 4, 18, 18, 12),
    (2, "ListOffsets", "list_offsets", 1, 11, 11, 6),
    (3, "Metadata", "metadata", 0, 13, 13, 9),
    (8, "OffsetCommit", "offset_commit", 2, 10, 10, 8),
    (9, "OffsetFetch", "offset_fetch", 1, 10, 10, 6),
    (10, "FindCoordinator", "find_coordinator", 0, 6, 6, 3),
    (11, "JoinGroup", "join_group", 0, 9, 9, 6),
    (12, "Heartbeat", "heartbeat", 0, 4, 4, 4),
    (13, "LeaveGroup", "leave_group", 0, 5, 5, 4),
    (14, "SyncGroup", "sync_group", 0, 5, 5, 4),
    (15, "DescribeGroups", "describe_groups", 0, 6, 6, 5),
    (16, "ListGroups", "list_groups", 0, 5, 5, 3),
    (17, "SaslHandshake", "sasl_handshake", 0, 1, 1, 2),
    (18, "ApiVersions", "api_versions", 0, 5, 5, 3),
    (19, "CreateTopics", "create_topics", 2, 7, 7, 5),
    (20, "DeleteTopics", "delete_topics", 1, 6, 6, 4),
    (21, "DeleteRecords", "delete_records", 0, 2, 2, 2),
    (22, "InitProducerId", "init_producer_id", 0, 6, 5, 2),
    (23, "OffsetForLeaderEpoch", "offset_for_leader_epoch", 2, 4, 4, 4),
    (24, "AddPartitionsToTxn", "add_partitions_to_txn", 0, 5, 5, 3),
    (25, "AddOffsetsToTxn", "add_offsets_to_txn", 0, 4, 4, 3),
    (26, "EndTxn", "end_txn", 0, 5, 5, 3),
    (27, "WriteTxnMarkers", "write_txn_markers", 1, 2, 2, 1),
    (28, "TxnOffsetCommit", "txn_offset_commit", 0, 6, 6, 3),
    (29, "DescribeAcls", "describe_acls", 1, 3, 3, 2),
    (30, "CreateAcls", "create_acls", 1, 3, 3, 2),
    (31, "DeleteAcls", "delete_acls", 1, 3, 3, 2),
    (32, "DescribeConfigs", "describe_configs", 1, 4, 4, 4),
    (33, "AlterConfigs", "alter_configs", 0, 2, 2, 2),
    (34, "AlterReplicaLogDirs", "alter_replica_log_dirs", 1, 2, 2, 2),
    (35, "DescribeLogDirs", "describe_log_dirs", 1, 5, 5, 2),
    (36, "SaslAuthenticate", "sasl_authenticate", 0, 2, 2, 2),
    (37, "CreatePartitions", "create_partitions", 0, 3, 3, 2),
    (38, "CreateDelegationToken", "create_delegation_token", 1, 3, 3, 2),
    (39, "RenewDelegationToken", "renew_delegation_token", 1, 2, 2, 2),
    (40, "ExpireDelegationToken", "expire_delegation_token", 1, 2, 2, 2),
    (41, "DescribeDelegationToken", "describe_delegation_token", 1, 3, 3, 2),
    (42, "DeleteGroups", "delete_groups", 0, 3, 3, 2),
    (43, "ElectLeaders", "elect_leaders", 0, 2, 2, 2),
    (44, "IncrementalAlterConfigs", "incremental_alter_configs", 0, 1, 1, 1),
    (45, "AlterPartitionReassignments", "alter_partition_reassignments", 0, 1, 1, 0),
    (46, "ListPartitionReassignments", "list_partition_reassignments", 0, 0, 0, 0),
    (47, "OffsetDelete", "offset_delete", 0, 0, 0, 1),
    (48, "DescribeClientQuotas", "describe_client_quotas", 0, 1, 1, 1),
    (49, "AlterClientQuotas", "alter_client_quotas", 0, 1, 1, 1),
    (50, "DescribeUserScramCredentials", "describe_user_scram_credentials", 0, 0, 0, 0),
    (51, "AlterUserScramCredentials", "alter_user_scram_credentials", 0, 0, 0, 0),
    (52, "Vote", "vote", 0, 2, 2, 0),
    (53, "BeginQuorumEpoch", "begin_quorum_epoch", 0, 1, 1, 1),
    (54, "EndQuorumEpoch", "end_quorum_epoch", 0, 1, 1, 1),
    (55, "DescribeQuorum", "describe_quorum", 0, 2, 2, 0),
    (56, "AlterPartition", "alter_partition", 2, 3, 3, 2),
    (57, "UpdateFeatures", "update_features", 0, 2, 2, 0),
    (58, "Envelope", "envelope", 0, 0, 0, 0),
    (59, "FetchSnapshot", "fetch_snapshot", 0, 1, 1, 0),
    (60, "DescribeCluster", "describe_cluster", 0, 2, 2, 0),
    (61, "DescribeProducers", "describe_producers", 0, 0, 0, 0),
    (62, "BrokerRegistration", "broker_registration", 0, 4, 4, 0),
    (63, "BrokerHeartbeat", "broker_heartbeat", 0, 2, 2, 0),
    (64, "UnregisterBroker", "unregister_broker", 0, 0, 0, 0),
    (65, "DescribeTransactions", "describe_transactions", 0, 0, 0, 0),
    (66, "ListTransactions", "list_transactions", 0, 2, 2, 0),
    (67, "AllocateProducerIds", "allocate_producer_ids", 0, 0, 0, 0),
    (68, "ConsumerGroupHeartbeat", "consumer_group_heartbeat", 0, 1, 1, 0),
    (69, "ConsumerGroupDescribe", "consumer_group_describe", 0, 1, 1, 0),
    (70, "ControllerRegistration", "controller_registration", 0, 0, 0, 0),
    (71, "GetTelemetrySubscriptions", "get_telemetry_subscriptions", 0, 0, 0, 0),
    (72, "PushTelemetry", "push_telemetry", 0, 0, 0, 0),
    (73, "AssignReplicasToDirs", "assign_replicas_to_dirs", 0, 0, 0, 0),
    (74, "ListConfigResources", "list_config_resources", 0, 1, 1, 0),
    (75, "DescribeTopicPartitions", "describe_topic_partitions", 0, 0, 0, 0),
    (76, "ShareGroupHeartbeat", "share_group_heartbeat", 1, 1, 1, 1),
    (77, "ShareGroupDescribe", "share_group_describe", 1, 1, 1, 1),
    (78, "ShareFetch", "share_fetch", 1, 2, 2, 1),
    (79, "ShareAcknowledge", "share_acknowledge", 1, 2, 2, 1),
    (80, "AddRaftVoter", "add_raft_voter", 0, 1, 1, 0),
    (81, "RemoveRaftVoter", "remove_raft_voter", 0, 0, 0, 0),
    (82, "UpdateRaftVoter", "update_raft_voter", 0, 0, 0, 0),
    (83, "InitializeShareGroupState", "initialize_share_group_state", 0, 0, 0, 0),
    (84, "ReadShareGroupState", "read_share_group_state", 0, 0, 0, 0),
    (85, "WriteShareGroupState", "write_share_group_state", 0, 1, 1, 0),
    (86, "DeleteShareGroupState", "delete_share_group_state", 0, 0, 0, 0),
    (87, "ReadShareGroupStateSummary", "read_share_group_state_summary", 0, 1, 1, 0),
    (88, "StreamsGroupHeartbeat", "streams_group_heartbeat", 0, 1, 1, 0),
    (89, "StreamsGroupDescribe", "streams_group_describe", 0, 1, 1, 0),
    (90, "DescribeShareGroupOffsets", "describe_share_group_offsets", 0, 1, 1, 0),
    (91, "AlterShareGroupOffsets", "alter_share_group_offsets", 0, 0, 0, 0),
    (92, "DeleteShareGroupOffsets", "delete_share_group_offsets", 0, 0, 0, 0),
    (93, "StreamsGroupTopologyDescriptionUpdate", "streams_group_topology_description_update", 0, 0, 0, 0),
    (94, "UnregisterController", "unregister_controller", 0, 0, 0, 0),
)  # fmt: skip

API_KEYS: dict[int, Api] = {
    key: Api(key, name, module, Versions(oldest, latest), stable, flexible)
    for key, name, module, oldest, latest, stable, flexible in _ROWS
}
BY_NAME: dict[str, Api] = {api.name: api for api in API_KEYS.values()}
