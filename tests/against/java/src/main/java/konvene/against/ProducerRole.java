package konvene.against;

import static org.apache.kafka.clients.producer.ProducerConfig.*;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.Future;

import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A producer: of the records it is handed (send), or of a stream of unique values at a rate (stream, settle); with a
 * transactional id of transactions, too.
 */
final class ProducerRole implements Driver.Role {
    private final KafkaProducer<String, String> producer;
    private final Object lock = new Object();
    private List<Object> acked = new ArrayList<>();
    private long ackedTotal;
    private long failedTotal;
    private Driver.Command stream;
    private long streamStarted;
    private long sent;

    ProducerRole(Driver.Command command) {
        Properties settings = new Properties();
        settings.put(BOOTSTRAP_SERVERS_CONFIG, command.text("bootstrap"));
        settings.put(CLIENT_ID_CONFIG, command.text("client_id", "java"));
        settings.put(ACKS_CONFIG, "all");
        settings.put(ENABLE_IDEMPOTENCE_CONFIG, command.flag("idempotence"));
        settings.put(COMPRESSION_TYPE_CONFIG, command.text("compression", "none"));
        settings.put(LINGER_MS_CONFIG, (int) command.number("linger_ms", 5));
        settings.put(METADATA_MAX_AGE_CONFIG, (int) command.number("metadata_max_age_ms", 300_000));
        if (command.has("transactional_id")) {
            settings.put(ENABLE_IDEMPOTENCE_CONFIG, true);
            settings.put(TRANSACTIONAL_ID_CONFIG, command.text("transactional_id"));
            settings.put(TRANSACTION_TIMEOUT_CONFIG, (int) command.number("transaction_timeout_ms", 60_000));
        }
        settings.putAll(command.options());
        producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    @Override
    public Object run(String verb, Driver.Command command) throws Exception {
        switch (verb) {
            case "send": return send(command);
            case "stream": return stream(command);
            case "settle": return settle();
            case "init": producer.initTransactions(); return null;
            case "begin": producer.beginTransaction(); return null;
            case "offsets": return sendOffsets(command);
            case "commit": producer.commitTransaction(); return null;
            case "abort": producer.abortTransaction(); return null;
            default: throw new Driver.Unsupported(verb);
        }
    }

    private Object sendOffsets(Driver.Command command) {
        ConsumerGroupMetadata group = command.has("member_id")
            ? new ConsumerGroupMetadata(command.text("group"), (int) command.number("generation"),
                command.text("member_id"), Optional.ofNullable(command.text("instance_id")))
            : new ConsumerGroupMetadata(command.text("group"));
        producer.sendOffsetsToTransaction(Partitions.offsets(command.list("offsets")), group);
        return null;
    }

    private Object send(Driver.Command command) throws Exception {
        List<Future<RecordMetadata>> sending = new ArrayList<>();
        for (Object fields : command.list("records")) sending.add(producer.send(record(Driver.Command.of(fields))));
        producer.flush();
        List<Object> rows = new ArrayList<>();
        for (Future<RecordMetadata> future : sending) {
            RecordMetadata metadata = future.get();
            rows.add(List.of(metadata.topic(), metadata.partition(), metadata.offset(), metadata.timestamp()));
        }
        return rows;
    }

    private static ProducerRecord<String, String> record(Driver.Command fields) {
        Integer partition = fields.has("partition") ? (int) fields.number("partition") : null;
        Long timestamp = fields.has("timestamp") ? fields.number("timestamp") : null;
        ProducerRecord<String, String> record =
            new ProducerRecord<>(fields.text("topic"), partition, timestamp, fields.text("key"), fields.text("value"));
        for (Object item : fields.list("headers")) {
            List<?> pair = (List<?>) item;
            byte[] value = pair.get(1) == null ? null : ((String) pair.get(1)).getBytes(StandardCharsets.UTF_8);
            record.headers().add((String) pair.get(0), value);
        }
        return record;
    }

    private Object stream(Driver.Command command) {
        stream = command;
        streamStarted = System.nanoTime();
        sent = 0;
        return null;
    }

    @Override
    public boolean step() throws Exception {
        if (stream == null) return false;
        long due = (System.nanoTime() - streamStarted) / 1_000_000 * stream.number("rate_per_s") / 1000;
        for (long most = stream.number("count"); sent < Math.min(due, most); sent++) sendOne(stream.text("prefix") + sent);
        tellAcked();
        Thread.sleep(20);
        return true;
    }

    private void sendOne(String value) {
        producer.send(new ProducerRecord<>(stream.text("topic"), value, value), (metadata, thrown) -> {
            synchronized (lock) {
                if (thrown == null) {
                    acked.add(value);
                    ackedTotal++;
                } else {
                    failedTotal++;
                    Driver.emit("failed", "value", value, "error", Driver.error(thrown));
                }
            }
        });
    }

    private void tellAcked() {
        synchronized (lock) {
            if (!acked.isEmpty()) Driver.emit("acked", "values", acked);
            acked = new ArrayList<>();
        }
    }

    private Object settle() {
        stream = null;
        producer.flush();
        tellAcked();
        Map<String, Object> totals = new LinkedHashMap<>();
        totals.put("sent", sent);
        totals.put("acked", ackedTotal);
        totals.put("failed", failedTotal);
        return totals;
    }

    @Override
    public void close() {
        producer.close();
    }
}
