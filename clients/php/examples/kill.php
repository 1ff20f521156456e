<?php

declare(strict_types=1);

// Creates KICKSTAND_COUNT tickets one after another, while the server may be killed and started again.

require __DIR__ . '/../autoload.php';

use Kickstand\Helpdesk;
use Kickstand\Timing;

$short = new Timing(sleep: static fn (float $seconds) => usleep((int) (min($seconds, 0.2) * 1e6)));
$helpdesk = new Helpdesk(timeout: 5, maxRetries: 30, timing: $short);
for ($i = 0; $i < (int) getenv('KICKSTAND_COUNT'); $i++) {
    $ticket = $helpdesk->tickets->create(['subject' => "record $i", 'customer' => ['email' => 'ada@example.com']]);
    echo $ticket->id, "\n";
}
