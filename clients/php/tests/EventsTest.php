<?php

declare(strict_types=1);

namespace Kickstand\Tests;

use Kickstand\Enum\FleetCustomerStatus;
use Kickstand\Enum\WebhookSource;
use Kickstand\EventType;
use Kickstand\Model\FleetEventCustomerCreatedData;
use Kickstand\Record;
use Kickstand\Testing;
use Kickstand\Webhook;
use PHPUnit\Framework\TestCase;

/** The events of the OpenAPI documents are read, those of form B with their types. */
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

    /** @return array<string, array{\stdClass}> */
    public static function vectors(): array
    {
        return Vectors::of('events');
    }

    /**
     * Every event has the class of its source, with all members.
     *
     * @dataProvider vectors
     */
    public function testVector(\stdClass $vector): void
    {
        $body = (string) json_encode($vector->body);
        $secret = 'a secret of some length';
        $headers = Testing::sign($body, $secret);
        $events = [
            Webhook::verify($body, $headers, $secret, source: $vector->source),
            Webhook::verifyBody($body, $headers, $secret, Webhook::FORM_B, $vector->source),
        ];
        foreach ($events as $event) {
            $this->assertEquals($vector->body, Vectors::plain($event));
            if ($vector->record === '') {
                $this->assertInstanceOf(\stdClass::class, $event->data);
                continue;
            }
            $this->assertContains($event->event, (new \ReflectionClass(EventType::class))->getConstants());
            $this->assertSame('Kickstand\\Model\\' . ShapesTest::pascal($vector->record), $event->data::class);
            $this->checkMembers($vector->body->data, $event->data);
        }
    }

    /** Compares properties with members, except those that no version knows. */
    private function checkMembers(mixed $expected, mixed $actual, string $path = 'data'): void
    {
        if ($expected instanceof \stdClass) {
            foreach ((array) $expected as $name => $value) {
                if ($name !== 'added_later') {
                    $member = match (true) {
                        $actual instanceof Record => $actual->{lcfirst(ShapesTest::pascal($name))},
                        $actual instanceof \stdClass => $actual->{$name},
                        default => $actual[$name],
                    };
                    $this->checkMembers($value, $member, "$path.$name");
                }
            }
        } elseif (is_array($expected)) {
            $this->assertCount(count($expected), $actual, $path);
            foreach ($expected as $i => $value) {
                $this->checkMembers($value, $actual[$i], "$path.$i");
            }
        } elseif ($actual instanceof \DateTimeImmutable) {
            $this->assertEquals(new \DateTimeImmutable($expected), $actual, $path);
        } elseif (is_float($actual)) {
            $this->assertEquals($expected, $actual, $path);
        } else {
            $this->assertSame($expected, $actual, $path);
        }
    }

    /** The helpdesk and the fleet both have an event customer.created. */
    public function testSource(): void
    {
        $body = '{"id":"evt_1","event":"customer.created","created_at":"2026-11-21T09:00:00Z",'
            . '"data":{"livemode":true,"customer":{"id":"cus_1","object":"customer","livemode":true,'
            . '"subaccount_id":"sub_1","status":"active"}}}';
        $secret = 'a secret of some length';
        $headers = Testing::sign($body, $secret);
        foreach ([WebhookSource::FLEET, WebhookSource::SANDBOX] as $source) {
            $event = Webhook::verify($body, $headers, $secret, source: $source);
            $this->assertInstanceOf(FleetEventCustomerCreatedData::class, $event->data);
            $this->assertSame(FleetCustomerStatus::ACTIVE, $event->data->customer->status);
        }
        $this->assertNotInstanceOf(
            FleetEventCustomerCreatedData::class,
            Webhook::verify($body, $headers, $secret)->data
        );
        $this->expectException(\InvalidArgumentException::class);
        Webhook::verify($body, $headers, $secret, source: 'Fleet');
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
