<?php

declare(strict_types=1);

namespace Kickstand\Exception;

use Kickstand\Internal\Json;

/**
 * An answer other than 2xx: a problem document (RFC 9457), or the answer of a proxy, which has an
 * empty problem code. The message has the detail, the code and the request id; getCode() returns the
 * status.
 */
final class ProblemException extends KickstandException
{
    /**
     * @param list<FieldError> $errors
     */
    private function __construct(
        /** The HTTP status. */
        public readonly int $status,
        /** A constant of {@see \Kickstand\ProblemCode}, or a newer code; empty if a proxy answered. */
        public readonly string $problemCode,
        /** The URL of a page about the code, or an empty string. */
        public readonly string $type,
        /** The meaning of the code, or an empty string. */
        public readonly string $title,
        /** The reason, in a sentence. */
        public readonly string $detail,
        /** The id of the request in the server's log, or an empty string. */
        public readonly string $requestId,
        /** The invalid fields. */
        public readonly array $errors,
        /** The wait in seconds before the request makes sense again, if the server sent one. */
        public readonly ?float $retryAfter,
        private readonly \stdClass $json,
    ) {
        $origin = $problemCode === '' ? [] : [$problemCode];
        if ($requestId !== '') {
            $origin[] = "request $requestId";
        }
        parent::__construct($detail . ($origin === [] ? '' : ' (' . implode(', ', $origin) . ')'), $status);
    }

    /**
     * The whole problem document, with the members that only some codes have, such as `required`.
     *
     * @return array<string, mixed>
     */
    public function toArray(): array
    {
        return Json::toArray($this->json);
    }

    /**
     * @internal
     * @param \stdClass|null $json the problem document, or null if the answer is none
     * @param string|null $detail replaces the detail of an answer that is none
     */
    public static function fromAnswer(
        int $status,
        string $requestId,
        ?float $retryAfter,
        ?\stdClass $json,
        ?string $detail = null,
    ): self {
        $string = static function (string $name) use ($json): string {
            $value = $json->{$name} ?? null;
            return is_string($value) ? $value : '';
        };
        $errors = [];
        foreach (is_array($json->errors ?? null) ? $json->errors : [] as $error) {
            if ($error instanceof \stdClass) {
                $errors[] = FieldError::fromJson($error);
            }
        }
        return new self(
            $status,
            $string('code'),
            $string('type'),
            $string('title'),
            $string('detail') ?: $detail ?? "The server answered with status $status.",
            $string('request_id') ?: $requestId,
            $errors,
            $retryAfter,
            $json ?? new \stdClass(),
        );
    }
}
