<?php

declare(strict_types=1);

namespace Kickstand\Tests;

use Kickstand\EventType;
use Kickstand\Record;
use Kickstand\Testing;
use Kickstand\Webhook;
use PHPUnit\Framework\TestCase;

/** The events of the OpenAPI document are read in both forms, those of form B with their types. */
final class EventsTest extends TestCase
{
    /** @return array<string, array{\stdClass}> the examples of deliveries */
    public static function deliveries(): array
    {
        $text = (string) file_get_contents(__DIR__ . '/../../../docs/api/helpdesk.openapi.json');
        $data = [];
        foreach ((array) json_decode($text)->webhooks as $name => $item) {
            $data[$name] = [$item->post->requestBody->content->{'application/json'}->example];
        }
        return $data;
    }

    /** @dataProvider deliveries */
    public function testDelivery(\stdClass $delivery): void
    {
        $body = (string) json_encode($delivery);
        $secret = 'a secret of some length';
        $event = Webhook::verify($body, Testing::sign($body, $secret), $secret);
        $this->assertSame(isset($delivery->id), $event->data instanceof Record);
        $this->assertEquals($delivery->data, Vectors::plain($event->data));
        $this->assertContains($event->event, (new \ReflectionClass(EventType::class))->getConstants());
    }

    public function testDataThatDoNotFit(): void
    {
        $body = '{"id":"1","event":"ticket.created","created_at":"2026-11-21T09:00:00Z","data":{"ticket":{"id":"t"}}}';
        $secret = 'a secret of some length';
        $event = Webhook::verify($body, Testing::sign($body, $secret), $secret);
        $this->assertInstanceOf(\stdClass::class, $event->data);
        $this->assertSame('t', $event->data->ticket->id);
    }
}
