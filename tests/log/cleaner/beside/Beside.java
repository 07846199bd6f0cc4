package org.apache.kafka.storage.internals.log;

import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ScheduledFuture;

/**
 * Kafka's own Cleaner, told what to do by lines on the standard input; each is answered with a line.
 */
public class Beside {
    static final HexFormat HEX = HexFormat.of();

    static class Nothing implements Scheduler {
        public void startup() { }

        public void shutdown() { }

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            return null;
        }

        public void resizeThreadPool(int newSize) { }
    }

    static LogConfig config(int segmentBytes, long deleteRetentionMs) {
        Properties given = new Properties();
        given.put("cleanup.policy", "compact");
        given.put("internal.segment.bytes", segmentBytes);
        given.put("segment.ms", Long.toString(Long.MAX_VALUE));
        given.put("index.interval.bytes", 200);
        given.put("max.message.bytes", 1 << 20);
        given.put("delete.retention.ms", Long.toString(deleteRetentionMs));
        return new LogConfig(given);
    }

    static UnifiedLog log;

    static String run(String[] words) throws Exception {
        switch (words[0]) {
            case "open":
                File directory = new File(words[1]);
                log = UnifiedLog.create(directory, config(1 << 30, 1), 0, 0, new Nothing(), new BrokerTopicStats(),
                    Time.SYSTEM, 5 * 60 * 1000, new ProducerStateManagerConfig(1 << 30, false), 1 << 30,
                    new LogDirFailureChannel(10), true, Optional.empty());
                return "opened";
            case "append":
                log.appendAsFollower(MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(words[1]))), 0);
                log.updateHighWatermark(log.logEndOffset());
                return "" + log.logEndOffset();
            case "roll":
                log.roll(Optional.empty());
                return "" + log.activeSegment().baseOffset();
            case "last":
                List<String> said = new ArrayList<>();
                new TreeMap<>(log.lastRecordsOfActiveProducers()).forEach((id, last) ->
                    said.add(id + ":" + last.lastDataOffset().orElse(-1) + ":" + last.producerEpoch()));
                return String.join(" ", said);
            case "clean":
                return clean(words);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    static String clean(String[] words) throws Exception {
        long now = Long.parseLong(words[1]);
        long firstDirty = Long.parseLong(words[2]);
        log.updateHighWatermark(Long.parseLong(words[3]));
        log.updateConfig(config(Integer.parseInt(words[4]), Long.parseLong(words[5])));
        long uncleanable = Math.min(log.lastStableOffset(), log.activeSegment().baseOffset());
        int slots = Integer.parseInt(words[6]);
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(slots * 24), 4096, 1 << 20, 1.0,
            new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaner-io", "entries", Time.SYSTEM), Time.SYSTEM, p -> { });
        LogToClean task = new LogToClean(log, firstDirty, Math.max(firstDirty, uncleanable), true);
        Map.Entry<Long, CleanerStats> done = cleaner.doClean(task, now);
        CleanerStats stats = done.getValue();
        StringBuilder out = new StringBuilder();
        out.append(done.getKey()).append(' ').append(task.firstUncleanableOffset());
        out.append(' ').append(stats.messagesRead).append(' ').append(stats.messagesWritten);
        out.append(' ').append(stats.invalidMessagesRead);
        for (LogSegment segment : log.logSegments()) {
            String base = segment.log().file().getPath();
            base = base.substring(0, base.length() - 4);
            out.append(' ').append(segment.baseOffset());
            for (String suffix : new String[] {".log", ".index", ".timeindex", ".txnindex"}) {
                Path path = Path.of(base + suffix);
                out.append(':').append(Files.exists(path) ? HEX.formatHex(Files.readAllBytes(path)) : "");
            }
        }
        log.updateConfig(config(1 << 30, 1));
        log.updateHighWatermark(log.logEndOffset());
        return out.toString();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = run(line.split(" "));
            } catch (Throwable error) {
                answer = "threw " + error;
                for (StackTraceElement frame : error.getStackTrace())
                    answer += " < " + frame;
            }
            System.out.println(answer);
            System.out.flush();
        }
    }
}
