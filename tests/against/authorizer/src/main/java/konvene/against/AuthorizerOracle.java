package konvene.against;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Kafka's StandardAuthorizer. A line of stdin has ACLs and questions: {"everyone", "super_users", "steps": [{"added",
 * "removed", "questions"}]}; the response is a line of stdout with one list per question: whether it is allowed, and
 * the audit lines. An ACL is the list of StandardAcl's fields, with enumerations by their codes. A question is
 * [principal type, principal name, host, operation, resource type, resource name, API key, logs denied]; without a
 * resource name it is about any resource of the type.
 */
public final class AuthorizerOracle {
    private static final ByteArrayOutputStream AUDIT = new ByteArrayOutputStream();

    public static void main(String[] args) throws Exception {
        PrintStream errors = System.err;
        Thread.currentThread().setUncaughtExceptionHandler((thread, thrown) -> thrown.printStackTrace(errors));
        System.setErr(new PrintStream(AUDIT, true, StandardCharsets.UTF_8));
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "off");
        System.setProperty("org.slf4j.simpleLogger.log.kafka.authorizer.logger", "trace");
        System.setProperty("org.slf4j.simpleLogger.showThreadName", "false");
        System.setProperty("org.slf4j.simpleLogger.showLogName", "false");
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            out.println(Json.write(answers(map(Json.read(line)))));
            out.flush();
        }
    }

    private static List<Object> answers(Map<String, Object> world) throws Exception {
        List<Object> answers = new ArrayList<>();
        try (Metrics metrics = new Metrics(); StandardAuthorizer authorizer = new StandardAuthorizer()) {
            authorizer.withPluginMetrics(new PluginMetricsImpl(metrics, Map.of()));
            authorizer.configure(Map.of(
                StandardAuthorizer.SUPER_USERS_CONFIG, world.get("super_users"),
                StandardAuthorizer.ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG, world.get("everyone")));
            authorizer.completeInitialLoad();
            Map<StandardAcl, Uuid> ids = new HashMap<>();
            for (Object step : list(world.get("steps"))) {
                for (Object acl : list(map(step).get("removed"))) authorizer.removeAcl(ids.remove(acl(list(acl))));
                for (Object acl : list(map(step).get("added"))) {
                    Uuid id = Uuid.randomUuid();
                    ids.put(acl(list(acl)), id);
                    authorizer.addAcl(id, acl(list(acl)));
                }
                for (Object question : list(map(step).get("questions"))) {
                    answers.add(answer(authorizer, list(question)));
                }
            }
        }
        return answers;
    }

    private static List<Object> answer(StandardAuthorizer authorizer, List<Object> question) throws Exception {
        AUDIT.reset();
        Context context = new Context(new KafkaPrincipal(text(question, 0), text(question, 1)),
            InetAddress.getByName(text(question, 2)), code(question, 6));
        AclOperation operation = AclOperation.fromCode((byte) code(question, 3));
        ResourceType type = ResourceType.fromCode((byte) code(question, 4));
        AuthorizationResult result;
        if (question.get(5) == null) {
            result = authorizer.authorizeByResourceType(context, operation, type);
        } else {
            ResourcePattern resource = new ResourcePattern(type, text(question, 5), PatternType.LITERAL);
            boolean logs = (Boolean) question.get(7);
            result = authorizer.authorize(context, List.of(new Action(operation, resource, 1, logs, logs))).get(0);
        }
        return List.of(result == AuthorizationResult.ALLOWED, AUDIT.toString(StandardCharsets.UTF_8));
    }

    private static StandardAcl acl(List<Object> fields) {
        return new StandardAcl(ResourceType.fromCode((byte) code(fields, 0)), text(fields, 1),
            PatternType.fromCode((byte) code(fields, 2)), text(fields, 3), text(fields, 4),
            AclOperation.fromCode((byte) code(fields, 5)), AclPermissionType.fromCode((byte) code(fields, 6)));
    }

    private static String text(List<Object> fields, int index) {
        return (String) fields.get(index);
    }

    private static int code(List<Object> fields, int index) {
        return ((Number) fields.get(index)).intValue();
    }

    @SuppressWarnings("unchecked")
    private static List<Object> list(Object value) {
        return (List<Object>) value;
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> map(Object value) {
        return (Map<String, Object>) value;
    }

    /** The part of a request that the authorizer reads. */
    private record Context(KafkaPrincipal principal, InetAddress clientAddress, int requestType)
            implements AuthorizableRequestContext {
        @Override
        public String listenerName() {
            return "PLAINTEXT";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        @Override
        public int requestVersion() {
            return 0;
        }

        @Override
        public String clientId() {
            return "";
        }

        @Override
        public int correlationId() {
            return 0;
        }
    }
}
