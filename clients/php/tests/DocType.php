<?php

declare(strict_types=1);

namespace Kickstand\Tests;

/** A type of PHPDoc, as far as the generated code uses them. */
final class DocType
{
    /**
     * @param list<self> $inner the alternatives of a union, or the arguments in angle brackets
     * @param array<string, array{self, bool}> $members of an array shape: the type, and whether it is required
     */
    private function __construct(
        private readonly string $name,
        private readonly array $inner = [],
        private readonly array $members = [],
    ) {
    }

    /** The type after a tag of a doc comment, such as "@param" with the name of its parameter. */
    public static function of(string $comment, string $tag, string $variable = ''): ?self
    {
        $text = (string) preg_replace('~^\s*/?\*+/?[ \t]?~m', '', $comment);
        $pattern = '/' . preg_quote($tag) . '\s+((?:(?!' . preg_quote($tag) . '\s).)*?)'
            . ($variable === '' ? '(?:\s|$)' : '\s\$' . $variable . '\b') . '/s';
        if ($variable === '') { // a type without a name has blanks only after commas
            $pattern = '/' . preg_quote($tag) . '\s+((?:[^\s,]|,\s)+)/s';
        }
        if (preg_match($pattern, $text, $match) !== 1) {
            return null;
        }
        preg_match_all('/array\{|\'[^\']*\'|[\w\\\\]+(?:::\*)?|[|<>,:?}]/', $match[1], $tokens);
        $rest = $tokens[0];
        return self::union($rest);
    }

    /** @param list<string> $tokens */
    private static function union(array &$tokens): self
    {
        $types = [self::single($tokens)];
        while (($tokens[0] ?? '') === '|') {
            array_shift($tokens);
            $types[] = self::single($tokens);
        }
        return count($types) === 1 ? $types[0] : new self('|', $types);
    }

    /** @param list<string> $tokens */
    private static function single(array &$tokens): self
    {
        $name = (string) array_shift($tokens);
        if ($name === 'array{') {
            $members = [];
            while ($tokens[0] !== '}') {
                $member = array_shift($tokens);
                $required = array_shift($tokens) === ':' || array_shift($tokens) !== ':';
                $members[$member] = [self::union($tokens), $required];
                if ($tokens[0] === ',') {
                    array_shift($tokens);
                }
            }
            array_shift($tokens);
            return new self($name, [], $members);
        }
        $inner = [];
        if (($tokens[0] ?? '') === '<') {
            do {
                array_shift($tokens);
                $inner[] = self::union($tokens);
            } while ($tokens[0] === ',');
            array_shift($tokens);
        }
        return new self($name, $inner);
    }

    /**
     * The shape at members, through lists and unions.
     *
     * @param list<string> $path
     * @return array<string, array{self, bool}>
     */
    public function shape(array $path): array
    {
        foreach ($this->inner as $inner) {
            $shape = $inner->shape($path);
            if ($shape !== []) {
                return $shape;
            }
        }
        if ($this->members === [] || $path === []) {
            return $this->members;
        }
        return ($this->members[$path[0]] ?? [null])[0]?->shape(array_slice($path, 1)) ?? [];
    }

    /** The first reason why a value is not of the type, or null. */
    public function refusal(mixed $value): ?string
    {
        switch ($this->name) {
            case '|':
                $refusals = array_map(static fn (self $type): ?string => $type->refusal($value), $this->inner);
                return in_array(null, $refusals, true) ? null : implode(', ', $refusals);
            case 'array{':
                return $this->refusalOfMembers($value);
            case 'list':
                return is_array($value) && array_is_list($value) ? $this->refusalOfItems($value) : 'no list';
            case 'array':
            case 'iterable':
                return is_array($value) ? $this->refusalOfItems($value) : 'no array';
            case 'mixed':
                return null;
            case 'float':
                return is_float($value) ? null : 'no float';
        }
        if (str_ends_with($this->name, '::*')) {
            $class = new \ReflectionClass('Kickstand\\' . substr($this->name, 0, -3));
            return in_array($value, $class->getConstants(), true) ? null : "no value of $this->name";
        }
        $class = "Kickstand\\Model\\$this->name";
        if (class_exists($class)) {
            return $value instanceof $class ? null : "no $this->name";
        }
        return get_debug_type($value) === $this->name ? null : get_debug_type($value) . " is no $this->name";
    }

    private function refusalOfMembers(mixed $value): ?string
    {
        if (!is_array($value)) {
            return 'no array';
        }
        $unknown = array_diff_key($value, $this->members);
        if ($unknown !== []) {
            return 'unknown: ' . implode(', ', array_keys($unknown));
        }
        foreach ($this->members as $name => [$type, $required]) {
            if (!array_key_exists($name, $value)) {
                if ($required) {
                    return "$name is missing";
                }
                continue;
            }
            $refusal = $type->refusal($value[$name]);
            if ($refusal !== null) {
                return "$name: $refusal";
            }
        }
        return null;
    }

    /** @param array<array-key, mixed> $value */
    private function refusalOfItems(array $value): ?string
    {
        $type = $this->inner[count($this->inner) - 1] ?? null;
        foreach ($value as $key => $item) {
            $refusal = $type?->refusal($item);
            if ($refusal !== null) {
                return "$key: $refusal";
            }
        }
        return null;
    }
}
