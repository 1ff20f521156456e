import com.sun.net.httpserver.Headers;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Base64;

final class Driver {
    public static void main(String[] args) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t", -1);
            var now = Instant.ofEpochSecond(Long.parseLong(fields[1]));
            String secret = new String(decode(fields[2]), StandardCharsets.UTF_8);
            byte[] body = decode(fields[3]);
            var headers = new Headers();
            for (int i = 4; i < fields.length; i += 2) {
                headers.add(fields[i], new String(decode(fields[i + 1]), StandardCharsets.UTF_8));
            }
            System.out.println(switch (fields[0]) {
                case "a" -> Verify.formA(headers::getFirst, body, secret);
                case "b" -> Verify.formB(headers::getFirst, body, secret);
                case "standard" -> Verify.standard(headers::getFirst, body, secret, now);
                default -> throw new IllegalArgumentException(fields[0]);
            });
        }
    }

    private static byte[] decode(String s) {
        return Base64.getDecoder().decode(s);
    }
}
