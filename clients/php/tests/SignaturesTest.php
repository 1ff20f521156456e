<?php

declare(strict_types=1);

namespace Kickstand\Tests;

use Kickstand\Exception\SignatureException;
use Kickstand\Testing;
use Kickstand\Webhook;
use PHPUnit\Framework\TestCase;

/** Runs clients/vectors/signatures.json. */
final class SignaturesTest extends TestCase
{
    /** @return array<string, array{\stdClass}> */
    public static function vectors(): array
    {
        return Vectors::of('signatures');
    }

    /** @dataProvider vectors */
    public function testSignature(\stdClass $vector): void
    {
        $secrets = array_map(
            static fn (\stdClass $s): string => $s->text ?? 'whsec_' . base64_encode($s->whsec_base64_of),
            $vector->secrets
        );
        $headers = (array) ($vector->headers ?? []);
        try {
            $event = isset($vector->form)
                ? Webhook::verifyBody($vector->body, $headers, $secrets, $vector->form)
                : Webhook::verify($vector->body, $headers, $secrets, $vector->tolerance, $vector->now);
        } catch (SignatureException $e) {
            $this->assertSame($vector->error ?? null, $e->reason);
            return;
        }
        $this->assertFalse(isset($vector->error), 'the delivery is accepted');
        $actual = Vectors::plain($event);
        $actual->id = $event->id;
        $this->assertNull(Vectors::difference($vector->result, $actual));
        $this->assertSame($vector->result->event, $event->event);
        $time = $vector->result->created_at ?? $vector->result->timestamp;
        $this->assertEquals(new \DateTimeImmutable($time), $event->createdAt);
    }

    public function testSignedDeliveryVerifies(): void
    {
        $secret = 'whsec_' . base64_encode(random_bytes(32));
        $body = '{"event":"ticket.frozen","timestamp":"2026-11-21T09:00:00.000Z","data":{}}';
        $headers = Testing::sign($body, $secret, 'evt-1', form: Webhook::FORM_A);
        $this->assertSame('evt-1', Webhook::verify($body, $headers, $secret)->id);
        $this->assertSame('evt-1', Webhook::verifyBody($body, $headers, $secret, Webhook::FORM_A)->id);
        $lists = array_map(static fn (string $value): array => [$value], $headers);
        $this->assertSame('ticket.frozen', Webhook::verify($body, $lists, $secret)->event);
    }

    public function testEmptySecretIsRefused(): void
    {
        $headers = Testing::sign('{}', 'a secret of some length');
        foreach (['', 'whsec_', []] as $secret) {
            try {
                Webhook::verify('{}', $headers, $secret);
                $this->fail('an empty secret is accepted');
            } catch (\InvalidArgumentException $e) {
                $this->assertStringContainsString('secret', $e->getMessage());
            }
        }
    }
}
