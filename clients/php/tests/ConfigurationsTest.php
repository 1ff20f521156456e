<?php

declare(strict_types=1);

namespace Kickstand\Tests;

use Kickstand\Fleet;
use Kickstand\Helpdesk;
use PHPUnit\Framework\TestCase;

/** Runs clients/vectors/configurations.json. */
final class ConfigurationsTest extends TestCase
{
    /** @return array<string, array{\stdClass}> */
    public static function vectors(): array
    {
        return Vectors::of('configurations');
    }

    /** @dataProvider vectors */
    public function testConfiguration(\stdClass $vector): void
    {
        $options = ['allowHttp' => $vector->options->allow_http ?? false];
        $arguments = [Vectors::key($vector->key), $vector->base_url];
        if (!isset($vector->result)) {
            $this->expectException(\InvalidArgumentException::class);
        }
        $urls = [
            'helpdesk' => (new Helpdesk(...$arguments, ...$options))->__debugInfo()['baseUrl'],
            'fleet' => (new Fleet(...$arguments, ...$options))->__debugInfo()['baseUrl'],
        ];
        $this->assertSame((array) $vector->result, $urls);
    }

    public function testEnvironment(): void
    {
        putenv('KICKSTAND_KEY=' . Vectors::key('live'));
        putenv('KICKSTAND_URL=https://kickstand.example');
        $this->assertSame(['baseUrl' => 'https://kickstand.example/v1'], (new Fleet())->__debugInfo());
        putenv('KICKSTAND_URL');
        putenv('KICKSTAND_KEY');
        $this->expectExceptionMessage('KICKSTAND_KEY');
        new Fleet();
    }
}
