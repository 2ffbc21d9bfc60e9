import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.concurrent.Executors;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Serves a greeting from files, and reads them again when the agent posts to it. Run with {@code java App.java FOLDER}. */
class App {
    /** The most seconds that a request may be old; older ones may be replays. */
    private static final long TOLERANCE = 5 * 60;

    record Config(String greeting, int lives) {
        /** Reads all of it before any of it is used. The files are of one version: the agent swaps the folder. */
        static Config read(Path folder) throws IOException {
            var version = folder.resolve("..data").toRealPath();
            var lives = Integer.parseInt(Files.readString(version.resolve("lives")).strip());
            return new Config(Files.readString(version.resolve("greeting")).strip(), lives);
        }
    }

    private static volatile Config config;

    public static void main(String[] args) throws Exception {
        var folder = Path.of(args[0]);
        config = Config.read(folder);
        var address = InetAddress.getByName(System.getenv("ADDRESS"));
        var server = HttpServer.create(new InetSocketAddress(address, Integer.parseInt(System.getenv("PORT"))), 0);
        server.createContext("/", exchange -> answer(exchange, 200, config.greeting + "\n"));
        // For nudge.dev/verify.
        server.createContext("/greeting", exchange -> answer(exchange, 200, config.greeting));
        server.createContext("/hooks/nudge", exchange -> {
            try {
                if (!isGenuine(exchange, exchange.getRequestBody().readAllBytes())) {
                    answer(exchange, 403, "not signed by the agent\n");
                    return;
                }
                config = Config.read(folder);
                answer(exchange, 204, "");
            } catch (Exception error) {
                // Keeps what it has, and says so: the agent tries again.
                System.err.println("App.java: " + error);
                answer(exchange, 500, error + "\n");
            }
        });
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.start();
    }

    /** Returns whether the agent has signed the request, a short while ago. */
    static boolean isGenuine(HttpExchange exchange, byte[] body) throws Exception {
        var headers = exchange.getRequestHeaders();
        var timestamp = headers.getFirst("webhook-timestamp");
        if (timestamp == null || Math.abs(System.currentTimeMillis() / 1000 - Long.parseLong(timestamp)) > TOLERANCE) {
            return false;
        }
        var mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(Base64.getDecoder().decode(token()), "HmacSHA256"));
        mac.update((headers.getFirst("webhook-id") + "." + timestamp + ".").getBytes());
        var expected = "v1," + Base64.getEncoder().encodeToString(mac.doFinal(body));
        for (var signature : headers.getFirst("webhook-signature").split(" ")) {
            if (MessageDigest.isEqual(expected.getBytes(), signature.getBytes())) {
                return true;
            }
        }
        return false;
    }

    /** Returns the pod's token: from the environment where the cluster can put it there, else from a file. */
    static String token() throws IOException {
        var token = System.getenv("MY_CONFIG_TOKEN");
        return token != null ? token : Files.readString(Path.of(System.getenv("MY_CONFIG_TOKEN_FILE")));
    }

    static void answer(HttpExchange exchange, int status, String text) throws IOException {
        var body = text.getBytes();
        exchange.sendResponseHeaders(status, body.length == 0 ? -1 : body.length);
        try (var out = exchange.getResponseBody()) {
            out.write(body);
        }
    }
}
