<?php

declare(strict_types=1);

namespace Kickstand\Tests;

use Kickstand\Exception\KickstandException;
use Kickstand\Fleet;
use Kickstand\Helpdesk;
use Kickstand\Http\Request;
use Kickstand\Http\Response;
use Kickstand\Http\Transport;
use Kickstand\Webhook;
use PHPUnit\Framework\TestCase;

/** Keys appear in no dump, trace or error. */
final class SecretsTest extends TestCase
{
    private const SECRET = 'kkkkkkkkkkkk';

    private static function helpdesk(): Helpdesk
    {
        $transport = new class implements Transport {
            public function send(Request $request): Response
            {
                throw new KickstandException('No answer to ' . print_r($request, true));
            }
        };
        return new Helpdesk(Vectors::key('live'), 'https://kickstand.example', transport: $transport);
    }

    public function testDumps(): void
    {
        $helpdesk = self::helpdesk();
        $fleet = new Fleet(Vectors::key('test'), 'https://kickstand.example');
        foreach ([$helpdesk, $helpdesk->tickets, $fleet] as $object) {
            ob_start();
            var_dump($object);
            $this->assertStringNotContainsString(self::SECRET, (string) ob_get_clean());
            $this->assertStringNotContainsString(self::SECRET, print_r($object, true));
            $this->assertStringNotContainsString(self::SECRET, var_export($object, true));
            $this->assertStringNotContainsString(self::SECRET, (string) json_encode($object));
            $this->assertStringNotContainsString(self::SECRET, print_r((array) $object, true));
        }
    }

    public function testTraces(): void
    {
        $ignored = ini_set('zend.exception_ignore_args', '0');
        try {
            self::helpdesk()->tickets->create(['subject' => 'x']);
            $this->fail('there is no error');
        } catch (KickstandException $e) {
            $this->assertStringNotContainsString(self::SECRET, (string) $e);
            foreach ($e->getTrace() as $frame) {
                $class = $frame['class'] ?? '';
                if (str_starts_with($class, 'Kickstand\\') && !str_starts_with($class, 'Kickstand\\Tests')) {
                    $this->assertArrayHasKey('args', $frame);
                    $this->assertStringNotContainsString(self::SECRET, print_r($frame['args'], true));
                }
            }
        } finally {
            ini_set('zend.exception_ignore_args', (string) $ignored);
        }
    }

    /** @requires PHP >= 8.2 */
    public function testTraceOfRefusedSecrets(): void
    {
        $ignored = ini_set('zend.exception_ignore_args', '0');
        $refused = [
            static fn () => new Helpdesk(Vectors::key('live') . "\n", 'https://kickstand.example'),
            static fn () => new Helpdesk(Vectors::key('live'), 'http://kickstand.example'),
            static fn () => Webhook::verify('', [], Vectors::key('live')),
        ];
        try {
            foreach ($refused as $call) {
                try {
                    $call();
                    $this->fail('nothing is refused');
                } catch (\InvalidArgumentException | KickstandException $e) {
                    $this->assertStringNotContainsString(self::SECRET, $e->getMessage());
                    $frames = array_slice($e->getTrace(), 0, 2);
                    $this->assertStringNotContainsString(self::SECRET, print_r($frames, true));
                }
            }
        } finally {
            ini_set('zend.exception_ignore_args', (string) $ignored);
        }
    }

    public function testClientIsNotSerialized(): void
    {
        $this->expectException(\LogicException::class);
        serialize(self::helpdesk());
    }
}
