<?php

declare(strict_types=1);

namespace Kickstand;

use Kickstand\Internal\Signer;

/** Helps to test receivers of webhooks. */
final class Testing
{
    private function __construct()
    {
    }

    /**
     * Returns the headers with which the server would deliver a body.
     *
     * @param string $id of the event
     * @param int|null $timestamp the Unix time; by default that of the clock
     * @return array<string, string>
     */
    public static function sign(
        string $body,
        #[\SensitiveParameter] string $secret,
        string $id = 'evt_test',
        ?int $timestamp = null,
        string $form = Webhook::FORM_B,
    ): array {
        $signer = new Signer($secret);
        $time = (string) ($timestamp ?? time());
        return [
            'Content-Type' => 'application/json',
            'Webhook-Id' => $id,
            'Webhook-Timestamp' => $time,
            'Webhook-Signature' => $signer->standard($id, $time, $body),
            'X-Service-Signature' => $signer->form($form, $body),
        ];
    }
}
