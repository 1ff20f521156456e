<?php

declare(strict_types=1);

namespace Kickstand\Tests;

/** Makes values of the schemas in an OpenAPI document. */
final class Schema
{
    /** @param \stdClass $document an OpenAPI document */
    public function __construct(private readonly \stdClass $document)
    {
    }

    /** @return array<string, \stdClass> the operations by id */
    public function operations(): array
    {
        $operations = [];
        foreach ((array) $this->document->paths as $item) {
            foreach ((array) $item as $operation) {
                if ($operation instanceof \stdClass && isset($operation->operationId)) {
                    $operations[$operation->operationId] = $operation;
                }
            }
        }
        return $operations;
    }

    /**
     * A value of a schema: with all members that are not null, or with only the required ones, null
     * where they may be.
     */
    public function sample(\stdClass $schema, bool $full, int $depth = 0): mixed
    {
        if (isset($schema->{'$ref'})) {
            $parts = explode('/', $schema->{'$ref'});
            return $this->sample($this->document->components->schemas->{end($parts)}, $full, $depth);
        }
        if (isset($schema->anyOf)) {
            $isNull = static fn (\stdClass $s): bool => ($s->type ?? '') === 'null';
            $order = $schema->anyOf;
            usort($order, static fn ($a, $b): int => $full ? $isNull($a) <=> $isNull($b) : $isNull($b) <=> $isNull($a));
            return $this->sample($order[0], $full, $depth);
        }
        $types = (array) ($schema->type ?? []);
        if (!$full && in_array('null', $types, true)) {
            return null;
        }
        return match ($types[0] ?? '') {
            'object' => $this->object($schema, $full, $depth),
            'array' => $full && $depth < 8 ? [$this->sample($schema->items, $full, $depth + 1)] : [],
            'integer' => 7,
            'number' => 7.5,
            'boolean' => true,
            'string' => $this->string($schema),
            default => 'any',
        };
    }

    private function string(\stdClass $schema): string
    {
        $values = array_filter((array) ($schema->enum ?? $schema->const ?? []));
        if ($values !== []) {
            return (string) end($values);
        }
        return match ($schema->format ?? '') {
            'date-time' => '2026-11-21T09:00:00.123Z',
            'date' => '2026-11-21',
            default => 'text',
        };
    }

    private function object(\stdClass $schema, bool $full, int $depth): \stdClass
    {
        $object = new \stdClass();
        foreach ((array) ($schema->properties ?? []) as $name => $property) {
            $required = in_array($name, $schema->required ?? [], true);
            if ($required || $full && $depth < 8) {
                $object->{$name} = $this->sample($property, $full, $depth + 1);
            }
        }
        if ($full && ($schema->additionalProperties ?? null) instanceof \stdClass) {
            $object->{'a key'} = $this->sample($schema->additionalProperties, $full, $depth + 1);
        }
        return $object;
    }
}
