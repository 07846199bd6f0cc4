package konvene.against;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

import org.apache.kafka.clients.admin.AbortTransactionResult;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeProducersResult.PartitionProducerState;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.common.TopicPartition;

/** What an admin client is told of transactions, and the one thing that it may do to them. */
final class Transactions {
    private Transactions() {
    }

    /** `[transactional id, producer id, state]`, by id. */
    static List<Object> listed(Admin admin) throws Exception {
        Map<String, Object> rows = new TreeMap<>();
        for (TransactionListing it : admin.listTransactions().all().get()) {
            rows.put(it.transactionalId(), List.of(it.transactionalId(), it.producerId(), it.state().toString()));
        }
        return new ArrayList<>(rows.values());
    }

    static Map<String, Object> described(Admin admin, List<String> ids) throws Exception {
        Map<String, Object> told = new TreeMap<>();
        Map<String, TransactionDescription> all = admin.describeTransactions(ids).all().get();
        all.forEach((id, it) -> {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("state", it.state().toString());
            row.put("producer_id", it.producerId());
            row.put("producer_epoch", it.producerEpoch());
            row.put("timeout_ms", it.transactionTimeoutMs());
            row.put("started", it.transactionStartTimeMs().isPresent());
            TreeMap<TopicPartition, Boolean> sorted = Partitions.byName(Map.of());
            it.topicPartitions().forEach(partition -> sorted.put(partition, true));
            row.put("partitions", Partitions.pairs(sorted.keySet()));
            told.put(id, row);
        });
        return told;
    }

    /** `[topic, partition, producer id, epoch, last sequence, coordinator's epoch, first offset of what is open]`. */
    static List<Object> producers(Admin admin, List<TopicPartition> partitions) throws Exception {
        List<Object> rows = new ArrayList<>();
        Map<TopicPartition, PartitionProducerState> all = admin.describeProducers(partitions).all().get();
        Partitions.byName(all).forEach((partition, state) -> {
            for (ProducerState it : state.activeProducers()) {
                rows.add(Partitions.row(partition, it.producerId(), it.producerEpoch(), it.lastSequence(),
                    it.coordinatorEpoch().orElse(-1), it.currentTransactionStartOffset().orElse(-1L)));
            }
        });
        return rows;
    }

    static AbortTransactionResult aborted(Admin admin, Driver.Command command) {
        TopicPartition partition = Partitions.partitions(List.of(command.<Object>list("partition"))).get(0);
        return admin.abortTransaction(new AbortTransactionSpec(partition, command.number("producer_id"),
            (short) command.number("producer_epoch"), (int) command.number("coordinator_epoch")));
    }
}
