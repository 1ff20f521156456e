<?php

declare(strict_types=1);

namespace Kickstand\Exception;

/** One invalid field, parameter or header of a request. */
final class FieldError
{
    private function __construct(
        /** Such as `required` or `invalid_value`. */
        public readonly string $code,
        /** The reason, in a sentence. */
        public readonly string $detail,
        /** A JSON pointer into the body, such as `#/subject`. */
        public readonly ?string $pointer,
        /** The name of a query parameter. */
        public readonly ?string $parameter,
        /** The name of a header. */
        public readonly ?string $header,
    ) {
    }

    /** @internal */
    public static function fromJson(\stdClass $json): self
    {
        $string = static function (string $name) use ($json): ?string {
            $value = $json->{$name} ?? null;
            return is_string($value) ? $value : null;
        };
        return new self(
            $string('code') ?? '',
            $string('detail') ?? '',
            $string('pointer'),
            $string('parameter'),
            $string('header'),
        );
    }
}
