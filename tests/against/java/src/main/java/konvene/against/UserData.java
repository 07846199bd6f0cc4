package konvene.against;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.TreeMap;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.internals.assignment.AssignmentInfo;
import org.apache.kafka.streams.processor.internals.assignment.SubscriptionInfo;
import org.apache.kafka.streams.state.HostInfo;

/**
 * The user data of Kafka Streams in the classic protocol, by its own code. Each line on stdin is a value, and is answered
 * by its bytes (`hex`) and by what Kafka reads of these; or it is `hex` itself, of a `kind`, and is answered by what Kafka
 * reads of it (`read`), or by what it throws (`thrown`). An `endpoint` is answered by its host and port.
 */
public final class UserData {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(Json.write(answer(Driver.Command.of(Json.read(line)))));
        }
        out.flush();
    }

    private static Map<String, Object> answer(Driver.Command line) {
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            String kind = line.text("kind");
            if (kind.equals("endpoint")) {
                HostInfo host = HostInfo.buildFromEndpoint(line.text("endpoint"));
                answer.put("read", host == null ? null : List.of(host.host(), host.port()));
                return answer;
            }
            byte[] bytes = line.has("hex") ? HexFormat.of().parseHex(line.text("hex")) : written(kind, line);
            answer.put("hex", HexFormat.of().formatHex(bytes));
            answer.put("read", kind.equals("subscription") ? subscription(bytes) : assignment(bytes));
        } catch (RuntimeException thrown) {
            answer.put("thrown", thrown.getClass().getSimpleName());
        }
        return answer;
    }

    private static byte[] written(String kind, Driver.Command line) {
        ByteBuffer encoded = kind.equals("subscription") ? subscription(line).encode() : assignment(line).encode();
        byte[] bytes = new byte[encoded.rewind().remaining()];
        encoded.get(bytes);
        return bytes;
    }

    // Values from JSON.

    private static SubscriptionInfo subscription(Driver.Command line) {
        Map<TaskId, Long> sums = new HashMap<>();
        for (List<Object> row : line.<List<Object>>list("sums")) sums.put(task(row), (Long) row.get(3));
        return new SubscriptionInfo((int) line.number("version"), (int) line.number("latest"),
            new ProcessId(UUID.fromString(line.text("process"))), line.text("endpoint"), sums, (byte) line.number("unique"),
            (int) line.number("error"), line.map("tags"));
    }

    private static AssignmentInfo assignment(Driver.Command line) {
        List<TaskId> active = new ArrayList<>();
        for (List<Object> row : line.<List<Object>>list("active")) active.add(task(row));
        Map<TaskId, Set<TopicPartition>> standby = new LinkedHashMap<>();
        for (List<Object> row : line.<List<Object>>list("standby")) standby.put(task(row), partitions(row.get(3)));
        AssignmentInfo info = new AssignmentInfo((int) line.number("version"), (int) line.number("common"), active, standby,
            hosts(line.list("hosts")), hosts(line.list("standby_hosts")), (int) line.number("error"));
        info.setNextRebalanceTime(line.number("next"));
        return info;
    }

    private static TaskId task(List<Object> row) {
        return new TaskId(((Long) row.get(0)).intValue(), ((Long) row.get(1)).intValue(), (String) row.get(2));
    }

    private static Map<HostInfo, Set<TopicPartition>> hosts(List<List<Object>> rows) {
        Map<HostInfo, Set<TopicPartition>> hosts = new LinkedHashMap<>();
        for (List<Object> row : rows) {
            hosts.put(new HostInfo((String) row.get(0), ((Long) row.get(1)).intValue()), partitions(row.get(2)));
        }
        return hosts;
    }

    @SuppressWarnings("unchecked")
    private static Set<TopicPartition> partitions(Object rows) {
        Set<TopicPartition> partitions = new LinkedHashSet<>();
        for (List<Object> row : (List<List<Object>>) rows) {
            partitions.add(new TopicPartition((String) row.get(0), ((Long) row.get(1)).intValue()));
        }
        return partitions;
    }

    // What Kafka reads, as JSON in a fixed order.

    private static Map<String, Object> subscription(byte[] bytes) {
        SubscriptionInfo info = SubscriptionInfo.decode(ByteBuffer.wrap(bytes));
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("version", info.version());
        told.put("latest", info.latestSupportedVersion());
        told.put("process", info.processId().toString());
        told.put("endpoint", info.userEndPoint());
        told.put("sums", sorted(info.taskOffsetSums().entrySet().stream().map(e -> row(e.getKey(), e.getValue())).toList()));
        told.put("error", info.errorCode());
        told.put("tags", new TreeMap<>(info.clientTags()));
        return told;
    }

    private static Map<String, Object> assignment(byte[] bytes) {
        AssignmentInfo info = AssignmentInfo.decode(ByteBuffer.wrap(bytes));
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("version", info.version());
        told.put("common", info.commonlySupportedVersion());
        told.put("active", info.activeTasks().stream().map(task -> row(task)).toList());
        told.put("standby", sorted(info.standbyTasks().entrySet().stream().map(e -> row(e.getKey(), pairs(e.getValue()))).toList()));
        told.put("hosts", told(info.partitionsByHost()));
        told.put("standby_hosts", told(info.standbyPartitionByHost()));
        told.put("error", info.errCode());
        told.put("next", info.nextRebalanceMs());
        return told;
    }

    private static List<Object> row(TaskId task, Object... more) {
        List<Object> row = new ArrayList<>();
        row.add(task.subtopology());
        row.add(task.partition());
        row.add(task.topologyName());
        row.addAll(List.of(more));
        return row;
    }

    private static Object told(Map<HostInfo, Set<TopicPartition>> hosts) {
        List<List<Object>> rows = new ArrayList<>();
        hosts.forEach((host, some) -> rows.add(List.of(host.host(), host.port(), pairs(some))));
        return sorted(rows);
    }

    private static Object pairs(Set<TopicPartition> partitions) {
        List<List<Object>> rows = new ArrayList<>();
        for (TopicPartition each : partitions) rows.add(List.of(each.topic(), each.partition()));
        return sorted(rows);
    }

    private static List<List<Object>> sorted(List<List<Object>> rows) {
        return rows.stream().sorted(Comparator.comparing((List<Object> row) -> Json.write(row))).toList();
    }
}
