package konvene.against;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;

import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TaskMetadata;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * One instance of a Kafka Streams application that counts words: its source is read by one subtopology, which hands
 * the words to a second one through a repartition topic, and that one's counts are kept in a changelog.
 */
final class StreamsRole implements Driver.Role {
    private final KafkaStreams streams;
    private final CloseOptions.GroupMembershipOperation leaving;

    StreamsRole(Driver.Command command) {
        streams = new KafkaStreams(topology(command), settings(command));
        leaving = command.flag("remain") ? CloseOptions.GroupMembershipOperation.REMAIN_IN_GROUP
            : CloseOptions.GroupMembershipOperation.LEAVE_GROUP;
        streams.setStateListener((now, before) -> Driver.emit("state", "state", now.toString()));
        streams.setUncaughtExceptionHandler(thrown -> {
            thrown.printStackTrace();
            Driver.emit("error", "error", Driver.error(thrown), "chain", chain(thrown));
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
    }

    private static Topology topology(Driver.Command command) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(command.text("input"))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.as("words"))
            .count(Materialized.as(Stores.inMemoryKeyValueStore("counts")))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(command.text("output"), Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    private static Properties settings(Driver.Command command) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, command.text("bootstrap"));
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, command.text("group"));
        settings.put(StreamsConfig.CLIENT_ID_CONFIG, command.text("client_id"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, command.text("state_dir"));
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, command.text("protocol", "classic"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, command.text("guarantee", StreamsConfig.AT_LEAST_ONCE));
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        settings.put(StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 500);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG),
            (int) command.number("transaction_timeout_ms", 10_000));
        settings.putAll(command.options());
        if (command.text("protocol", "classic").equals("streams")) return settings;
        int session = (int) command.number("session_timeout_ms", 6000);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), session);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 500);
        if (command.has("instance_id")) {
            settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG), command.text("instance_id"));
        }
        return settings;
    }

    @Override
    public Object run(String verb, Driver.Command command) {
        switch (verb) {
            case "state": return streams.state().toString();
            case "tasks": return tasks();
            default: throw new Driver.Unsupported(verb);
        }
    }

    /** Names of the tasks that this instance works on now, and the state of each of its threads. */
    private Object tasks() {
        TreeSet<String> active = new TreeSet<>();
        List<Object> threads = new ArrayList<>();
        for (ThreadMetadata thread : streams.metadataForLocalThreads()) {
            threads.add(thread.threadState());
            for (TaskMetadata task : thread.activeTasks()) active.add(task.taskId().toString());
        }
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("active", new ArrayList<>(active));
        told.put("threads", threads);
        return told;
    }

    private static List<Object> chain(Throwable thrown) {
        List<Object> names = new ArrayList<>();
        for (Throwable at = thrown; at != null; at = at.getCause()) names.add(at.getClass().getSimpleName() + ": " + at.getMessage());
        return names;
    }

    @Override
    public boolean step() {
        return false;
    }

    @Override
    public void close() {
        streams.close(CloseOptions.groupMembershipOperation(leaving).withTimeout(Duration.ofSeconds(20)));
    }
}
