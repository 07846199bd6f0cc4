package konvene.against;

import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.function.BiConsumer;
import java.util.regex.Pattern;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.state.Stores;

/**
 * What the applications here do, by name. A topic is asked for by its part in the topology (`lines`, `left`, ...) and
 * is called by the application's id and that part. Keys and values are text; every store is in memory.
 */
final class Topologies {
    /** The value at which an application fails, whichever it is. */
    private static final String POISON = "poison";

    private static final Map<String, BiConsumer<StreamsBuilder, String>> BY_NAME = Map.of(
        "upper", Topologies::upper,
        "words", Topologies::words,
        "keys", Topologies::keys,
        "pairs", Topologies::pairs,
        "orders", Topologies::orders,
        "both", Topologies::both,
        "pattern", Topologies::pattern);

    private Topologies() {
    }

    static Topology named(String name, String application) {
        StreamsBuilder builder = new StreamsBuilder();
        BY_NAME.get(name).accept(builder, application);
        return builder.build();
    }

    /** No state: lines in, the same lines in capitals out. */
    private static void upper(StreamsBuilder builder, String application) {
        read(builder, application, "lines").mapValues(line -> line.toUpperCase()).to(application + "-capitals");
    }

    /** The words of the lines are counted: one subtopology reads, a second one counts; the topic between the two and
        the counts' changelog are internal. */
    private static void words(StreamsBuilder builder, String application) {
        KTable<String, Long> counts = read(builder, application, "lines")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.as("words"))
            .count(Materialized.as(Stores.inMemoryKeyValueStore("counts")));
        tell(counts, application + "-counts");
    }

    /** The records of each key are counted, in one subtopology with a changelog. */
    private static void keys(StreamsBuilder builder, String application) {
        tell(read(builder, application, "lines").groupByKey().count(Materialized.as(Stores.inMemoryKeyValueStore("counts"))), application + "-counts");
    }

    /** Each left value with each right value of the same key: both topics must have as many partitions. */
    private static void pairs(StreamsBuilder builder, String application) {
        read(builder, application, "left")
            .join(read(builder, application, "right"), (left, right) -> left + "+" + right, anHour())
            .to(application + "-pairs");
    }

    /** The same, where a left record's key is first to be made of its value: the topic that this takes must have as
        many partitions as the right one. */
    private static void orders(StreamsBuilder builder, String application) {
        read(builder, application, "left")
            .selectKey((key, value) -> value.split(":")[0])
            .repartition(Repartitioned.as("by-customer"))
            .join(read(builder, application, "right"), (left, right) -> left + "+" + right, anHour())
            .to(application + "-pairs");
    }

    /** Two subtopologies that have nothing to do with each other, over topics of different sizes. */
    private static void both(StreamsBuilder builder, String application) {
        upper(builder, application);
        tell(read(builder, application, "more").groupByKey().count(Materialized.as(Stores.inMemoryKeyValueStore("counts"))), application + "-counts");
    }

    /** Whatever topics there are whose names begin like the application's. */
    private static void pattern(StreamsBuilder builder, String application) {
        KStream<String, String> lines = builder.stream(Pattern.compile(application + "-lines.*"));
        lines.to(application + "-capitals");
    }

    /** Asked for by joins alone: the oldest releases that run here do not have it. */
    private static JoinWindows anHour() {
        return JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofHours(1));
    }

    private static KStream<String, String> read(StreamsBuilder builder, String application, String part) {
        KStream<String, String> lines = builder.stream(application + "-" + part);
        return lines.peek((key, value) -> {
            if (POISON.equals(value)) throw new IllegalStateException("this was poison");
        });
    }

    private static void tell(KTable<String, Long> counts, String topic) {
        counts.toStream().mapValues(count -> Long.toString(count)).to(topic, Produced.with(Serdes.String(), Serdes.String()));
    }
}
