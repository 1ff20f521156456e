<?php

declare(strict_types=1);

namespace Kickstand;

use Kickstand\Internal\Json;

/** A record of an answer, or an object in one. */
abstract class Record implements \JsonSerializable
{
    protected function __construct(private readonly \stdClass $stored)
    {
    }

    /** Makes a record from decoded JSON, such as that of a fixture. */
    abstract public static function fromJson(\stdClass $json): static;

    /**
     * Makes a record of the answer to a key that may write records but not read them: the answer has id and
     * object, and the other properties remain without a value.
     *
     * @internal
     */
    public static function unread(\stdClass $json): static
    {
        $class = new \ReflectionClass(static::class);
        $record = $class->newInstanceWithoutConstructor();
        $record->stored = $json;
        foreach (['id', 'object'] as $name) {
            $class->getProperty($name)->setValue($record, $json->{$name});
        }
        return $record;
    }

    /**
     * The members as the server sent them, also members that are unknown to this version of the library.
     *
     * @return array<string, mixed>
     */
    public function toArray(): array
    {
        return Json::toArray($this->stored);
    }

    public function jsonSerialize(): \stdClass
    {
        return $this->stored;
    }

    /** @return array<string, mixed> */
    public function __debugInfo(): array
    {
        return array_diff_key(get_object_vars($this), ['stored' => true]);
    }
}
