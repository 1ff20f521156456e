<?php

declare(strict_types=1);

// A server for CurlTransportTest. The last part of the path, or the parameter q, says how it answers.
// "Slow" answers do not end: the server waits until the client leaves.

// With the path of a file as argument it speaks TLS, with a certificate in that file that no authority has signed.

$context = stream_context_create();
if (isset($argv[1])) {
    $key = openssl_pkey_new() ?: exit(1);
    $request = openssl_csr_new(['commonName' => 'localhost'], $key) ?: exit(1);
    openssl_x509_export(openssl_csr_sign($request, null, $key, 1), $certificate);
    openssl_pkey_export($key, $private);
    file_put_contents($argv[1], $certificate . $private);
    stream_context_set_option($context, 'ssl', 'local_cert', $argv[1]);
}
$transport = isset($argv[1]) ? 'tls' : 'tcp';
$flags = STREAM_SERVER_BIND | STREAM_SERVER_LISTEN;
$server = stream_socket_server("$transport://127.0.0.1:0", flags: $flags, context: $context) ?: exit(1);
echo stream_socket_get_name($server, false), "\n";

$head = static fn (string $status, string ...$headers): string
    => "HTTP/1.1 $status\r\n" . implode('', array_map(static fn (string $h): string => "$h\r\n", $headers))
    . "Connection: close\r\n\r\n";
$json = 'Content-Type: application/json';
$ndjson = 'Content-Type: application/x-ndjson';
$member = '{"id":"mem-1","object":"member","name":"Ada","email":"a@example.com","role":"agent",'
    . '"created_at":"2026-11-21T09:00:00Z"}' . "\n";
$chunk = static fn (string $text): string => dechex(strlen($text)) . "\r\n$text\r\n";

while (true) {
    $client = @stream_socket_accept($server, -1);
    if ($client === false) {
        continue; // a client that has refused the certificate
    }
    $request = '';
    while (!str_ends_with($request, "\r\n\r\n") && ($line = fgets($client)) !== false) {
        $request .= $line;
    }
    $body = '';
    if (preg_match('/^content-length: (\d+)/mi', $request, $match) === 1) {
        $body = (string) stream_get_contents($client, (int) $match[1]);
    } elseif (preg_match('/^transfer-encoding: chunked/mi', $request) === 1) {
        while (($size = hexdec(trim((string) fgets($client)))) > 0) {
            $body .= stream_get_contents($client, (int) $size + 2);
        }
        fgets($client);
    }
    preg_match('~^\S+ ([^ ?]*/)?([^ ?/]*)(?:\?q=(\w+))?~', $request, $match);
    $scenario = $match[3] ?? $match[2];
    $echo = (string) json_encode(['id' => 'x', 'object' => 'ticket', 'request' => $request, 'body' => $body]);
    $answer = match ($scenario) {
        'redirect' => $head('302 Found', 'Location: /api/v1/key', 'Content-Length: 0'),
        'interim' => "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" . $head('404 Not Found', 'Content-Length: 0'),
        'slow_headers' => "HTTP/1.1 200 OK\r\n",
        'slow_body' => $head('200 OK', $json, 'Content-Length: 100') . '{"id":',
        'slow_export' => $head('200 OK', $ndjson, 'Transfer-Encoding: chunked') . $chunk($member),
        'cut' => $head('200 OK', $json, 'Content-Length: 100') . '{"id":',
        'cut_export' => $head('200 OK', $ndjson, 'Transfer-Encoding: chunked') . $chunk($member . $member),
        'gzip' => $head('404 Not Found', 'Content-Type: application/problem+json', 'Content-Encoding: gzip')
            . gzencode('{"code":"not_found","detail":"None."}'),
        'bomb' => $head('200 OK', $json, 'Content-Encoding: gzip') . gzencode(str_repeat(' ', 70 << 20)),
        'text' => $head('404 Not Found', 'Content-Type: application/problem+json')
            . "{\"code\":\"not_found\",\"detail\":\"\xff\"}",
        'hang_up' => '',
        default => $head('200 OK', $json, 'Content-Length: ' . strlen($echo)) . $echo,
    };
    @fwrite($client, $answer);
    if (str_starts_with($scenario, 'slow')) {
        stream_set_timeout($client, 60);
        fread($client, 1);
    }
    fclose($client);
}
