<?php

declare(strict_types=1);

namespace Kickstand;

use Kickstand\Internal\Json;

/** The result of one record of an import. */
final class ImportLine
{
    private function __construct(
        /** The number of the record, from 1. */
        public readonly int $line,
        /** 201 for a new record, 200 for one that was there, otherwise the status of the problem. */
        public readonly int $status,
        public readonly ?string $id,
        /** @var array<string, mixed>|null the problem document of a record that failed */
        public readonly ?array $problem,
        /** @var list<string> telemetry that is older than the stored one */
        public readonly array $ignored,
        private readonly \stdClass $json,
    ) {
    }

    /** @internal */
    public static function fromJson(\stdClass $json): self
    {
        return new self(
            (int) ($json->line ?? 0),
            (int) ($json->status ?? 0),
            isset($json->id) ? (string) $json->id : null,
            ($json->problem ?? null) instanceof \stdClass ? Json::toArray($json->problem) : null,
            is_array($json->ignored ?? null) ? $json->ignored : [],
            $json,
        );
    }

    /** @return array<string, mixed> the members as the server sent them */
    public function toArray(): array
    {
        return Json::toArray($this->json);
    }
}
