package konvene.against;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.apache.kafka.common.utils.Exit;

/**
 * Apache Kafka's command line tools, one after another in one process, since a JVM is slow to start. A line of stdin
 * names a tool's class, its arguments and what it reads: {"tool", "args", "stdin"}; the answer is a line of stdout:
 * {"status", "out", "err"}. A tool is run by its own main, and where it would end the process, it is ended.
 */
public final class Tools {
    /** What a tool's exit becomes. Some tools catch even this and say so, but their story is told by then. */
    private static final class Exited extends Error {
        Exited() {
            super(null, null, false, false);
        }
    }

    // One stream each for all tools, since Scala's console keeps the one that it has met first.
    private static final ByteArrayOutputStream OUT = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream ERR = new ByteArrayOutputStream();
    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static Map<String, Object> answer;

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        Exit.Procedure exit = (status, message) -> {
            if (message != null) System.err.println(message);
            end(status);
            throw new Exited();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            run(Driver.Command.of(Json.read(line)));
            answers.println(Json.write(answer));
            answers.flush();
        }
        System.exit(0);
    }

    private static void run(Driver.Command command) {
        answer = null;
        OUT.reset();
        ERR.reset();
        System.setIn(new ByteArrayInputStream(command.text("stdin", "").getBytes(StandardCharsets.UTF_8)));
        try {
            Object args = command.<String>list("args").toArray(new String[0]);
            Class.forName(command.text("tool")).getMethod("main", String[].class).invoke(null, args);
            end(0);
        } catch (InvocationTargetException thrown) {
            thrown.getCause().printStackTrace();
            end(1);
        } catch (ReflectiveOperationException missing) {
            missing.printStackTrace();
            end(-1);
        }
        // The end of the process is what some tools leave their last work to, such as closing a producer.
        HOOKS.forEach(Runnable::run);
        HOOKS.clear();
    }

    /** The first end counts. */
    private static void end(int status) {
        if (answer != null) return;
        answer = new LinkedHashMap<>();
        answer.put("status", status);
        answer.put("out", OUT.toString(StandardCharsets.UTF_8));
        answer.put("err", ERR.toString(StandardCharsets.UTF_8));
    }
}
