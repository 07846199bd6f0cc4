package konvene.against;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.common.protocol.Errors;

/**
 * One Kafka client in one process, driven by JSON lines: commands come on stdin, replies and events leave on stdout.
 * The protocol is told in full in drivers/driver.py; every driver speaks it. When stdin ends, so does the process.
 */
public final class Driver {
    /** What a process can be: it does what it is told, and a little of its own work at each step. */
    interface Role {
        Object run(String verb, Command command) throws Exception;

        /** One slice of the role's own work; returns whether it has any, so that an idle driver can sleep. */
        boolean step() throws Exception;

        void close() throws Exception;
    }

    /** The role of a process between two others, or after one that could not be started. */
    private static final Role IDLE = new Role() {
        @Override
        public Object run(String verb, Command command) {
            throw new Unsupported(verb + " without a role");
        }

        @Override
        public boolean step() {
            return false;
        }

        @Override
        public void close() {
        }
    };

    static final class Unsupported extends RuntimeException {
        Unsupported(String what) {
            super(what);
        }
    }

    /** A command line, read with the types that the roles need. */
    record Command(Map<String, Object> fields) {
        String text(String name) {
            return (String) fields.get(name);
        }

        String text(String name, String otherwise) {
            return fields.get(name) == null ? otherwise : text(name);
        }

        long number(String name) {
            return ((Number) fields.get(name)).longValue();
        }

        long number(String name, long otherwise) {
            return fields.get(name) == null ? otherwise : number(name);
        }

        boolean flag(String name) {
            return Boolean.TRUE.equals(fields.get(name));
        }

        boolean has(String name) {
            return fields.get(name) != null;
        }

        @SuppressWarnings("unchecked")
        <T> List<T> list(String name) {
            return fields.get(name) == null ? List.of() : (List<T>) fields.get(name);
        }

        @SuppressWarnings("unchecked")
        <T> Map<String, T> map(String name) {
            return fields.get(name) == null ? Map.of() : (Map<String, T>) fields.get(name);
        }

        /** The client's own options; those of no client are the process's, such as the list of allowed addresses. */
        Map<String, String> options() {
            Map<String, String> own = new LinkedHashMap<>(map("options"));
            own.forEach((name, value) -> {
                if (name.startsWith("org.apache.kafka.")) System.setProperty(name, value);
            });
            own.keySet().removeIf(name -> name.startsWith("org.apache.kafka."));
            return own;
        }

        @SuppressWarnings("unchecked")
        static Command of(Object fields) {
            return new Command((Map<String, Object>) fields);
        }
    }

    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private static final String END = "";

    static synchronized void emit(String event, Object... pairs) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        line.put("at", System.nanoTime());
        for (int i = 0; i < pairs.length; i += 2) line.put((String) pairs[i], pairs[i + 1]);
        OUT.println(Json.write(line));
        OUT.flush();
    }

    static Map<String, Object> error(Throwable thrown) {
        Throwable cause = thrown;
        while (cause.getCause() != null && Errors.forException(cause) == Errors.UNKNOWN_SERVER_ERROR) {
            cause = cause.getCause();
        }
        Errors known = Errors.forException(cause);
        Map<String, Object> error = new LinkedHashMap<>();
        boolean unsupported = cause instanceof Unsupported;
        error.put("code", unsupported || known == Errors.UNKNOWN_SERVER_ERROR ? null : (int) known.code());
        error.put("name", unsupported ? "UNSUPPORTED_BY_CLIENT"
            : known == Errors.UNKNOWN_SERVER_ERROR ? cause.getClass().getSimpleName() : known.name());
        error.put("message", String.valueOf(cause.getMessage()));
        return error;
    }

    public static void main(String[] args) throws Exception {
        BlockingQueue<String> lines = new LinkedBlockingQueue<>();
        Thread reader = new Thread(() -> readInto(lines), "stdin");
        reader.setDaemon(true);
        reader.start();
        emit("ready", "library", "java");
        Role role = null;
        boolean busy = false;
        while (true) {
            String line = busy ? lines.poll() : lines.poll(1, TimeUnit.SECONDS);
            if (line == END) System.exit(0);
            if (line != null) {
                Command command = Command.of(Json.read(line));
                role = obey(role, command);
                if (role == null) System.exit(0);
            }
            busy = role != null && attempt(role);
        }
    }

    private static void readInto(BlockingQueue<String> lines) {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) lines.add(line);
        } catch (Exception e) {
            System.err.println("stdin: " + e);
        }
        lines.add(END);
    }

    private static boolean attempt(Role role) {
        try {
            return role.step();
        } catch (Exception e) {
            emit("error", "error", error(e));
            return true;
        }
    }

    /** Runs one command and answers it; null when the role is closed and the process may end. */
    private static Role obey(Role role, Command command) {
        long id = command.number("id");
        String verb = command.text("do");
        try {
            if (verb.equals("start")) {
                if (role != null) leave(role);
                role = IDLE;
                role = start(command);
                emit("reply", "id", id, "result", null);
                return role;
            }
            if (verb.equals("close")) {
                if (role != null) role.close();
                emit("reply", "id", id, "result", null);
                return null;
            }
            emit("reply", "id", id, "result", role.run(verb, command));
        } catch (Exception e) {
            if (!(e instanceof Unsupported)) e.printStackTrace();
            emit("reply", "id", id, "error", error(e));
        }
        return role;
    }

    /** Closes a role whose successor is about to start, however its client takes it. */
    private static void leave(Role role) {
        try {
            role.close();
        } catch (Exception e) {
            e.printStackTrace();
        }
    }

    private static Role start(Command command) throws ReflectiveOperationException {
        switch (command.text("role")) {
            case "idle": return IDLE;
            case "consumer": return new ConsumerRole(command);
            case "producer": return new ProducerRole(command);
            case "sharer": return new SharerRole(command);
            case "copier": return new CopierRole(command);
            case "admin": return new AdminRole(command);
            case "streams": return new StreamsRole(command);
            case "streams_apps": return new StreamsApps(command);
            case "task_members": // Of newest/, which is compiled with another client.
                Class<?> role = Class.forName("konvene.against.TaskMembers");
                return (Role) role.getDeclaredConstructor(Command.class).newInstance(command);
            default: throw new Unsupported("role " + command.text("role"));
        }
    }
}
