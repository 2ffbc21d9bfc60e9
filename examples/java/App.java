import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.concurrent.Semaphore;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import sun.misc.Signal;

/**
 * Reads its configuration from Nudge's agent, at start and again whenever the agent sends SIGUSR1. Java has no reader of
 * JSON: this one requests single keys. Run with {@code java App.java}.
 */
class App {
    private static final String ENDPOINT = System.getenv("MY_CONFIG_ENDPOINT");
    private static final Semaphore CHANGED = new Semaphore(0);

    public static void main(String[] args) throws Exception {
        // Before the first fetch, so that no change between the two is missed. Not SIGUSR2, which the JVM uses itself.
        Signal.handle(new Signal("USR1"), signal -> CHANGED.release());
        var client = client();
        var token = token();
        while (true) {
            try {
                show(client, token);
                CHANGED.acquire();
                CHANGED.drainPermits();
            } catch (java.io.IOException error) {
                // The agent may be restarting: keep the old configuration and try again.
                System.err.println("App.java: " + error);
                Thread.sleep(1000);
            }
        }
    }

    /** Prints what this application wants. The keys are of one version if the versions are the same before and after. */
    static void show(HttpClient client, String token) throws Exception {
        String configs, greeting, lives;
        do {
            configs = get(client, token, "nudge.configs");
            greeting = get(client, token, "greeting");
            lives = get(client, token, "lives");
        } while (!configs.equals(get(client, token, "nudge.configs")));
        System.out.printf("pid %d: %s greeting=%s lives=%s%n", ProcessHandle.current().pid(), configs, greeting, lives);
    }

    static String get(HttpClient client, String token, String key) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(ENDPOINT + "/" + key)).timeout(Duration.ofSeconds(10));
        request.header("Authorization", "Bearer " + token);
        var container = System.getenv("MY_CONFIG_CONTAINER");
        if (container != null) {
            request.header("Nudge-Container", container);
        }
        var reply = client.send(request.build(), BodyHandlers.ofString());
        if (reply.statusCode() != 200) {
            throw new java.io.IOException("the agent answers " + reply.statusCode());
        }
        return reply.body();
    }

    /** The pod's token: from the environment where the cluster can put it there, else from a file. */
    static String token() throws Exception {
        var value = System.getenv("MY_CONFIG_TOKEN");
        if (value != null && !value.isEmpty()) {
            return value;
        }
        return Files.readString(Path.of(System.getenv("MY_CONFIG_TOKEN_FILE"))).strip();
    }

    /** A client that trusts only the pod's own authority. */
    static HttpClient client() throws Exception {
        var trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (var pem = Files.newInputStream(Path.of(System.getenv("MY_CONFIG_CERT")))) {
            trusted.setCertificateEntry("pod", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        var managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(trusted);
        var tls = SSLContext.getInstance("TLS");
        tls.init(null, managers.getTrustManagers(), null);
        return HttpClient.newBuilder().sslContext(tls).connectTimeout(Duration.ofSeconds(10)).build();
    }
}
