package kafka.server.share;

import org.apache.kafka.clients.consumer.internals.ShareAcquireMode;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfigProvider;
import org.apache.kafka.server.share.acknowledge.ShareAcknowledgementBatch;
import org.apache.kafka.server.share.dlq.ShareGroupDLQManager;
import org.apache.kafka.server.share.dlq.ShareGroupDLQRecordParameter;
import org.apache.kafka.server.share.fetch.InFlightBatch;
import org.apache.kafka.server.share.fetch.InFlightState;
import org.apache.kafka.server.share.fetch.RecordState;
import org.apache.kafka.server.share.persister.DeleteShareGroupStateParameters;
import org.apache.kafka.server.share.persister.DeleteShareGroupStateResult;
import org.apache.kafka.server.share.persister.InitializeShareGroupStateParameters;
import org.apache.kafka.server.share.persister.InitializeShareGroupStateResult;
import org.apache.kafka.server.share.persister.PartitionFactory;
import org.apache.kafka.server.share.persister.Persister;
import org.apache.kafka.server.share.persister.PersisterStateBatch;
import org.apache.kafka.server.share.persister.ReadShareGroupStateParameters;
import org.apache.kafka.server.share.persister.ReadShareGroupStateResult;
import org.apache.kafka.server.share.persister.ReadShareGroupStateSummaryParameters;
import org.apache.kafka.server.share.persister.ReadShareGroupStateSummaryResult;
import org.apache.kafka.server.share.persister.TopicData;
import org.apache.kafka.server.share.persister.WriteShareGroupStateParameters;
import org.apache.kafka.server.share.persister.WriteShareGroupStateResult;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.storage.log.FetchPartitionData;
import org.apache.kafka.server.util.timer.Timer;
import org.apache.kafka.server.util.timer.TimerTask;
import org.apache.kafka.server.util.timer.TimerTaskEntry;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.PriorityQueue;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

/**
 * Kafka's own SharePartition, told what to do by lines on the standard input; each is answered with a line.
 * What acknowledgements and releases write waits until it is answered; all other writes are answered at once.
 */
public class Beside {
    static final TopicIdPartition PARTITION = new TopicIdPartition(Uuid.ONE_UUID, new TopicPartition("t", 0));

    static class Clock implements Time {
        long now = 0;

        public long milliseconds() {
            return now;
        }

        public long nanoseconds() {
            return now * 1_000_000;
        }

