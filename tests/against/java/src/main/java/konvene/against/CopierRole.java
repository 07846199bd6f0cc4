package konvene.against;

import static org.apache.kafka.clients.consumer.ConsumerConfig.*;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Reads, writes what it read to the partition of the same number of another topic, and commits both in one
 * transaction. What goes wrong is aborted; where that cannot be, a new producer takes the transactional id over; then
 * it reads on from what is committed. It knows nothing that a client of 3.9 does not know.
 */
final class CopierRole implements Driver.Role, ConsumerRebalanceListener {
    private final Driver.Command given;
    private final KafkaConsumer<String, String> consumer;
    private KafkaProducer<String, String> producer;
    private boolean astray;

    CopierRole(Driver.Command command) {
        given = command;
        consumer = new KafkaConsumer<>(reading(command), new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(command.text("from")), this);
    }

    private static Properties reading(Driver.Command command) {
        Properties settings = new Properties();
        settings.put(BOOTSTRAP_SERVERS_CONFIG, command.text("bootstrap"));
        settings.put(CLIENT_ID_CONFIG, command.text("client_id"));
        settings.put(GROUP_ID_CONFIG, command.text("group"));
        settings.put(AUTO_OFFSET_RESET_CONFIG, "earliest");
        settings.put(ENABLE_AUTO_COMMIT_CONFIG, false);
        settings.put(ISOLATION_LEVEL_CONFIG, "read_committed");
        settings.put(MAX_POLL_RECORDS_CONFIG, (int) command.number("most", 20));
        settings.put(ALLOW_AUTO_CREATE_TOPICS_CONFIG, false);
        settings.put("metadata.recovery.strategy", "none");
        settings.putAll(command.options());
        if (command.has("instance_id")) settings.put(GROUP_INSTANCE_ID_CONFIG, command.text("instance_id"));
        if (command.text("protocol", "classic").equals("consumer")) {
            settings.put("group.protocol", "consumer");
            return settings;
        }
        settings.put(PARTITION_ASSIGNMENT_STRATEGY_CONFIG, "org.apache.kafka.clients.consumer.RoundRobinAssignor");
        settings.put(SESSION_TIMEOUT_MS_CONFIG, (int) command.number("session_timeout_ms", 6000));
        settings.put(HEARTBEAT_INTERVAL_MS_CONFIG, 300);
        return settings;
    }

    private static KafkaProducer<String, String> writing(Driver.Command command) {
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, command.text("bootstrap"));
        settings.put(ProducerConfig.CLIENT_ID_CONFIG, command.text("client_id"));
        settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, command.text("transactional_id"));
        settings.put(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, (int) command.number("transaction_timeout_ms", 10_000));
        settings.put("metadata.recovery.strategy", "none");
        settings.putAll(command.options());
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        Driver.emit("assigned", "partitions", Partitions.pairs(partitions));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        Driver.emit("revoked", "partitions", Partitions.pairs(partitions));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        Driver.emit("lost", "partitions", Partitions.pairs(partitions));
    }

    @Override
    public Object run(String verb, Driver.Command command) {
        throw new Driver.Unsupported(verb);
    }

    @Override
    public boolean step() {
        try {
            if (producer == null) {
                producer = writing(given);
                producer.initTransactions();
            }
            if (astray) goBack();
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
            if (!records.isEmpty()) copy(records);
        } catch (KafkaException thrown) {
            Driver.emit("failed", "error", Driver.error(thrown));
            astray = true;
            if (thrown instanceof TimeoutException || !aborted()) replaceProducer();
        }
        return true;
    }

    private void copy(ConsumerRecords<String, String> records) {
        List<Object> values = new ArrayList<>();
        Map<TopicPartition, OffsetAndMetadata> next = new LinkedHashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<String, String> it : records) {
            producer.send(new ProducerRecord<>(given.text("to"), it.partition(), it.key(), it.value()));
            next.put(new TopicPartition(it.topic(), it.partition()), new OffsetAndMetadata(it.offset() + 1));
            values.add(it.value());
        }
        producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
        producer.commitTransaction();
        Driver.emit("copied", "values", values);
    }

    private boolean aborted() {
        if (producer == null) return false;
        try {
            producer.abortTransaction();
            return true;
        } catch (KafkaException | IllegalStateException thrown) {
            return false;
        }
    }

    private void replaceProducer() {
        if (producer != null) producer.close(Duration.ZERO);
        producer = null;
    }

    /** Whoever has aborted reads again from what is committed. */
    private void goBack() {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata at = committed.get(partition);
            if (at != null) consumer.seek(partition, at);
            else consumer.seekToBeginning(List.of(partition));
        }
        astray = false;
    }

    @Override
    public void close() {
        if (producer != null) producer.close(Duration.ofSeconds(5));
        consumer.close();
    }
}
