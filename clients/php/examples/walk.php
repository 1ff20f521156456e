<?php

declare(strict_types=1);

// Takes the steps of docs/api/README.md and docs/api/fleet.md against a running demo, and checks each answer.

require __DIR__ . '/../autoload.php';

use Kickstand\Attachment;
use Kickstand\Enum\TicketPriority;
use Kickstand\Enum\TicketStatus;
use Kickstand\Enum\VehicleState;
use Kickstand\Exception\ProblemException;
use Kickstand\Fleet;
use Kickstand\Helpdesk;
use Kickstand\Model\Request;
use Kickstand\Model\Ticket;
use Kickstand\ProblemCode;
use Kickstand\RequestOptions;
use Kickstand\ResponseInfo;

function step(string $name, bool ...$checks): void
{
    foreach ($checks as $i => $check) {
        if (!$check) {
            throw new LogicException("$name: check $i fails");
        }
    }
    echo "$name\n";
}

/** @param callable(): mixed $call */
function problem(callable $call): ProblemException
{
    try {
        $call();
    } catch (ProblemException $e) {
        return $e;
    }
    throw new LogicException('The call is not refused.');
}

/** Gets a request of the log, where it appears some seconds after its answer. */
function logged(Helpdesk $helpdesk, string $requestId): Request
{
    for ($attempt = 1; true; $attempt++) {
        try {
            return $helpdesk->apiKey->getRequest($requestId);
        } catch (ProblemException $e) {
            if ($e->status !== 404 || $attempt === 100) {
                throw $e;
            }
            usleep(200_000);
        }
    }
}

function helpdesk(Helpdesk $helpdesk): void
{
    $tag = 'walk-' . bin2hex(random_bytes(4));
    $ticket = $helpdesk->tickets->create([
        'subject' => 'The lock does not open',
        'text' => 'It beeps twice.',
        'tags' => [$tag],
        'customer' => ['name' => 'Ada', 'email' => 'ada@example.com'],
    ]);
    step('a ticket is created', $ticket->status === TicketStatus::OPEN, $ticket->customer->email === 'ada@example.com');

    $problem = problem(fn () => $helpdesk->tickets->create(['subjct' => 'typo', 'priority' => 'asap']));
    $pointers = array_map(static fn ($error) => $error->pointer, $problem->errors);
    step(
        'a problem lists all fields',
        $problem->problemCode === ProblemCode::VALIDATION_FAILED,
        $problem->status === 422 && $problem->requestId !== '',
        $pointers === ['#/subjct', '#/priority', '#/subject'],
    );

    $page = $helpdesk->tickets->list(
        tags: [$tag],
        status: [TicketStatus::OPEN, TicketStatus::PENDING],
        createdAtGte: new DateTimeImmutable('2026-01-01T00:00:00+01:00'),
        sort: '-updated_at',
        limit: 1,
        expand: ['customer'],
    );
    step('a list has filters', count($page->data) === 1, !$page->hasMore, $page->nextPage() === null);

    $ids = [];
    foreach ($helpdesk->tickets->list(limit: 3) as $listed) {
        $ids[] = $listed->id;
    }
    step('a list has pages', count($ids) > 6, $ids === array_unique($ids), in_array($ticket->id, $ids, true));

    $csv = implode('', iterator_to_array($helpdesk->tickets->exportCsv(tags: [$tag]), false));
    $exported = iterator_to_array($helpdesk->tickets->export(tags: [$tag]));
    step('a list is exported', substr_count($csv, $ticket->id) === 1, $exported[0]->toArray() == $ticket->toArray());

    $etag = null;
    $observe = new RequestOptions(onResponse: static function (ResponseInfo $info) use (&$etag): void {
        $etag = $info->etag;
    });
    $helpdesk->tickets->get($ticket->id, options: $observe);
    $updated = $helpdesk->tickets->update($ticket->id, [
        'priority' => TicketPriority::HIGH,
        'metadata' => ['order' => '1042'],
    ], new RequestOptions(ifMatch: $etag));
    $older = new RequestOptions(ifMatch: $etag);
    $stale = problem(fn () => $helpdesk->tickets->update($ticket->id, ['priority' => 'low'], $older));
    $append = static fn (Ticket $t): array => ['tags' => [...$t->tags, 'seen']];
    step(
        'a record is changed under its ETag',
        $updated->priority === TicketPriority::HIGH && $updated->metadata === ['order' => '1042'],
        $stale->problemCode === ProblemCode::PRECONDITION_FAILED,
        $helpdesk->tickets->update($ticket->id, ['metadata' => []])->metadata === ['order' => '1042'],
        $helpdesk->tickets->modify($ticket->id, $append)->tags === [$tag, 'seen'],
    );

    $helpdesk->tickets->get($ticket->id, options: $observe);
    $unchanged = $helpdesk->tickets->get($ticket->id, options: new RequestOptions(ifNoneMatch: $etag));
    step('an unchanged record is not sent', $unchanged === null);

    $limit = null;
    $replayed = [];
    $once = new RequestOptions(
        idempotencyKey: "note-$tag",
        onResponse: static function (ResponseInfo $info) use (&$replayed, &$limit): void {
            $replayed[] = $info->replayed;
            $limit = $info->rateLimit;
        },
    );
    $body = ['kind' => 'note', 'text' => 'A stone was in the lock.', 'attachments' => [Attachment::fromFile(__FILE__)]];
    $note = $helpdesk->messages->create($ticket->id, $body, $once);
    $again = $helpdesk->messages->create($ticket->id, $body, $once);
    step('a repeated request is executed once', $note->id === $again->id, $replayed === [false, true]);
    step('an answer has the rate limit', $limit?->limit > 0, $limit?->reset > new DateTimeImmutable('-1 minute'));

    $file = $helpdesk->messages->getAttachment((string) $note->attachments[0]->id);
    step('an attachment is read', $file?->contents() === file_get_contents(__FILE__));

    $logged = logged($helpdesk, $problem->requestId);
    $failed = array_column($helpdesk->apiKey->listRequests(failed: true)->data, 'requestId');
    step('a request is in the log', $logged->status === 422, in_array($problem->requestId, $failed, true));

    $reply = $helpdesk->messages->create($ticket->id, ['kind' => 'reply', 'text' => 'It is repaired.']);
    $messages = iterator_to_array($helpdesk->messages->list($ticket->id, limit: 1));
    step('a ticket is answered', $reply->delivery === null, in_array($reply->id, array_column($messages, 'id'), true));

    $helpdesk->tickets->delete($ticket->id);
    step('a ticket is deleted', problem(fn () => $helpdesk->tickets->get($ticket->id))->status === 404);
}

