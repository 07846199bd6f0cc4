package konvene.against;

import static konvene.against.Partitions.byName;
import static konvene.against.Partitions.offsets;
import static konvene.against.Partitions.pairs;
import static konvene.against.Partitions.partitions;
import static konvene.against.Partitions.quads;
import static konvene.against.Partitions.row;
import static org.apache.kafka.clients.consumer.ConsumerConfig.*;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;

import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a group, or a reader of partitions it was told: polls, tells what it read, commits what it told. */
final class ConsumerRole implements Driver.Role, ConsumerRebalanceListener {
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private final KafkaConsumer<String, String> consumer;
    private final String commit;
    private final CloseOptions closing;
    private boolean held;

    ConsumerRole(Driver.Command command) {
        consumer = new KafkaConsumer<>(settings(command), new StringDeserializer(), new StringDeserializer());
        commit = command.text("commit", "none");
        closing = CloseOptions.groupMembershipOperation(
            GroupMembershipOperation.valueOf(command.text("on_close", "default").toUpperCase()));
        if (command.has("assign")) consumer.assign(partitions(command.list("assign")));
        else if (command.has("topics")) consumer.subscribe(command.<String>list("topics"), this);
        else if (command.has("pattern")) consumer.subscribe(new SubscriptionPattern(command.text("pattern")), this);
        else held = true;
    }

    private static Properties settings(Driver.Command command) {
        Properties settings = new Properties();
        settings.put(BOOTSTRAP_SERVERS_CONFIG, command.text("bootstrap"));
        settings.put(CLIENT_ID_CONFIG, command.text("client_id", "java"));
        settings.put(AUTO_OFFSET_RESET_CONFIG, command.text("offset_reset", "earliest"));
        settings.put(ENABLE_AUTO_COMMIT_CONFIG, command.text("commit", "none").equals("auto"));
        settings.put(AUTO_COMMIT_INTERVAL_MS_CONFIG, (int) command.number("auto_commit_interval_ms", 500));
        settings.put(MAX_POLL_RECORDS_CONFIG, (int) command.number("max_poll_records", 500));
        settings.put(MAX_POLL_INTERVAL_MS_CONFIG, (int) command.number("max_poll_interval_ms", 300_000));
        settings.put(ISOLATION_LEVEL_CONFIG, command.text("isolation_level", "read_uncommitted"));
        settings.put(METADATA_MAX_AGE_CONFIG, (int) command.number("metadata_max_age_ms", 300_000));
        settings.put("metadata.recovery.strategy", command.text("metadata_recovery_strategy", "rebootstrap"));
        settings.put(ALLOW_AUTO_CREATE_TOPICS_CONFIG, false);
        settings.putAll(command.options());
        if (!command.has("group")) return settings;
        settings.put(GROUP_ID_CONFIG, command.text("group"));
        if (command.has("instance_id")) settings.put(GROUP_INSTANCE_ID_CONFIG, command.text("instance_id"));
        settings.put(GROUP_PROTOCOL_CONFIG, command.text("protocol", "classic"));
        if (command.has("remote_assignor")) settings.put(GROUP_REMOTE_ASSIGNOR_CONFIG, command.text("remote_assignor"));
        if (command.text("protocol", "classic").equals("consumer")) return settings;
        List<String> assignors = new ArrayList<>();
        for (String name : command.text("assignor", "range").split(",")) assignors.add(ASSIGNORS.get(name));
        settings.put(PARTITION_ASSIGNMENT_STRATEGY_CONFIG, assignors);
        settings.put(SESSION_TIMEOUT_MS_CONFIG, (int) command.number("session_timeout_ms", 6000));
        settings.put(HEARTBEAT_INTERVAL_MS_CONFIG, (int) command.number("heartbeat_interval_ms", 500));
        return settings;
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        Driver.emit("assigned", "partitions", pairs(partitions));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        Driver.emit("revoked", "partitions", pairs(partitions));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        Driver.emit("lost", "partitions", pairs(partitions));
    }

    @Override
    public boolean step() {
        if (held) return false;
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
        if (records.isEmpty()) return true;
        List<Object> told = new ArrayList<>();
        Map<TopicPartition, OffsetAndMetadata> next = new LinkedHashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            told.add(told(record));
            next.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        Driver.emit("records", "records", told);
        if (commit.equals("sync")) commit(next);
        if (commit.equals("async")) consumer.commitAsync(next, ConsumerRole::tellCommit);
        return true;
    }