        public void sleep(long ms) {
            now += ms;
        }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) {
            throw new UnsupportedOperationException();
        }
    }

    static class Timers implements Timer {
        final Clock clock;
        final PriorityQueue<TimerTaskEntry> tasks =
            new PriorityQueue<>((a, b) -> Long.compare(a.expirationMs, b.expirationMs));

        Timers(Clock clock) {
            this.clock = clock;
        }

        public void add(TimerTask task) {
            tasks.add(new TimerTaskEntry(task, clock.now + task.delayMs));
        }

        public boolean advanceClock(long ms) {
            clock.now += ms;
            while (!tasks.isEmpty() && tasks.peek().expirationMs <= clock.now) {
                TimerTaskEntry entry = tasks.poll();
                if (!entry.cancelled())
                    entry.timerTask.run();
            }
            return true;
        }

        public int size() {
            return tasks.size();
        }

        public void close() {
        }
    }

    static class Settings extends ShareGroupConfigProvider {
        int limit;
        int locks;
        boolean deadLetters;

        Settings() {
            super(null);
        }

        @Override
        public int recordLockDurationMsOrDefault(String group, int otherwise) {
            return otherwise;
        }

        @Override
        public int deliveryCountLimitOrDefault(String group, int otherwise) {
            return limit;
        }

        @Override
        public int partitionMaxRecordLocksOrDefault(String group, int otherwise) {
            return locks;
        }

        @Override
        public boolean isRenewAcknowledgeEnabled(String group) {
            return true;
        }

        @Override
        public Optional<String> errorsDLQTopicName(String group) {
            return deadLetters ? Optional.of("dlq") : Optional.empty();
        }
    }

    static class Writes implements Persister {
        final ArrayDeque<Runnable> waiting = new ArrayDeque<>();
        final ArrayDeque<Runnable> failing = new ArrayDeque<>();
        boolean waits = false;
        boolean fails = false;
        long start;
        List<PersisterStateBatch> batches = new ArrayList<>();
        StringBuilder written = new StringBuilder();

        public CompletableFuture<ReadShareGroupStateResult> readState(ReadShareGroupStateParameters parameters) {
            return CompletableFuture.completedFuture(new ReadShareGroupStateResult.Builder().setTopicsData(List.of(
                new TopicData<>(PARTITION.topicId(), List.of(PartitionFactory.newPartitionAllData(
                    0, 3, start, Errors.NONE.code(), null, batches))))).build());
        }

        public CompletableFuture<WriteShareGroupStateResult> writeState(WriteShareGroupStateParameters parameters) {
            var told = parameters.groupTopicPartitionData().topicsData().get(0).partitions().get(0);
            written.append(' ').append(told.startOffset()).append('/').append(told.deliveryCompleteCount());
            for (PersisterStateBatch batch : told.stateBatches())
                written.append(',').append(batch.firstOffset()).append('-').append(batch.lastOffset()).append(':')
                    .append(batch.deliveryState()).append('*').append(batch.deliveryCount());
            CompletableFuture<WriteShareGroupStateResult> future = new CompletableFuture<>();
            if (!waits) {
                future.complete(answer(fails));
                return future;
            }
            waiting.add(() -> future.complete(answer(false)));
            failing.add(() -> future.complete(answer(true)));
            return future;
        }

        static WriteShareGroupStateResult answer(boolean fails) {
            Errors error = fails ? Errors.COORDINATOR_NOT_AVAILABLE : Errors.NONE;
            return new WriteShareGroupStateResult.Builder().setTopicsData(List.of(
                new TopicData<>(PARTITION.topicId(), List.of(PartitionFactory.newPartitionErrorData(
                    0, error.code(), null))))).build();
        }

        public CompletableFuture<InitializeShareGroupStateResult> initializeState(InitializeShareGroupStateParameters p) {
            throw new UnsupportedOperationException();
        }

        public CompletableFuture<DeleteShareGroupStateResult> deleteState(DeleteShareGroupStateParameters p) {
            throw new UnsupportedOperationException();
        }

        public CompletableFuture<ReadShareGroupStateSummaryResult> readSummary(ReadShareGroupStateSummaryParameters p) {
            throw new UnsupportedOperationException();
        }

        public void stop() {
        }
    }

    static class Copies implements ShareGroupDLQManager {
        public CompletableFuture<Void> enqueue(ShareGroupDLQRecordParameter parameter) {
            return CompletableFuture.completedFuture(null);
        }

        public void stop() {
        }
    }

    Clock clock = new Clock();
    Timers timers = new Timers(clock);
    Settings settings = new Settings();
    Writes writes = new Writes();
    SharePartition partition;

    static long[] range(String text) {
        String[] ends = text.split("-");
        return new long[] {Long.parseLong(ends[0]), Long.parseLong(ends[ends.length - 1])};
    }

    /** new LIMIT LOCKS DLQ START 0-4:2*1 ... */
    String begin(String[] words) {
        clock = new Clock();
        timers = new Timers(clock);
        writes = new Writes();
        settings.limit = Integer.parseInt(words[1]);
        settings.locks = Integer.parseInt(words[2]);
        settings.deadLetters = words[3].equals("1");
        writes.start = Long.parseLong(words[4]);
        for (int at = 5; at < words.length; at++) {
            String[] parts = words[at].split("[:*]");
            long[] offsets = range(parts[0]);
            writes.batches.add(new PersisterStateBatch(
                offsets[0], offsets[1], Byte.parseByte(parts[1]), Short.parseShort(parts[2])));
        }
        partition = new SharePartition("g", PARTITION, 2, settings.locks, settings.limit, 1000, timers, clock, writes,
            null, key -> { }, settings, null, () -> true, new Copies());
        partition.maybeInitialize().join();
        return "";
    }

    /** take MEMBER MODE SIZE MOST OFFSET 0-4 5-9 ... */
    String take(String[] words) {
        List<MemoryRecords> parts = new ArrayList<>();
        int size = 0;
        for (int at = 6; at < words.length; at++) {
            long[] offsets = range(words[at]);
            SimpleRecord[] records = new SimpleRecord[(int) (offsets[1] - offsets[0] + 1)];
            for (int n = 0; n < records.length; n++)
                records[n] = new SimpleRecord(0, new byte[0], new byte[0]);
            MemoryRecords part = MemoryRecords.withTransactionalRecords(
                offsets[0], Compression.NONE, 1L, (short) 0, 0, 0, records);
            parts.add(part);
            size += part.sizeInBytes();
        }
        ByteBuffer buffer = ByteBuffer.allocate(size);
        for (MemoryRecords part : parts)
            buffer.put(part.buffer().duplicate());
        buffer.flip();
        FetchPartitionData data = new FetchPartitionData(Errors.NONE, 1_000_000L, 0L,
            MemoryRecords.readableRecords(buffer), Optional.empty(), OptionalLong.empty(), Optional.empty(),
            OptionalInt.empty(), false);
        StringBuilder answer = new StringBuilder();
        partition.acquire(words[1], words[2].equals("1") ? ShareAcquireMode.RECORD_LIMIT : ShareAcquireMode.BATCH_OPTIMIZED,
            Integer.parseInt(words[3]), Integer.parseInt(words[4]), Long.parseLong(words[5]), data,
            FetchIsolation.HIGH_WATERMARK).acquiredRecords().forEach(records ->
                answer.append(records.firstOffset()).append('-').append(records.lastOffset()).append('*')
                    .append(records.deliveryCount()).append(' '));
        return answer.toString().trim();
    }

    /** ack MEMBER 0-4:1 5-6:1,2 ... */
    String acknowledge(String[] words) {
        List<ShareAcknowledgementBatch> batches = new ArrayList<>();
        for (int at = 2; at < words.length; at++) {
            String[] parts = words[at].split(":");
            long[] offsets = range(parts[0]);
            List<Byte> types = new ArrayList<>();
            for (String type : parts[1].split(","))
                types.add(Byte.parseByte(type));
            batches.add(new ShareAcknowledgementBatch(offsets[0], offsets[1], types));
        }
        return waited(partition.acknowledge(words[1], batches));
    }

    String waited(CompletableFuture<Void> done) {
        if (!done.isCompletedExceptionally())
            return "";
        try {
            done.join();
            return "";
        } catch (Exception e) {
            Throwable cause = e.getCause() == null ? e : e.getCause();
            return Errors.forException(cause) + ": " + cause.getMessage();
        }
    }

    String answer(String how) {
        Runnable succeeds = writes.waiting.poll();
        Runnable fails = writes.failing.poll();
        (how.equals("fails") ? fails : succeeds).run();
        return "";
    }

    String passes(long ms, String how) {
        writes.fails = how.equals("fails");
        timers.advanceClock(ms);
        writes.fails = false;
        return "";
    }

    String run(String line) {
        String[] words = line.split(" ");
        writes.written = new StringBuilder();
        writes.waits = words[0].equals("ack") || words[0].equals("release");
        String answer = switch (words[0]) {
            case "new" -> begin(words);
            case "take" -> take(words);
            case "ack" -> acknowledge(words);
            case "release" -> waited(partition.releaseAcquiredRecords(words[1]));
            case "answer" -> answer(words[1]);
            case "passes" -> passes(Long.parseLong(words[1]), words[2]);
            case "begins" -> {
                partition.updateCacheAndOffsets(Long.parseLong(words[1]));
                yield "";
            }
            default -> throw new IllegalArgumentException(line);
        };
        String written = writes.written.toString().trim();
        return answer + " | " + written + " | " + partition.nextFetchOffset() + " " + partition.startOffset() + " "
            + partition.endOffset() + " " + partition.deliveryCompleteCount() + " " + partition.canAcquireRecords()
            + " | " + states();
    }

    /** Each offset that is kept, also those before the start. */
    String states() {
        TreeMap<Long, String> states = new TreeMap<>();
        for (InFlightBatch batch : partition.cachedState().values()) {
            if (batch.offsetState() == null) {
                String said = batch.batchState().id() + "*" + batch.batchDeliveryCount() + "@" + batch.batchMemberId()
                    + (batch.batchHasOngoingStateTransition() ? "?" : "");
                for (long offset = batch.firstOffset(); offset <= batch.lastOffset(); offset++)
                    states.put(offset, said);
            } else {
                for (Map.Entry<Long, InFlightState> entry : batch.offsetState().entrySet()) {
                    InFlightState state = entry.getValue();
                    RecordState is = state.state();
                    states.put(entry.getKey(), is.id() + "*" + state.deliveryCount() + "@" + state.memberId()
                        + (state.hasOngoingStateTransition() ? "?" : ""));
                }
            }
        }
        StringBuilder all = new StringBuilder();
        states.forEach((offset, said) -> all.append(offset).append(':').append(said).append(' '));
        return all.toString().trim();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        Beside beside = new Beside();
        String line;
        while ((line = in.readLine()) != null) {
            String answer;
            try {
                answer = beside.run(line);
            } catch (Throwable e) {
                answer = "threw " + e;
            }
            System.out.println(answer);
            System.out.flush();
        }
    }
}
