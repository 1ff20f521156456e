<?php

declare(strict_types=1);

namespace Kickstand;

use Kickstand\Enum\WebhookSource;
use Kickstand\Exception\KickstandException;
use Kickstand\Internal\EventData;
use Kickstand\Internal\Json;
use Kickstand\Internal\Reader;

/** An event of a webhook, in either payload form. */
final class Event implements \JsonSerializable
{
    private function __construct(
        /**
         * The same in every delivery of the event: remember it, since an event may be delivered twice.
         * Empty if form A was verified by its body alone and the delivery has no Webhook-Id.
         */
        public readonly string $id,
        /** A constant of {@see EventType}, or a newer event. */
        public readonly string $event,
        public readonly ?\DateTimeImmutable $createdAt,
        /**
         * The records as of the event: one of `Kickstand\Model`, such as EventTicketCreatedData or, of the fleet,
         * FleetEventRideCompletedData. In form A, for an event that is unknown to this version of the library, or
         * for data that do not fit, an object as it was sent.
         */
        public readonly Record|\stdClass $data,
        private readonly \stdClass $json,
    ) {
    }

    /** @internal */
    public static function fromDelivery(
        \stdClass $json,
        string $id,
        string $source = WebhookSource::HELPDESK,
    ): self {
        $reader = new Reader($json, 'event');
        $event = $reader->string('event');
        $data = ($json->data ?? null) instanceof \stdClass ? $json->data : new \stdClass();
        $isNested = isset($json->id); // form B
        return new self(
            $isNested ? $reader->string('id') : $id,
            $event,
            $reader->timeOrNull('created_at') ?? $reader->timeOrNull('timestamp'),
            $isNested ? self::read($source, $event, $data) : $data,
            $json,
        );
    }

    /** An authentic event is not refused for its data. */
    private static function read(string $source, string $event, \stdClass $data): Record|\stdClass
    {
        try {
            return $source === WebhookSource::HELPDESK
                ? EventData::helpdesk($event, $data)
                : EventData::fleet($event, $data);
        } catch (KickstandException) {
            return $data;
        }
    }

    /**
     * The members as the server sent them.
     *
     * @return array<string, mixed>
     */
    public function toArray(): array
    {
        return Json::toArray($this->json);
    }

    public function jsonSerialize(): \stdClass
    {
        return $this->json;
    }
}
