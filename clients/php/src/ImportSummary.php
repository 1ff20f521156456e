<?php

declare(strict_types=1);

namespace Kickstand;

use Kickstand\Internal\Json;

/** The numbers of records of an import. */
final class ImportSummary
{
    private function __construct(
        public readonly int $created,
        public readonly int $updated,
        public readonly int $unchanged,
        public readonly int $failed,
        /** @var array<string, int> in how many records each read-only member was skipped */
        public readonly array $skipped,
        private readonly \stdClass $json,
    ) {
    }

    /** @internal */
    public static function fromJson(\stdClass $json): self
    {
        $skipped = [];
        foreach ((array) ($json->skipped ?? []) as $name => $count) {
            $skipped[(string) $name] = (int) $count;
        }
        return new self(
            (int) ($json->created ?? 0),
            (int) ($json->updated ?? 0),
            (int) ($json->unchanged ?? 0),
            (int) ($json->failed ?? 0),
            $skipped,
            $json,
        );
    }

    /** @return array<string, mixed> the members as the server sent them */
    public function toArray(): array
    {
        return Json::toArray($this->json);
    }
}
