package konvene.against;

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** Partitions and offsets as rows: `[topic, partition, ...]`. */
final class Partitions {
    private Partitions() {
    }

    static List<TopicPartition> partitions(List<List<Object>> pairs) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (List<Object> pair : pairs) {
            partitions.add(new TopicPartition((String) pair.get(0), ((Number) pair.get(1)).intValue()));
        }
        return partitions;
    }

    static Map<TopicPartition, OffsetAndMetadata> offsets(List<List<Object>> quads) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new LinkedHashMap<>();
        for (List<Object> quad : quads) {
            String metadata = quad.size() > 3 && quad.get(3) != null ? (String) quad.get(3) : "";
            offsets.put(partitions(List.of(quad)).get(0), new OffsetAndMetadata(((Number) quad.get(2)).longValue(), metadata));
        }
        return offsets;
    }

    static List<Object> pairs(Collection<TopicPartition> partitions) {
        List<Object> pairs = new ArrayList<>();
        for (TopicPartition partition : partitions) pairs.add(List.of(partition.topic(), partition.partition()));
        return pairs;
    }

    static List<Object> quads(Map<TopicPartition, OffsetAndMetadata> offsets) {
        List<Object> quads = new ArrayList<>();
        for (Map.Entry<TopicPartition, OffsetAndMetadata> entry : new TreeMap<>(byName(offsets)).entrySet()) {
            OffsetAndMetadata value = entry.getValue();
            quads.add(row(entry.getKey(), value == null ? -1L : value.offset(), value == null ? null : value.metadata()));
        }
        return quads;
    }

    static <T> TreeMap<TopicPartition, T> byName(Map<TopicPartition, T> map) {
        TreeMap<TopicPartition, T> sorted =
            new TreeMap<>((a, b) -> a.topic().equals(b.topic()) ? a.partition() - b.partition() : a.topic().compareTo(b.topic()));
        sorted.putAll(map);
        return sorted;
    }

    static List<Object> row(TopicPartition partition, Object... more) {
        List<Object> row = new ArrayList<>(List.of(partition.topic(), partition.partition()));
        row.addAll(java.util.Arrays.asList(more));
        return row;
    }
}
