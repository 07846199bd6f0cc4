package konvene.against;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.clients.admin.StreamsGroupMemberAssignment;
import org.apache.kafka.clients.admin.StreamsGroupMemberDescription;
import org.apache.kafka.clients.admin.StreamsGroupSubtopologyDescription;
import org.apache.kafka.clients.admin.StreamsGroupSubtopologyDescription.TopicInfo;

/** What the admin client says of a streams group, as plain values; tasks by the names that Streams has for them. */
final class StreamsGroups {
    private StreamsGroups() {
    }

    static Object described(Admin admin, String id) throws Exception {
        StreamsGroupDescription group = admin.describeStreamsGroups(List.of(id)).all().get().get(id);
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("state", group.groupState().toString());
        told.put("group_epoch", group.groupEpoch());
        told.put("target_epoch", group.targetAssignmentEpoch());
        told.put("topology_epoch", group.topologyEpoch());
        told.put("subtopologies", group.subtopologies().stream()
            .sorted(Comparator.comparing(StreamsGroupSubtopologyDescription::subtopologyId))
            .map(StreamsGroups::subtopology).toList());
        told.put("members", group.members().stream()
            .sorted(Comparator.comparing(StreamsGroupMemberDescription::clientId))
            .map(StreamsGroups::member).toList());
        return told;
    }

    private static Object subtopology(StreamsGroupSubtopologyDescription subtopology) {
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("id", subtopology.subtopologyId());
        told.put("sources", sorted(subtopology.sourceTopics()));
        told.put("sinks", sorted(subtopology.repartitionSinkTopics()));
        told.put("changelogs", topics(subtopology.stateChangelogTopics()));
        told.put("repartitions", topics(subtopology.repartitionSourceTopics()));
        return told;
    }

    private static Object topics(Map<String, TopicInfo> topics) {
        Map<String, Object> told = new TreeMap<>();
        topics.forEach((name, topic) -> told.put(name,
            Map.of("partitions", topic.partitions(), "configs", new TreeMap<String, Object>(topic.topicConfigs()))));
        return told;
    }

    private static Object member(StreamsGroupMemberDescription member) {
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("member_id", member.memberId());
        told.put("client_id", member.clientId());
        told.put("instance_id", member.instanceId().orElse(null));
        told.put("process_id", member.processId());
        told.put("host", member.clientHost());
        told.put("epoch", member.memberEpoch());
        told.put("topology_epoch", member.topologyEpoch());
        told.put("endpoint", member.userEndpoint().map(it -> it.host() + ":" + it.port()).orElse(null));
        told.put("tags", new TreeMap<String, Object>(member.clientTags()));
        told.put("classic", member.isClassic());
        told.put("assignment", assignment(member.assignment()));
        told.put("target", assignment(member.targetAssignment()));
        return told;
    }

    private static Object assignment(StreamsGroupMemberAssignment assignment) {
        return Map.of("active", tasks(assignment.activeTasks()), "standby", tasks(assignment.standbyTasks()),
            "warmup", tasks(assignment.warmupTasks()));
    }

    private static List<String> tasks(Collection<StreamsGroupMemberAssignment.TaskIds> all) {
        List<String> names = new ArrayList<>();
        all.forEach(some -> some.partitions().forEach(partition -> names.add(some.subtopologyId() + "_" + partition)));
        return sorted(names);
    }

    private static List<String> sorted(Collection<String> names) {
        return new ArrayList<>(new TreeSet<>(names));
    }
}