    private static void tellCommit(Map<TopicPartition, OffsetAndMetadata> offsets, Exception failed) {
        if (failed == null) Driver.emit("committed", "offsets", quads(offsets));
        else Driver.emit("commit_failed", "offsets", quads(offsets), "error", Driver.error(failed));
    }

    private void commit(Map<TopicPartition, OffsetAndMetadata> offsets) {
        try {
            consumer.commitSync(offsets);
            tellCommit(offsets, null);
        } catch (CommitFailedException | org.apache.kafka.common.errors.RetriableException
                 | org.apache.kafka.common.errors.FencedInstanceIdException e) {
            tellCommit(offsets, e);
        }
    }

    @Override
    public Object run(String verb, Driver.Command command) {
        switch (verb) {
            case "hold": held = true; return null;
            case "go": held = false; return null;
            case "member": return member();
            case "position": return positions(command);
            case "commit": return commitNow(command);
            case "committed": return quads(consumer.committed(java.util.Set.copyOf(partitions(command.list("partitions")))));
            case "seek": return seek(command);
            case "pause": consumer.pause(partitions(command.list("partitions"))); return null;
            case "resume": consumer.resume(partitions(command.list("partitions"))); return null;
            case "offsets_for_times": return offsetsForTimes(command);
            case "watermarks": return watermarks(command);
            case "subscribe": return subscribe(command);
            case "unsubscribe": return unsubscribe();
            default: throw new Driver.Unsupported(verb);
        }
    }

    private Object member() {
        Map<String, Object> member = new LinkedHashMap<>();
        member.put("member_id", consumer.groupMetadata().memberId());
        member.put("generation", consumer.groupMetadata().generationId());
        return member;
    }

    private Object positions(Driver.Command command) {
        List<Object> positions = new ArrayList<>();
        for (TopicPartition partition : partitions(command.list("partitions"))) {
            positions.add(List.of(partition.topic(), partition.partition(), consumer.position(partition)));
        }
        return positions;
    }

    private Object commitNow(Driver.Command command) {
        Map<TopicPartition, OffsetAndMetadata> offsets = offsets(command.list("offsets"));
        consumer.commitSync(offsets);
        Driver.emit("committed", "offsets", quads(offsets));
        return null;
    }

    private Object subscribe(Driver.Command command) {
        consumer.subscribe(command.<String>list("topics"), this);
        held = false;
        return null;
    }

    private Object unsubscribe() {
        consumer.unsubscribe();
        held = true;
        return null;
    }

    private Object seek(Driver.Command command) {
        consumer.seek(new TopicPartition(command.text("topic"), (int) command.number("partition")), command.number("offset"));
        return null;
    }

    private Object offsetsForTimes(Driver.Command command) {
        Map<TopicPartition, Long> times = new LinkedHashMap<>();
        for (TopicPartition partition : partitions(command.list("partitions"))) times.put(partition, command.number("timestamp"));
        List<Object> found = new ArrayList<>();
        for (Map.Entry<TopicPartition, OffsetAndTimestamp> entry : new TreeMap<>(byName(consumer.offsetsForTimes(times))).entrySet()) {
            OffsetAndTimestamp at = entry.getValue();
            found.add(row(entry.getKey(), at == null ? -1L : at.offset(), at == null ? -1L : at.timestamp()));
        }
        return found;
    }

    private Object watermarks(Driver.Command command) {
        List<TopicPartition> partitions = partitions(command.list("partitions"));
        Map<TopicPartition, Long> low = consumer.beginningOffsets(partitions);
        Map<TopicPartition, Long> high = consumer.endOffsets(partitions);
        List<Object> rows = new ArrayList<>();
        for (TopicPartition partition : partitions) rows.add(row(partition, low.get(partition), high.get(partition)));
        return rows;
    }

    @Override
    public void close() {
        consumer.close(closing);
    }

    private static Map<String, Object> told(ConsumerRecord<String, String> record) {
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("topic", record.topic());
        told.put("partition", record.partition());
        told.put("offset", record.offset());
        told.put("timestamp", record.timestamp());
        told.put("key", record.key());
        told.put("value", record.value());
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<Object> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(header.value() == null ? null : new String(header.value(), java.nio.charset.StandardCharsets.UTF_8));
            headers.add(pair);
        }
        told.put("headers", headers);
        return told;
    }
}
