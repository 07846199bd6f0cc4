package konvene.against;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Instances of Kafka Streams applications, several in one process since a JVM is slow to start, each with clients and a
 * process id of its own; those that are to be killed are put into a process of their own. Beside them the same process
 * writes what they read, reads what they have written, and asks the broker what an admin client may ask.
 */
final class StreamsApps implements Driver.Role {
    private final Driver.Command given;
    private final Map<String, StreamsInstance> instances = new LinkedHashMap<>();
    private final AdminRole admin;
    private KafkaProducer<String, String> writer;
    private KafkaConsumer<String, String> reader;

    StreamsApps(Driver.Command command) {
        given = command;
        admin = new AdminRole(command);
    }

    @Override
    public Object run(String verb, Driver.Command command) throws Exception {
        switch (verb) {
            case "launch": return launch(command);
            case "state": return instance(command).state();
            case "tasks": return instance(command).tasks();
            case "lags": return instance(command).lags();
            case "everybody": return instance(command).everybody();
            case "owners": return instance(command).owners(command.list("keys"));
            case "counts": return instance(command).counts();
            case "end": return end(command.list("instances"), !command.flag("remain"));
            case "write": return write(command);
            case "read": return read(command.text("topic"));
            default: return admin.run(verb, command);
        }
    }

    private StreamsInstance instance(Driver.Command command) {
        return instances.get(command.text("instance"));
    }

    private Object launch(Driver.Command command) {
        Map<String, Object> fields = new LinkedHashMap<>(command.fields());
        fields.put("bootstrap", given.text("bootstrap"));
        instances.put(command.text("name"), new StreamsInstance(new Driver.Command(fields)));
        return null;
    }

    /** Close these instances, side by side. */
    private Object end(List<String> names, boolean leave) throws InterruptedException {
        List<Thread> closing = new ArrayList<>();
        for (String name : names) {
            StreamsInstance instance = instances.remove(name);
            if (instance != null) closing.add(new Thread(() -> instance.close(leave)));
        }
        closing.forEach(Thread::start);
        for (Thread thread : closing) thread.join();
        return null;
    }

    /** Rows are `[partition, key, value]`; where there is no partition the key chooses it, as it does in Streams. */
    private Object write(Driver.Command command) throws Exception {
        if (writer == null) {
            Map<String, Object> settings = Map.of("bootstrap.servers", given.text("bootstrap"), "enable.idempotence", true);
            writer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        }
        List<Future<?>> sent = new ArrayList<>();
        for (List<Object> row : command.<List<Object>>list("rows")) {
            Integer partition = row.get(0) == null ? null : ((Number) row.get(0)).intValue();
            sent.add(writer.send(new ProducerRecord<>(command.text("topic"), partition, (String) row.get(1), (String) row.get(2))));
        }
        for (Future<?> each : sent) each.get();
        return null;
    }

    /** Everything that is in a topic now, as `[partition, key, value]`, each partition in its own order. */
    private Object read(String topic) {
        if (reader == null) {
            Map<String, Object> settings = Map.of("bootstrap.servers", given.text("bootstrap"), "fetch.max.wait.ms", 50, "isolation.level", "read_committed");
            reader = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        }
        List<TopicPartition> partitions =
            reader.partitionsFor(topic).stream().map(it -> new TopicPartition(topic, it.partition())).toList();
        reader.assign(partitions);
        reader.seekToBeginning(partitions);
        Map<TopicPartition, Long> ends = reader.endOffsets(partitions);
        List<Object> rows = new ArrayList<>();
        while (partitions.stream().anyMatch(it -> reader.position(it) < ends.get(it))) {
            for (ConsumerRecord<String, String> record : reader.poll(Duration.ofMillis(100))) {
                rows.add(Arrays.asList(record.partition(), record.key(), record.value()));
            }
        }
        return rows;
    }

    @Override
    public boolean step() {
        return false;
    }

    @Override
    public void close() throws Exception {
        end(List.copyOf(instances.keySet()), true);
        if (writer != null) writer.close(Duration.ofSeconds(5));
        if (reader != null) reader.close();
        admin.close();
    }
}
