import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * Prints the dictionary, verified by Java (HttpClient checks the host's name by itself), trusting MY_CONFIG_CERT alone.
 * Run with {@code java Client.java}.
 */
class Client {
    public static void main(String[] args) {
        try {
            System.out.write(fetch());
            System.out.flush();
        } catch (Exception error) {
            System.err.println("Client.java: " + error);
            System.exit(1);
        }
    }

    static byte[] fetch() throws Exception {
        var trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (var pem = Files.newInputStream(Path.of(System.getenv("MY_CONFIG_CERT")))) {
            trusted.setCertificateEntry("pod", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        var managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(trusted);
        var tls = SSLContext.getInstance("TLS");
        tls.init(null, managers.getTrustManagers(), null);

        var client = HttpClient.newBuilder().sslContext(tls).connectTimeout(Duration.ofSeconds(10)).build();
        var request = HttpRequest.newBuilder(URI.create(System.getenv("MY_CONFIG_ENDPOINT")))
                .header("Authorization", "Bearer " + System.getenv("MY_CONFIG_TOKEN"))
                .timeout(Duration.ofSeconds(10))
                .build();
        var reply = client.send(request, BodyHandlers.ofByteArray());
        if (reply.statusCode() != 200) {
            throw new Exception("status " + reply.statusCode());
        }
        return reply.body();
    }
}