function fleet(Fleet $fleet): void
{
    $began = new DateTimeImmutable();
    $later = static fn (int $seconds): DateTimeImmutable => $began->modify("+$seconds seconds");
    $fleet->sandbox->reset();
    step('the sandbox is reset', $fleet->sandbox->getClock()?->now <= new DateTimeImmutable('+1 minute'));

    $missing = array_column($fleet->vehicles->list(state: [VehicleState::MISSING], sort: 'code')->data, 'code');
    $free = [VehicleState::AVAILABLE];
    $near = $fleet->vehicles->list(lat: 52.52, lng: 13.41, radiusMeters: 10000, state: $free, limit: 1);
    step('vehicles are found', $missing === ['B-0114', 'F-0108'], $near->data[0]->state === $free[0]);

    $like = $fleet->vehicles->list(code: ['B-0101'])->data[0];
    $scooter = $fleet->vehicles->create([
        'subaccount_id' => $like->subaccountId,
        'code' => 'TRIAL-1',
        'vehicle_type_id' => $like->vehicleTypeId,
        'state' => VehicleState::AVAILABLE,
        'battery_percent' => 80,
        'odometer_meters' => 0,
        'location' => ['lat' => 52.5219, 'lng' => 13.4132],
    ]);
    step('a vehicle is added', $scooter->currentRangeMeters === 36000, $scooter->location?->lat === 52.5219);

    $rider = null;
    foreach ($fleet->customers->export(subaccountId: [$like->subaccountId], status: ['active']) as $customer) {
        if ($customer->openRideId === null) {
            $rider = $customer->id;
            break;
        }
    }
    $body = ['customer_id' => $rider, 'vehicle_code' => 'TRIAL-1'];
    $once = new RequestOptions(idempotencyKey: 'trial-' . bin2hex(random_bytes(4)));
    $ride = $fleet->rides->create($body, $once);
    $taken = problem(fn () => $fleet->rides->create($body));
    step(
        'a ride is started once',
        $ride->status === 'active' && $fleet->rides->create($body, $once)->id === $ride->id,
        $taken->problemCode === ProblemCode::VEHICLE_UNAVAILABLE,
    );

    $clock = $fleet->sandbox->updateClock(['now' => $later(630)]);
    step('the clock is advanced', abs($clock->now->getTimestamp() - $later(630)->getTimestamp()) < 2);

    $park = ['status' => 'completed', 'end_location' => ['lat' => 52.515, 'lng' => 13.355]];
    $fee = problem(fn () => $fleet->rides->update($ride->id, $park));
    step('a fee must be accepted', $fee->problemCode === ProblemCode::OUT_OF_ZONE_FEE_REQUIRED);

    $ride = $fleet->rides->update($ride->id, [
        'status' => 'completed',
        'distance_meters' => 1850,
        'end_location' => ['lat' => 52.5251, 'lng' => 13.3694],
    ]);
    step(
        'a ride is ended and priced',
        $ride->price?->totalAmount === 375 && $ride->price->timeAmount === 275,
        $ride->paymentStatus === 'due',
    );

    $reserved = $fleet->rides->create(['status' => 'reserved'] + $body);
    $fleet->sandbox->updateClock(['now' => $later(4200)]);
    $expired = $fleet->rides->get($reserved->id);
    $silent = $fleet->vehicles->list(code: ['TRIAL-1'])->data[0];
    step(
        'changes happen in time',
        $expired?->cancelReason === 'reservation_expired' && $expired->price?->totalAmount === 150,
        $silent->state === VehicleState::NON_CONTACTABLE && $silent->lastEvent === 'comms_lost',
    );

    $revenue = $fleet->analytics->revenue(
        from: $began->format(DATE_RFC3339),
        to: $later(9000)->format(DATE_RFC3339),
        granularity: 'total',
    );
    $totals = array_column($revenue?->totals ?? [], 'fareAmount', 'currency');
    step('revenue is summed up', ($totals['EUR'] ?? 0) === 375);

    $rides = iterator_to_array($fleet->rides->export(vehicleId: [$scooter->id], sort: 'created_at'));
    step('rides are exported', array_column($rides, 'status') === ['completed', 'cancelled']);

    $import = $fleet->zones->import($fleet->zones->export(), onConflict: 'update');
    step(
        'zones are imported again',
        $import->summary()->unchanged === iterator_count($import) && $import->summary()->failed === 0,
        array_sum(array_map(static fn ($line) => (int) ($line->status !== 200), iterator_to_array($import))) === 0,
    );

    $geojson = implode('', iterator_to_array($fleet->zones->exportGeoJson(), false));
    step('zones are exported as GeoJSON', json_decode($geojson)->type === 'FeatureCollection');
}

helpdesk(new Helpdesk());
fleet(new Fleet(getenv('KICKSTAND_FLEET_KEY') ?: null));
