<?php

require 'vendor/autoload.php';

use Kickstand\{Fleet, Helpdesk, Testing, Webhook};

$helpdesk = new Helpdesk();
$ticket = $helpdesk->tickets->create(['subject' => 'The lock jams', 'customer' => ['email' => 'ada@example.com']]);
$helpdesk->messages->create($ticket->id, ['kind' => 'reply', 'text' => 'It is repaired.']);
foreach ($helpdesk->tickets->list(status: ['open'], limit: 2) as $open) {
    echo "$open->number $open->subject\n";
}

$fleet = new Fleet(getenv('KICKSTAND_FLEET_KEY'));
$scooter = $fleet->vehicles->list(state: ['available'], formFactor: ['scooter_standing'])->data[0];
$riders = iterator_to_array($fleet->customers->list(status: ['active'], subaccountId: [$scooter->subaccountId]));
$rider = current(array_filter($riders, fn ($customer) => $customer->openRideId === null));
$ride = $fleet->rides->create(['customer_id' => $rider->id, 'vehicle_id' => $scooter->id]);
$ride = $fleet->rides->update($ride->id, [
    'status' => 'completed', 'end_location' => $scooter->location, 'accept_out_of_zone_fee' => true,
]);
echo "$ride->status: {$ride->price?->totalAmount}\n";

[$body, $secret] = ['{"id":"1","event":"ticket.created","data":{}}', 'at least sixteen characters'];
echo Webhook::verify($body, Testing::sign($body, $secret), $secret)->event . "\n";
