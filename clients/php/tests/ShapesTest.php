<?php

declare(strict_types=1);

namespace Kickstand\Tests;

use Kickstand\Fleet;
use Kickstand\Helpdesk;
use PHPUnit\Framework\TestCase;

/** The generated code has all that clients/vectors/shapes.json says it had at the last release. */
final class ShapesTest extends TestCase
{
    /** @return array<string, array{string, \stdClass}> */
    public static function apis(): array
    {
        $data = [];
        foreach ((array) Vectors::read('shapes') as $name => $shapes) {
            $data[$name] = [$name, $shapes];
        }
        return $data;
    }

    /** @dataProvider apis */
    public function testOperations(string $api, \stdClass $shapes): void
    {
        foreach ($shapes->operations as $operation) {
            $this->assertNotNull(self::method($api, $operation), $operation);
        }
    }

    /** @dataProvider apis */
    public function testRecords(string $api, \stdClass $shapes): void
    {
        foreach ((array) $shapes->records as $record => $members) {
            $class = 'Kickstand\\Model\\' . self::pascal($record);
            foreach ($members as $member) {
                if (isset(Operations::BODIES[$record])) {
                    [$api, $operation, $path] = Operations::BODIES[$record];
                    $comment = (string) self::method($api, $operation)?->getDocComment();
                    $shape = DocType::of($comment, '@param', 'body')?->shape($path) ?? [];
                    $this->assertArrayHasKey($member, $shape, "$record in $operation");
                } else {
                    $this->assertTrue(property_exists($class, lcfirst(self::pascal($member))), "$class: $member");
                }
            }
        }
    }

    /** @dataProvider apis */
    public function testEnums(string $api, \stdClass $shapes): void
    {
        foreach ((array) $shapes->enums as $enum => $values) {
            /** @var class-string $class */
            $class = 'Kickstand\\Enum\\' . self::pascal($enum);
            $constants = (new \ReflectionClass($class))->getConstants();
            $this->assertSame([], array_diff($values, $constants), "$api: $class");
        }
    }

    /** @dataProvider apis */
    public function testParametersAreDocumented(string $api): void
    {
        foreach (self::parameters($api) as $name => $parameter) {
            $comment = (string) $parameter->getDeclaringFunction()->getDocComment();
            $type = DocType::of($comment, '@param', $parameter->getName());
            if (in_array(ltrim((string) $parameter->getType(), '?'), ['array', 'iterable'], true)) {
                $this->assertNotNull($type, $name);
                $this->assertNotNull($type->refusal([7]), $name);
            }
            if ($type !== null) {
                $this->assertSame($parameter->allowsNull(), $type->refusal(null) === null, $name);
            }
        }
    }

    /** @return \Generator<string, \ReflectionParameter> those of all methods of groups */
    private static function parameters(string $api): \Generator
    {
        foreach (Operations::METHODS[$api] as [$group, $call, $bulk]) {
            $class = (string) self::client($api)->getProperty($group)->getType();
            foreach (array_filter([$call, $bulk, "{$bulk}Csv"], fn ($name) => method_exists($class, $name)) as $name) {
                foreach ((new \ReflectionMethod($class, $name))->getParameters() as $parameter) {
                    yield "$class::$name: {$parameter->getName()}" => $parameter;
                }
            }
        }
    }

    /** @return \ReflectionClass<Fleet|Helpdesk> */
    private static function client(string $api): \ReflectionClass
    {
        return new \ReflectionClass($api === 'fleet' ? Fleet::class : Helpdesk::class);
    }

    public static function method(string $api, string $operation): ?\ReflectionMethod
    {
        $names = Operations::METHODS[$api][$operation] ?? null;
        if ($names === null) {
            return null;
        }
        return new \ReflectionMethod((string) self::client($api)->getProperty($names[0])->getType(), $names[1]);
    }

    public static function pascal(string $snake): string
    {
        return str_replace(' ', '', ucwords(preg_replace('/[^a-z0-9]+/i', ' ', $snake) ?? ''));
    }
}
