package konvene.against;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.jar.JarFile;

/**
 * Loads every class of the driver, of Kafka's clients and of Streams, and ends: a JVM that archives its classes at its
 * exit then has all of them, and a driver that begins with the archive reads none of them from a jar.
 */
public final class Archive {
    private static final List<String> JARS = List.of("against", "kafka-", "slf4j-");

    public static void main(String[] args) throws IOException {
        for (String jar : System.getProperty("java.class.path").split(":")) {
            String name = Path.of(jar).getFileName().toString();
            if (JARS.stream().anyMatch(name::startsWith)) loadAll(jar);
        }
    }

    private static void loadAll(String jar) throws IOException {
        try (JarFile file = new JarFile(jar)) {
            file.stream()
                .map(entry -> entry.getName())
                .filter(name -> name.endsWith(".class") && !name.startsWith("META-INF") && !name.contains("-info"))
                .forEach(name -> load(name.substring(0, name.length() - ".class".length()).replace('/', '.')));
        }
    }

    private static void load(String name) {
        try {
            Class.forName(name, false, Archive.class.getClassLoader());
        } catch (ClassNotFoundException | LinkageError e) {
            // It wants a library that is not here, and so no driver will load it.
        }
    }
}
