package konvene.against;

import static konvene.against.Partitions.byName;
import static konvene.against.Partitions.offsets;
import static konvene.against.Partitions.pairs;
import static konvene.against.Partitions.partitions;
import static konvene.against.Partitions.quads;
import static konvene.against.Partitions.row;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ClassicGroupDescription;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DeletedRecords;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Apache Kafka's Admin client: one verb, one call, one plain answer. */
final class AdminRole implements Driver.Role {
    private final Admin admin;

    AdminRole(Driver.Command command) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", command.text("bootstrap"));
        settings.putAll(command.options());
        settings.put("client.id", command.text("client_id", "java"));
        settings.put("default.api.timeout.ms", 20_000);
        settings.put("request.timeout.ms", 10_000);
        admin = Admin.create(settings);
    }

    @Override
    public Object run(String verb, Driver.Command command) throws Exception {
        switch (verb) {
            case "create_topics": return createTopics(command);
            case "delete_topics": return done(admin.deleteTopics(command.<String>list("topics")).all());
            case "list_topics": return admin.listTopics().names().get();
            case "describe_topics": return describeTopics(command);
            case "create_partitions": return createPartitions(command);
            case "describe_configs": return describeConfigs(command);
            case "alter_configs": return alterConfigs(command);
            case "list_groups": return listGroups();
            case "describe_groups": return describeGroups(command);
            case "describe_classic_groups": return describeClassicGroups(command);
            case "describe_epochs": return describeEpochs(command);
            case "describe_share": return ShareGroups.described(admin, command.text("group"));
            case "share_offsets": return ShareGroups.offsets(admin, command.text("group"));
            case "alter_share_offsets": return ShareGroups.moved(admin, command);
            case "delete_share_offsets": return ShareGroups.forgotten(admin, command);
            case "delete_share_groups": return done(admin.deleteShareGroups(command.<String>list("groups")).all());
            case "describe_streams": return StreamsGroups.described(admin, command.text("group"));
            case "group_offsets":
                return quads(admin.listConsumerGroupOffsets(command.text("group")).partitionsToOffsetAndMetadata().get());
            case "alter_group_offsets":
                return done(admin.alterConsumerGroupOffsets(command.text("group"), offsets(command.list("offsets"))).all());
            case "delete_group_offsets":
                return done(admin.deleteConsumerGroupOffsets(
                    command.text("group"), Set.copyOf(partitions(command.list("partitions")))).all());
            case "delete_groups": return done(admin.deleteConsumerGroups(command.<String>list("groups")).all());
            case "remove_members": return removeMembers(command);
            case "list_offsets": return listOffsets(command);
            case "delete_records": return deleteRecords(command);
            case "describe_cluster": return describeCluster();
            case "list_transactions": return Transactions.listed(admin);
            case "describe_transactions": return Transactions.described(admin, command.list("ids"));
            case "describe_producers": return Transactions.producers(admin, partitions(command.list("partitions")));
            case "abort_transaction": return done(Transactions.aborted(admin, command).all());
            case "set_feature": return setFeature(command);
            case "fence_producers": return done(admin.fenceProducers(command.<String>list("ids")).all());
            default: throw new Driver.Unsupported(verb);
        }
    }

    private static Object done(KafkaFuture<?> future) throws Exception {
        future.get();
        return null;
    }

    private Object createTopics(Driver.Command command) throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (Object item : command.list("topics")) {
            Driver.Command topic = Driver.Command.of(item);
            topics.add(new NewTopic(topic.text("name"), (int) topic.number("partitions"), (short) 1).configs(topic.map("configs")));
        }
        return done(admin.createTopics(topics).all());
    }

    private Object describeTopics(Driver.Command command) throws Exception {
        Map<String, Object> told = new LinkedHashMap<>();
        for (TopicDescription topic : admin.describeTopics(command.<String>list("topics")).allTopicNames().get().values()) {
            told.put(topic.name(), Map.of("partitions", topic.partitions().size()));
        }
        return told;
    }

    private Object createPartitions(Driver.Command command) throws Exception {
        NewPartitions more = NewPartitions.increaseTo((int) command.number("count"));
        return done(admin.createPartitions(Map.of(command.text("topic"), more)).all());
    }

    private Object describeConfigs(Driver.Command command) throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, command.text("topic"));
        Map<String, Object> told = new LinkedHashMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(topic)).all().get().get(topic).entries()) {
            told.put(entry.name(), entry.value());
        }
        return told;
    }

    private Object alterConfigs(Driver.Command command) throws Exception {
        ConfigResource resource = command.has("topic")
            ? new ConfigResource(ConfigResource.Type.TOPIC, command.text("topic"))
            : new ConfigResource(ConfigResource.Type.GROUP, command.text("group"));
        List<AlterConfigOp> changes = new ArrayList<>();
        command.<String>map("configs").forEach(
            (name, value) -> changes.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        return done(admin.incrementalAlterConfigs(Map.of(resource, changes)).all());
    }

    private Object listGroups() throws Exception {
        List<Object> told = new ArrayList<>();
        for (GroupListing group : admin.listGroups().all().get()) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("group", group.groupId());
            row.put("protocol_type", group.protocol());
            row.put("state", group.groupState().map(Object::toString).orElse(null));
            row.put("type", group.type().map(Object::toString).orElse(null));
            told.add(row);
        }
        return told;
    }

    private Object describeGroups(Driver.Command command) throws Exception {
        Map<String, Object> told = new LinkedHashMap<>();
        for (ConsumerGroupDescription group : admin.describeConsumerGroups(command.<String>list("groups")).all().get().values()) {
            told.put(group.groupId(), group(group.groupState().toString(), group.partitionAssignor(), group.members()));
        }
        return told;
    }

    /** What only the consumer protocol has: epochs, targets, and of each member whether it speaks that protocol. */
    private Object describeEpochs(Driver.Command command) throws Exception {
        String id = command.text("group");
        ConsumerGroupDescription group = admin.describeConsumerGroups(List.of(id)).all().get().get(id);
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("type", group.type().toString());
        told.put("state", group.groupState().toString());
        told.put("assignor", group.partitionAssignor());
        told.put("group_epoch", group.groupEpoch().orElse(null));
        told.put("target_epoch", group.targetAssignmentEpoch().orElse(null));
        List<Object> rows = new ArrayList<>();
        for (MemberDescription member : group.members()) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("member_id", member.consumerId());
            row.put("client_id", member.clientId());
            row.put("instance_id", member.groupInstanceId().orElse(null));
            row.put("epoch", member.memberEpoch().orElse(null));
            row.put("upgraded", member.upgraded().orElse(null));
            row.put("partitions", pairs(member.assignment().topicPartitions()));
            row.put("target", member.targetAssignment().map(it -> (Object) pairs(it.topicPartitions())).orElse(null));
            rows.add(row);
        }
        told.put("members", rows);
        return told;
    }

    private Object describeClassicGroups(Driver.Command command) throws Exception {
        Map<String, Object> told = new LinkedHashMap<>();
        for (ClassicGroupDescription group : admin.describeClassicGroups(command.<String>list("groups")).all().get().values()) {
            told.put(group.groupId(), group(group.state().toString(), group.protocolData(), group.members()));
        }
        return told;
    }

    private static Map<String, Object> group(String state, String assignor, Iterable<MemberDescription> members) {
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("state", state);
        told.put("assignor", assignor);
        List<Object> rows = new ArrayList<>();
        for (MemberDescription member : members) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("member_id", member.consumerId());
            row.put("client_id", member.clientId());
            row.put("instance_id", member.groupInstanceId().orElse(null));
            row.put("host", member.host());
            row.put("partitions", pairs(member.assignment().topicPartitions()));
            rows.add(row);
        }
        told.put("members", rows);
        return told;
    }

    private Object removeMembers(Driver.Command command) throws Exception {
        List<MemberToRemove> members = new ArrayList<>();
        for (Object instance : command.list("instance_ids")) members.add(new MemberToRemove((String) instance));
        RemoveMembersFromConsumerGroupOptions options = new RemoveMembersFromConsumerGroupOptions(members);
        Optional.ofNullable(command.text("reason")).ifPresent(options::reason);
        return done(admin.removeMembersFromConsumerGroup(command.text("group"), options).all());
    }

    private Object listOffsets(Driver.Command command) throws Exception {
        Object at = command.fields().get("at");
        OffsetSpec spec = "earliest".equals(at) ? OffsetSpec.earliest()
            : "latest".equals(at) ? OffsetSpec.latest()
            : "max_timestamp".equals(at) ? OffsetSpec.maxTimestamp()
            : OffsetSpec.forTimestamp(((Number) at).longValue());
        Map<TopicPartition, OffsetSpec> specs = new LinkedHashMap<>();
        for (TopicPartition partition : partitions(command.list("partitions"))) specs.put(partition, spec);
        List<Object> rows = new ArrayList<>();
        for (Map.Entry<TopicPartition, ListOffsetsResultInfo> entry : byName(admin.listOffsets(specs, isolation(command)).all().get()).entrySet()) {
            rows.add(row(entry.getKey(), entry.getValue().offset(), entry.getValue().timestamp()));
        }
        return rows;
    }

    private static ListOffsetsOptions isolation(Driver.Command command) {
        boolean committed = command.text("isolation_level", "").equals("read_committed");
        return new ListOffsetsOptions(committed ? IsolationLevel.READ_COMMITTED : IsolationLevel.READ_UNCOMMITTED);
    }

    private Object deleteRecords(Driver.Command command) throws Exception {
        Map<TopicPartition, RecordsToDelete> before = new LinkedHashMap<>();
        offsets(command.list("offsets")).forEach((partition, at) -> before.put(partition, RecordsToDelete.beforeOffset(at.offset())));
        List<Object> rows = new ArrayList<>();
        for (Map.Entry<TopicPartition, KafkaFuture<DeletedRecords>> entry
                : byName(admin.deleteRecords(before).lowWatermarks()).entrySet()) {
            rows.add(row(entry.getKey(), entry.getValue().get().lowWatermark()));
        }
        return rows;
    }

    private Object setFeature(Driver.Command command) throws Exception {
        FeatureUpdate.UpgradeType kind = FeatureUpdate.UpgradeType.valueOf(command.text("kind", "SAFE_DOWNGRADE"));
        FeatureUpdate update = new FeatureUpdate((short) command.number("level"), kind);
        return done(admin.updateFeatures(Map.of(command.text("feature"), update), new UpdateFeaturesOptions()).all());
    }

    private Object describeCluster() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        List<Object> brokers = new ArrayList<>();
        for (Node node : cluster.nodes().get()) brokers.add(List.of(node.id(), node.host(), node.port()));
        return Map.of("cluster_id", cluster.clusterId().get(), "brokers", brokers);
    }

    @Override
    public boolean step() {
        return false;
    }

    @Override
    public void close() {
        admin.close();
    }
}
