package konvene.against;

import static org.apache.kafka.clients.consumer.ConsumerConfig.*;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;

import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.internals.AsyncKafkaConsumer;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData.Assignment;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData.Subtopology;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData.TaskId;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData.TopicInfo;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceListener;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of a streams group by Kafka's own client, with everything of it that speaks with a broker; only the tasks
 * are played: a changelog is a number of records that never grows, and a copy on a process's disk comes nearer to it
 * by `restore` records a second. Members that name one process share its disk.
 *
 * Kafka's client reports how far copies are: when it joins, when its tasks change, from time to time, and when a
 * warm-up comes within the lag that the broker told it.
 */
final class TaskMembers implements Driver.Role {
    private static final String SUBTOPOLOGY = "0";

    private final Driver.Command given;
    private final long end;
    private double rate;
    private final Map<String, Map<TaskId, Double>> disks = new HashMap<>();
    private final Map<String, Member> members = new LinkedHashMap<>();
    private long restored = System.nanoTime();

    TaskMembers(Driver.Command command) {
        given = command;
        end = command.number("end");
    }

    private final class Member implements StreamsRebalanceListener {
        private final String name;
        private final Map<TaskId, Double> disk;
        private final StreamsRebalanceData data;
        private final AsyncKafkaConsumer<byte[], byte[]> consumer;
        private Assignment has = Assignment.EMPTY;

        Member(String name, String process) {
            this.name = name;
            disk = disks.computeIfAbsent(process, unknown -> new HashMap<>());
            TopicInfo changelog = new TopicInfo(Optional.empty(), Optional.empty(), Map.of());
            Subtopology only = new Subtopology(
                Set.of(given.text("topic")), Set.of(), Map.of(), Map.of(given.text("changelog"), changelog), List.of());
            data = new StreamsRebalanceData(
                UUID.nameUUIDFromBytes(process.getBytes()), Optional.empty(), Optional.empty(),
                Map.of(SUBTOPOLOGY, only), Map.of(), this::offsets, this::ends);
            Map<String, Object> settings = new HashMap<>();
            settings.put(BOOTSTRAP_SERVERS_CONFIG, given.text("bootstrap"));
            settings.put(CLIENT_ID_CONFIG, name);
            settings.put(GROUP_ID_CONFIG, given.text("group"));
            settings.put(GROUP_PROTOCOL_CONFIG, "consumer");
            settings.put(ENABLE_AUTO_COMMIT_CONFIG, false);
            settings.put(AUTO_OFFSET_RESET_CONFIG, "earliest");
            settings.put(KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
            settings.put(VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
            consumer = new AsyncKafkaConsumer<>(
                new ConsumerConfig(settings), new ByteArrayDeserializer(), new ByteArrayDeserializer(), Optional.of(data));
            consumer.subscribe(Set.of(given.text("topic")), this);
        }

        @Override
        public void onTasksRevoked(Set<TaskId> tasks) {
            Driver.emit("revoked", "member", name, "tasks", names(tasks));
        }

        @Override
        public void onTasksAssigned(Assignment assignment) {
            synchronized (disks) {
                has = assignment;
                data.setReconciledAssignment(assignment);
            }
            Driver.emit("assigned", "member", name, "tasks", tasks(), "behind", behind(has.activeTasks()),
                "warming", behind(has.warmupTasks()));
        }

        @Override
        public void onAllTasksLost() {
            synchronized (disks) {
                has = Assignment.EMPTY;
                data.setReconciledAssignment(has);
            }
            Driver.emit("lost", "member", name);
        }

        /** How many records each of these tasks has yet to restore; an active one does nothing else until then. */
        private Map<String, Object> behind(Set<TaskId> tasks) {
            Map<String, Object> found = new TreeMap<>();
            synchronized (disks) {
                for (TaskId task : tasks) found.put(task.toString(), end - at(task));
            }
            return found;
        }

        private long at(TaskId task) {
            return disk.getOrDefault(task, 0.0).longValue();
        }

        private Set<TaskId> all() {
            Set<TaskId> all = new TreeSet<>(has.activeTasks());
            all.addAll(has.standbyTasks());
            all.addAll(has.warmupTasks());
            return all;
        }

        private Map<TaskId, Long> offsets() {
            synchronized (disks) {
                Map<TaskId, Long> found = new HashMap<>();
                for (TaskId task : disk.keySet()) found.put(task, at(task));
                return found;
            }
        }

        private Map<TaskId, Long> ends() {
            synchronized (disks) {
                Map<TaskId, Long> found = new HashMap<>();
                for (TaskId task : all()) found.put(task, end);
                return found;
            }
        }

        private void restore(double records) {
            synchronized (disks) {
                for (TaskId task : all()) disk.merge(task, records, (had, more) -> Math.min(end, had + more));
            }
        }

        private Map<String, Object> tasks() {
            Map<String, Object> roles = new LinkedHashMap<>();
            synchronized (disks) {
                roles.put("active", names(has.activeTasks()));
                roles.put("standby", names(has.standbyTasks()));
                roles.put("warmup", names(has.warmupTasks()));
            }
            return roles;
        }
    }

    private static List<String> names(Set<TaskId> tasks) {
        List<String> names = new ArrayList<>();
        for (TaskId task : new TreeSet<>(tasks)) names.add(task.toString());
        return names;
    }

    @Override
    public Object run(String verb, Driver.Command command) {
        switch (verb) {
            case "join":
                members.put(command.text("member"), new Member(command.text("member"), command.text("process")));
                return null;
            case "leave":
                members.remove(command.text("member")).consumer.close(CloseOptions.timeout(Duration.ofSeconds(10)));
                return null;
            case "restore": rate = command.number("rate"); return null;
            case "tasks": return told(command.text("member"));
            default: throw new Driver.Unsupported(verb);
        }
    }

    private Map<String, Object> told(String name) {
        Member member = members.get(name);
        Map<String, Object> told = new LinkedHashMap<>(member.tasks());
        told.put("behind", member.behind(member.has.activeTasks()));
        told.put("acceptable_recovery_lag", member.data.acceptableRecoveryLag());
        told.put("task_offset_interval_ms", (long) member.data.taskOffsetIntervalMs());
        return told;
    }

    @Override
    public boolean step() {
        long now = System.nanoTime();
        double records = rate * (now - restored) / 1e9;
        restored = now;
        for (Member member : members.values()) {
            member.restore(records);
            member.consumer.poll(Duration.ofMillis(20));
        }
        return !members.isEmpty();
    }

    @Override
    public void close() {
        for (Member member : members.values()) member.consumer.close(CloseOptions.timeout(Duration.ofSeconds(10)));
        members.clear();
    }
}
