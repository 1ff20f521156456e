<?php
declare(strict_types=1);

error_reporting(E_ALL);
set_error_handler(fn (int $_, string $message) => throw new ErrorException($message));

require __DIR__ . '/verify.php';

while (($line = fgets(STDIN)) !== false) {
    $fields = explode("\t", rtrim($line, "\n"));
    [$form, $now, $secret, $body] = $fields;
    $server = ['REQUEST_METHOD' => 'POST'];
    for ($i = 4; $i < count($fields); $i += 2) {
        $server['HTTP_' . strtoupper(strtr($fields[$i], '-', '_'))] = base64_decode($fields[$i + 1]);
    }
    $secret = base64_decode($secret);
    $body = base64_decode($body);
    echo json_encode(match ($form) {
        'a' => verify_form_a($server, $body, $secret),
        'b' => verify_form_b($server, $body, $secret),
        'standard' => verify_standard($server, $body, $secret, (int) $now),
    }), "\n";
}
