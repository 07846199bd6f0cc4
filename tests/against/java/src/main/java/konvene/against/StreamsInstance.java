package konvene.against;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyQueryMetadata;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.StreamsMetadata;
import org.apache.kafka.streams.TaskMetadata;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.state.HostInfo;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/** One instance of an application, a streams group's members: as many as it has threads. */
final class StreamsInstance {
    private static final String STORE = "counts";

    /** By name, for releases before 3.7 do not have it. */
    private static final String IN_MEMORY = "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers";

    private final String name;
    private final KafkaStreams streams;

    /** `on_error` is what Kafka Streams is told when a thread has failed, by Streams' own name for it. */
    StreamsInstance(Driver.Command command) {
        name = command.text("name");
        streams = new KafkaStreams(Topologies.named(command.text("topology"), command.text("application")), settings(command));
        streams.setStateListener((now, before) -> Driver.emit("state", "instance", name, "state", now.toString()));
        StreamThreadExceptionResponse answer = StreamThreadExceptionResponse.valueOf(command.text("on_error", "SHUTDOWN_CLIENT"));
        streams.setUncaughtExceptionHandler(thrown -> {
            thrown.printStackTrace();
            Driver.emit("error", "instance", name, "chain", chain(thrown));
            return answer;
        });
        streams.start();
    }

    private static Properties settings(Driver.Command command) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, command.text("bootstrap"));
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, command.text("application"));
        settings.put(StreamsConfig.CLIENT_ID_CONFIG, command.text("name"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, command.text("state_dir"));
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, "streams");
        settings.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, IN_MEMORY);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 500);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.consumerPrefix("metadata.max.age.ms"), 2000);
        command.map("settings").forEach((name, value) -> settings.put(name, value.toString()));
        return settings;
    }

    String state() {
        return streams.state().toString();
    }

    /** Names of the tasks that it has now, and how many threads are at work on them. */
    Map<String, Object> tasks() {
        TreeSet<String> active = new TreeSet<>();
        TreeSet<String> standby = new TreeSet<>();
        List<Object> threads = new ArrayList<>();
        try {
            for (ThreadMetadata thread : streams.metadataForLocalThreads()) {
                threads.add(thread.threadState());
                for (TaskMetadata task : thread.activeTasks()) active.add(task.taskId().toString());
                for (TaskMetadata task : thread.standbyTasks()) standby.add(task.taskId().toString());
            }
        } catch (NoSuchMethodError older) {
            throw new Driver.Unsupported("tasks"); // Before 3.0 they were told by other classes.
        }
        return Map.of("active", new ArrayList<>(active), "standby", new ArrayList<>(standby), "threads", threads);
    }

    /** How many records each of its copies of the store has yet to read, by partition. */
    Object lags() {
        Map<String, Object> lags = new LinkedHashMap<>();
        streams.allLocalStorePartitionLags().getOrDefault(STORE, Map.of()).forEach(
            (partition, lag) -> lags.put(partition.toString(), lag.offsetLag()));
        return lags;
    }

    /** All instances of the application, as far as this one knows: where each is, and which partitions it has. */
    Object everybody() {
        Map<String, Object> told = new LinkedHashMap<>();
        for (StreamsMetadata other : streams.metadataForAllStreamsClients()) {
            told.put(where(other.hostInfo()), Map.of(
                "active", Partitions.pairs(other.topicPartitions()),
                "standby", Partitions.pairs(other.standbyTopicPartitions()),
                "stores", new ArrayList<>(new TreeSet<>(other.stateStoreNames()))));
        }
        return told;
    }

    /** Who has each of these keys, as far as this instance knows: `[active, [standby, ...]]` by key. */
    Object owners(Collection<String> keys) {
        Map<String, Object> told = new LinkedHashMap<>();
        for (String key : keys) {
            KeyQueryMetadata owner = streams.queryMetadataForKey(STORE, key, new StringSerializer());
            List<String> standby = owner.standbyHosts().stream().map(StreamsInstance::where).sorted().toList();
            told.put(key, List.of(where(owner.activeHost()), standby));
        }
        return told;
    }

    /** The counts that it has itself, of its active tasks and no others. */
    Object counts() {
        ReadOnlyKeyValueStore<String, Long> counts =
            streams.store(StoreQueryParameters.fromNameAndType(STORE, QueryableStoreTypes.keyValueStore()));
        Map<String, Object> told = new LinkedHashMap<>();
        try (var rows = counts.all()) {
            rows.forEachRemaining(row -> told.put(row.key, row.value));
        }
        return told;
    }

    private static String where(HostInfo host) {
        return host.host() + ":" + host.port();
    }

    private static List<Object> chain(Throwable thrown) {
        List<Object> names = new ArrayList<>();
        for (Throwable at = thrown; at != null; at = at.getCause()) names.add(at.getClass().getSimpleName() + ": " + at.getMessage());
        return names;
    }

    /** Before 4.2 there was another class for how to leave, and an instance that is simply closed remains a member. */
    void close(boolean leave) {
        try {
            leaveOrRemain(leave);
        } catch (NoClassDefFoundError older) {
            if (leave) Driver.emit("remains", "instance", name);
            streams.close(Duration.ofSeconds(20));
        }
    }

    private void leaveOrRemain(boolean leave) {
        GroupMembershipOperation operation = leave ? GroupMembershipOperation.LEAVE_GROUP : GroupMembershipOperation.REMAIN_IN_GROUP;
        streams.close(CloseOptions.groupMembershipOperation(operation).withTimeout(Duration.ofSeconds(20)));
    }
}
