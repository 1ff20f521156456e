<?php

declare(strict_types=1);

namespace Kickstand;

use Kickstand\Enum\WebhookSource;
use Kickstand\Exception\KickstandException;
use Kickstand\Exception\SignatureException;
use Kickstand\Internal\Json;
use Kickstand\Internal\Signer;

/** Verifies the deliveries that a webhook receives. */
final class Webhook
{
    /** The flat payload form. Its signature is hexadecimal. */
    public const FORM_A = 'a';

    /** The nested payload form. Its signature begins with `sha256=`. */
    public const FORM_B = 'b';

    private function __construct()
    {
    }

    /**
     * Verifies a delivery by the headers of Standard Webhooks and returns its event.
     *
     * @param string $body the raw body, such as file_get_contents('php://input')
     * @param array<string, string|list<string>> $headers of any case, such as getallheaders()
     * @param string|list<string> $secret the webhook's secret, or several while one replaces another
     * @param int $tolerance the accepted age in seconds, also into the future
     * @param int|null $now the Unix time; by default that of the clock
     * @param string $source of the webhook, a constant of {@see WebhookSource}. It decides the class of the
     *                       data: the helpdesk and the fleet both have an event customer.created.
     * @throws SignatureException if the delivery is not authentic, or not new
     */
    public static function verify(
        string $body,
        array $headers,
        #[\SensitiveParameter] string|array $secret,
        int $tolerance = 300,
        ?int $now = null,
        string $source = WebhookSource::HELPDESK,
    ): Event {
        self::checkSource($source);
        $id = self::header($headers, 'webhook-id');
        $timestamp = self::header($headers, 'webhook-timestamp');
        $signatures = preg_split('/\s+/', self::header($headers, 'webhook-signature'), -1, PREG_SPLIT_NO_EMPTY);
        if ($id === '' || $timestamp === '' || !$signatures) {
            throw new SignatureException(SignatureException::UNSIGNED, 'The delivery is not signed.');
        }
        $matches = false;
        foreach (Signer::all($secret) as $signer) {
            $expected = $signer->standard($id, $timestamp, $body);
            foreach ($signatures as $signature) {
                $matches = hash_equals($expected, $signature) || $matches;
            }
        }
        if (!$matches || preg_match('/^\d{1,15}$/D', $timestamp) !== 1) {
            throw self::mismatch();
        }
        if (abs(($now ?? time()) - (int) $timestamp) > $tolerance) {
            throw new SignatureException(
                SignatureException::TIMESTAMP,
                "The signature's timestamp is more than $tolerance seconds off."
            );
        }
        return self::event($body, $id, $source);
    }

    /**
     * Verifies a delivery by its header X-Service-Signature alone, which has no time: an old delivery
     * verifies too. Prefer {@see Webhook::verify()}.
     *
     * @param string $body the raw body
     * @param array<string, string|list<string>> $headers of any case
     * @param string|list<string> $secret the webhook's secret, or several
     * @param string $form FORM_A or FORM_B, the payload form of the webhook
     * @param string $source of the webhook, as of {@see Webhook::verify()}
     * @throws SignatureException if the delivery is not authentic
     */
    public static function verifyBody(
        string $body,
        array $headers,
        #[\SensitiveParameter] string|array $secret,
        string $form,
        string $source = WebhookSource::HELPDESK,
    ): Event {
        self::checkSource($source);
        if ($form !== self::FORM_A && $form !== self::FORM_B) {
            throw new \InvalidArgumentException('The form must be FORM_A or FORM_B.');
        }
        $signature = self::header($headers, 'x-service-signature');
        if ($signature === '') {
            throw new SignatureException(SignatureException::UNSIGNED, 'The delivery is not signed.');
        }
        $matches = false;
        foreach (Signer::all($secret) as $signer) {
            $matches = hash_equals($signer->form($form, $body), $signature) || $matches;
        }
        if (!$matches) {
            throw self::mismatch();
        }
        return self::event($body, self::header($headers, 'webhook-id'), $source);
    }

    private static function mismatch(): SignatureException
    {
        return new SignatureException(
            SignatureException::SIGNATURE,
            'The signature does not match the body and the secret.'
        );
    }

    private static function checkSource(string $source): void
    {
        if (!in_array($source, [WebhookSource::HELPDESK, WebhookSource::FLEET, WebhookSource::SANDBOX], true)) {
            throw new \InvalidArgumentException('The source must be a constant of WebhookSource.');
        }
    }

    private static function event(string $body, string $id, string $source): Event
    {
        try {
            $json = Json::decode($body);
        } catch (\JsonException $e) {
            throw new KickstandException('The body of the delivery is not JSON.', 0, $e);
        }
        return $json instanceof \stdClass
            ? Event::fromDelivery($json, $id, $source)
            : throw new KickstandException('The body of the delivery is not an object.');
    }

    /** @param array<string, string|list<string>> $headers */
    private static function header(array $headers, string $wanted): string
    {
        foreach ($headers as $name => $value) {
            if (strtolower((string) $name) === $wanted) {
                return is_array($value) ? (string) ($value[0] ?? '') : $value;
            }
        }
        return '';
    }
}
