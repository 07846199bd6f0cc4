package konvene.against;

import static konvene.against.Partitions.row;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.ShareMemberDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.common.TopicPartition;

/** What the admin client says of share groups and does with them, as plain values. */
final class ShareGroups {
    private ShareGroups() {
    }

    static Object described(Admin admin, String id) throws Exception {
        ShareGroupDescription group = admin.describeShareGroups(List.of(id)).all().get().get(id);
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("state", group.groupState().toString());
        told.put("group_epoch", group.groupEpoch());
        told.put("target_epoch", group.targetAssignmentEpoch());
        told.put("members", group.members().stream()
            .sorted(Comparator.comparing(ShareMemberDescription::clientId)).map(ShareGroups::member).toList());
        return told;
    }

    private static Object member(ShareMemberDescription member) {
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("member_id", member.consumerId());
        told.put("client_id", member.clientId());
        told.put("epoch", member.memberEpoch());
        told.put("partitions", Partitions.pairs(member.assignment().topicPartitions()).stream()
            .sorted(Comparator.comparing(Object::toString)).toList());
        return told;
    }

    /** `[topic, partition, start offset, lag]`. */
    static Object offsets(Admin admin, String id) throws Exception {
        List<Object> rows = new ArrayList<>();
        Map<TopicPartition, SharePartitionOffsetInfo> found =
            admin.listShareGroupOffsets(Map.of(id, new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo(id).get();
        Partitions.byName(found).forEach(
            (at, info) -> rows.add(row(at, info == null ? null : info.startOffset(), info == null ? null : info.lag().orElse(null))));
        return rows;
    }

    static Object moved(Admin admin, Driver.Command command) throws Exception {
        Map<TopicPartition, Long> offsets = new LinkedHashMap<>();
        Partitions.offsets(command.list("offsets")).forEach((at, offset) -> offsets.put(at, offset.offset()));
        admin.alterShareGroupOffsets(command.text("group"), offsets).all().get();
        return null;
    }

    static Object forgotten(Admin admin, Driver.Command command) throws Exception {
        admin.deleteShareGroupOffsets(command.text("group"), Set.copyOf(command.<String>list("topics"))).all().get();
        return null;
    }
}
