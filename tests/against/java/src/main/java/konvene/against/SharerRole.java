package konvene.against;

import static konvene.against.Partitions.row;
import static org.apache.kafka.clients.consumer.ConsumerConfig.*;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;

import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a share group. It polls and acknowledges as it is told, or goes on by itself: then it answers each record
 * with the type that it was given, and tells what came of its answers.
 */
final class SharerRole implements Driver.Role {
    private final KafkaShareConsumer<String, String> consumer;
    private final boolean explicit;
    private final String type;
    private final long lingerMs;
    private final Map<String, ConsumerRecord<String, String>> polled = new HashMap<>();
    private boolean going;

    SharerRole(Driver.Command command) {
        consumer = new KafkaShareConsumer<>(settings(command), new StringDeserializer(), new StringDeserializer());
        explicit = command.text("mode", "implicit").equals("explicit");
        type = command.text("type", "ACCEPT").toUpperCase();
        lingerMs = command.number("linger_ms", 0);
        going = command.flag("go");
        consumer.setAcknowledgementCommitCallback(SharerRole::tell);
        consumer.subscribe(command.<String>list("topics"));
    }

    private static Properties settings(Driver.Command command) {
        Properties settings = new Properties();
        settings.put(BOOTSTRAP_SERVERS_CONFIG, command.text("bootstrap"));
        settings.put(CLIENT_ID_CONFIG, command.text("client_id"));
        settings.put(GROUP_ID_CONFIG, command.text("group"));
        settings.put(SHARE_ACKNOWLEDGEMENT_MODE_CONFIG, command.text("mode", "implicit"));
        settings.put(SHARE_ACQUIRE_MODE_CONFIG, command.text("acquire", "batch_optimized"));
        settings.put(MAX_POLL_RECORDS_CONFIG, (int) command.number("max_poll_records", 500));
        settings.put(FETCH_MAX_WAIT_MS_CONFIG, 200);
        settings.put(METADATA_MAX_AGE_CONFIG, (int) command.number("metadata_max_age_ms", 300_000));
        settings.put(RECONNECT_BACKOFF_MAX_MS_CONFIG, 500);
        settings.putAll(command.options());
        return settings;
    }

    /** What became of acknowledgements, as the client heard it. */
    private static void tell(Map<TopicIdPartition, Set<Long>> offsets, Exception failed) {
        List<Object> rows = new ArrayList<>();
        offsets.forEach((at, some) -> rows.add(row(at.topicPartition(), new ArrayList<>(new TreeSet<>(some)))));
        if (failed == null) Driver.emit("acknowledged", "offsets", rows);
        else Driver.emit("acknowledge_failed", "offsets", rows, "error", Driver.error(failed));
    }

    @Override
    public Object run(String verb, Driver.Command command) {
        switch (verb) {
            case "poll": return poll(Duration.ofMillis(command.number("within_ms", 10_000)));
            case "acknowledge": return acknowledge(command);
            case "commit": return commit();
            case "commit_async": consumer.commitAsync(); return null;
            case "subscribe": consumer.subscribe(command.<String>list("topics")); return null;
            case "unsubscribe": consumer.unsubscribe(); return null;
            case "lock_ms": return consumer.acquisitionLockTimeoutMs().orElse(null);
            case "go": going = true; return null;
            case "hold": going = false; return null;
            case "leave": close(); return null;
            default: throw new Driver.Unsupported(verb);
        }
    }

    /** One poll that brings something, or nothing within the time. */
    private List<Object> poll(Duration within) {
        long deadline = System.nanoTime() + within.toNanos();
        List<Object> told = new ArrayList<>();
        while (told.isEmpty() && System.nanoTime() < deadline) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                told.add(told(record));
                polled.put(List.of(record.topic(), record.partition(), record.offset()).toString(), record);
            }
        }
        return told;
    }

    private Object acknowledge(Driver.Command command) {
        AcknowledgeType type = AcknowledgeType.valueOf(command.text("type").toUpperCase());
        for (Object at : command.list("offsets")) consumer.acknowledge(polled.get(at.toString()), type);
        return null;
    }

    /** `[topic, partition, error]` of each partition of which something was said. */
    private Object commit() {
        List<Object> rows = new ArrayList<>();
        Map<TopicPartition, Object> byPartition = new LinkedHashMap<>();
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> entry : consumer.commitSync(Duration.ofSeconds(20)).entrySet()) {
            Object error = entry.getValue().map(failed -> Driver.error(failed).get("name")).orElse(null);
            byPartition.put(entry.getKey().topicPartition(), error);
        }
        Partitions.byName(byPartition).forEach((at, error) -> rows.add(row(at, error)));
        return rows;
    }

    @Override
    public boolean step() throws InterruptedException {
        if (!going) return false;
        List<Object> told = new ArrayList<>();
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
        for (ConsumerRecord<String, String> record : records) told.add(told(record));
        if (told.isEmpty()) return true;
        Driver.emit("records", "records", told);
        Thread.sleep(lingerMs);
        if (explicit) records.forEach(record -> consumer.acknowledge(record, AcknowledgeType.valueOf(type)));
        consumer.commitAsync();
        return true;
    }

    private static Map<String, Object> told(ConsumerRecord<String, String> record) {
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("topic", record.topic());
        told.put("partition", record.partition());
        told.put("offset", record.offset());
        told.put("value", record.value());
        told.put("delivery_count", record.deliveryCount().map(Short::intValue).orElse(null));
        return told;
    }

    @Override
    public void close() {
        going = false;
        consumer.close(Duration.ofSeconds(15));
    }
}
