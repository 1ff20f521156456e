<?php

declare(strict_types=1);

namespace Kickstand\Internal;

/**
 * An API key. No dump of an object shows it.
 *
 * @internal
 */
final class Key
{
    /** @var \Closure(): string A closure, because var_export() and casts show properties. */
    private readonly \Closure $value;

    public function __construct(#[\SensitiveParameter] string $value)
    {
        if (preg_match('/^[\x21-\x7e]+$/D', $value) !== 1) {
            throw new \InvalidArgumentException(
                $value === ''
                    ? 'The API key is missing: pass key, or set KICKSTAND_KEY.'
                    : 'The API key has a blank, a line break or another character that no key has.'
            );
        }
        $this->value = static fn (): string => $value;
    }

    public function authorization(): string
    {
        return 'Bearer ' . ($this->value)();
    }

    public function isTest(): bool
    {
        return str_starts_with(($this->value)(), 'sk_test_');
    }

    /** @return array<string, mixed> */
    public function __debugInfo(): array
    {
        return [];
    }

    /** @return array<string, mixed> */
    public function __serialize(): array
    {
        throw new \LogicException('An API key cannot be serialized.');
    }
}
