<?php

declare(strict_types=1);

namespace Kickstand\Internal;

use Kickstand\Webhook;

/**
 * Signs with one secret of a webhook.
 *
 * @internal
 */
final class Signer
{
    public function __construct(#[\SensitiveParameter] private readonly string $secret)
    {
        if ($secret === '' || $secret === 'whsec_') {
            throw new \InvalidArgumentException('The secret of the webhook is empty.');
        }
    }

    /**
     * @param string|list<string> $secrets
     * @return list<self>
     */
    public static function all(#[\SensitiveParameter] string|array $secrets): array
    {
        if ($secrets === []) {
            throw new \InvalidArgumentException('The secret of the webhook is missing.');
        }
        return array_map(static fn (string $secret): self => new self($secret), array_values((array) $secrets));
    }

    /** One signature of the header Webhook-Signature. */
    public function standard(string $id, string $timestamp, string $body): string
    {
        $mac = hash_hmac('sha256', "$id.$timestamp.$body", $this->standardKey(), true);
        return 'v1,' . base64_encode($mac);
    }

    /** The header X-Service-Signature. */
    public function form(string $form, string $body): string
    {
        return ($form === Webhook::FORM_B ? 'sha256=' : '') . hash_hmac('sha256', $body, $this->secret);
    }

    /** The bytes that follow whsec_ in base64, padded or not, or else the secret as it is written. */
    private function standardKey(): string
    {
        if (!str_starts_with($this->secret, 'whsec_')) {
            return $this->secret;
        }
        $encoded = rtrim(substr($this->secret, strlen('whsec_')), '=');
        if (preg_match('~^[A-Za-z0-9+/]+$~D', $encoded) !== 1 || strlen($encoded) % 4 === 1) {
            return $this->secret;
        }
        return (string) base64_decode($encoded);
    }

    /** @return array<string, mixed> */
    public function __debugInfo(): array
    {
        return [];
    }
}
