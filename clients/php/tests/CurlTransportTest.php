<?php

declare(strict_types=1);

namespace Kickstand\Tests;

use Kickstand\Exception\ConnectionException;
use Kickstand\Exception\KickstandException;
use Kickstand\Exception\ProblemException;
use Kickstand\Exception\TimeoutException;
use Kickstand\Fleet;
use Kickstand\Helpdesk;
use Kickstand\Http\CurlTransport;
use Kickstand\Http\Request;
use Kickstand\Internal\Key;
use Kickstand\RequestOptions;
use Kickstand\Timing;
use PHPUnit\Framework\TestCase;

/** Sends requests with curl to a server that misbehaves. */
final class CurlTransportTest extends TestCase
{
    /** @var resource */
    private static $server;
    private static string $url;

    public static function setUpBeforeClass(): void
    {
        [self::$server, $address] = self::start();
        self::$url = "http://$address";
    }

    public static function tearDownAfterClass(): void
    {
        self::stop(self::$server);
    }

    /** @return array{resource, string} a server and its address */
    private static function start(string ...$arguments): array
    {
        $server = proc_open([PHP_BINARY, __DIR__ . '/server.php', ...$arguments], [1 => ['pipe', 'w']], $pipes);
        if ($server === false) {
            self::fail('the server does not start');
        }
        return [$server, trim((string) fgets($pipes[1]))];
    }

    /** @param resource $server */
    private static function stop($server): void
    {
        proc_terminate($server);
        proc_close($server);
    }

    private static function helpdesk(): Helpdesk
    {
        return new Helpdesk(Vectors::key('live'), self::$url, timeout: 0.2, maxRetries: 0);
    }

    /** @return array<string, mixed> the request as the server has read it */
    private static function echo(Request $request): array
    {
        $text = implode('', iterator_to_array((new CurlTransport())->send($request)->body, false));
        return (array) json_decode($text, true);
    }

    /**
     * @param array<string, string> $headers
     * @param string|iterable<string>|null $body
     */
    private static function request(
        string $method,
        string $path,
        array $headers = [],
        string|iterable|null $body = null,
    ): Request {
        return new Request($method, self::$url . $path, new Key(Vectors::key('live')), $headers, $body, 5, false);
    }

    public function testRedirectIsNotFollowed(): void
    {
        try {
            self::helpdesk()->tickets->get('redirect');
            $this->fail('the redirect is followed');
        } catch (ProblemException $e) {
            $this->assertSame(302, $e->status);
        }
    }

    public function testInterimAnswerIsSkipped(): void
    {
        $this->expectExceptionCode(404);
        self::helpdesk()->tickets->get('interim');
    }

    public function testTimeoutOfHeaders(): void
    {
        $this->expectException(TimeoutException::class);
        self::helpdesk()->tickets->get('slow_headers');
    }

    public function testTimeoutWithinBody(): void
    {
        $this->expectException(TimeoutException::class);
        self::helpdesk()->tickets->get('slow_body');
    }

    public function testTimeoutOfCall(): void
    {
        $start = hrtime(true);
        try {
            self::helpdesk()->tickets->get('slow_body', options: new RequestOptions(timeout: 0.05));
            $this->fail('there is no timeout');
        } catch (TimeoutException) {
            $this->assertLessThan(0.19e9, hrtime(true) - $start);
        }
    }

    public function testTimeoutWithinExport(): void
    {
        $records = 0;
        try {
            foreach (self::helpdesk()->customers->exportCsv(q: 'slow_export') as $piece) {
                $records += substr_count($piece, "\n");
            }
            $this->fail('the export ends');
        } catch (TimeoutException) {
            $this->assertSame(1, $records);
        }
    }

    public function testAbandonedExportFreesItsConnection(): void
    {
        foreach (self::helpdesk()->customers->exportCsv(q: 'slow_export') as $piece) {
            break;
        }
        // The server answers one connection after another, so it has noticed the end of the first.
        $this->expectExceptionCode(404);
        self::helpdesk()->tickets->get('gzip');
    }

    public function testRequestWhileAnAnswerIsObserved(): void
    {
        $helpdesk = self::helpdesk();
        $codes = [];
        $observe = new RequestOptions(onResponse: static function () use ($helpdesk, &$codes): void {
            try {
                $helpdesk->tickets->get('gzip');
            } catch (ProblemException $e) {
                $codes[] = $e->problemCode;
            }
        });
        try {
            $helpdesk->tickets->get('text', options: $observe);
            $this->fail('there is no problem');
        } catch (ProblemException $e) {
            $this->assertSame(['not_found', 'not_found'], [...$codes, $e->problemCode]);
        }
    }

    public function testCutAnswer(): void
    {
        $this->expectException(ConnectionException::class);
        self::helpdesk()->tickets->get('cut');
    }

    public function testCutExport(): void
    {
        $text = '';
        try {
            foreach (self::helpdesk()->customers->exportCsv(q: 'cut_export') as $piece) {
                $text .= $piece;
            }
            $this->fail('the export ends quietly');
        } catch (ConnectionException) {
            $this->assertSame(2, substr_count($text, "\n"));
        }
    }

    public function testHangUp(): void
    {
        $this->expectException(ConnectionException::class);
        self::helpdesk()->tickets->get('hang_up');
    }

    public function testNoServer(): void
    {
        $this->expectException(ConnectionException::class);
        (new Helpdesk(Vectors::key('live'), 'http://127.0.0.1:1', maxRetries: 0))->apiKey->get();
    }

    /** @requires extension openssl */
    public function testCertificateOfNoAuthority(): void
    {
        $file = (string) tempnam(sys_get_temp_dir(), 'kickstand');
        [$server, $address] = self::start($file);
        $timing = new Timing(sleep: static fn () => self::fail('the call is attempted again'));
        $url = 'https://localhost:' . parse_url("tcp://$address", PHP_URL_PORT);
        try {
            (new Helpdesk(Vectors::key('live'), $url, timing: $timing))->tickets->get('gzip');
            $this->fail('the certificate is accepted');
        } catch (KickstandException $e) {
            $this->assertStringContainsString('certificate', $e->getMessage());
        } finally {
            self::stop($server);
            unlink($file);
        }
    }

    public function testCompressedAnswer(): void
    {
        $this->expectExceptionMessage('None. (not_found)');
        self::helpdesk()->tickets->get('gzip');
    }

    public function testAnswerThatInflatesBeyondMeasure(): void
    {
        try {
            self::helpdesk()->tickets->get('bomb', options: new RequestOptions(timeout: 30));
            $this->fail('the answer is read');
        } catch (KickstandException $e) {
            $this->assertStringContainsString('64 MiB', $e->getMessage());
        }
    }

    public function testInvalidTextIsReplaced(): void
    {
        $this->expectExceptionMessage("\u{fffd} (not_found)");
        self::helpdesk()->tickets->get('text');
    }

    public function testRequestAsSent(): void
    {
        $headers = ['content-type' => 'application/json'];
        $echo = self::echo(self::request('POST', '/a/%2E%2E/../b', $headers, str_repeat('x', 1 << 20)));
        $this->assertStringStartsWith("POST /a/%2E%2E/../b HTTP/1.1\r\n", $echo['request']);
        $this->assertStringContainsString('authorization: Bearer ' . Vectors::key('live') . "\r\n", $echo['request']);
        $this->assertStringNotContainsStringIgnoringCase('expect:', $echo['request']);
        $this->assertSame(1 << 20, strlen($echo['body']));
    }

    public function testWriteWithoutBodyHasNoContentType(): void
    {
        $echo = self::echo(self::request('POST', '/a'));
        $this->assertStringNotContainsStringIgnoringCase('content-type', $echo['request']);
        $this->assertStringContainsStringIgnoringCase("content-length: 0\r\n", $echo['request']);
    }

    public function testStreamedBody(): void
    {
        $pieces = (static function (): \Generator {
            yield '';
            yield 'one ';
            yield str_repeat('two', 100_000);
        })();
        $echo = self::echo(self::request('POST', '/a', body: $pieces));
        $this->assertStringContainsStringIgnoringCase("transfer-encoding: chunked\r\n", $echo['request']);
        $this->assertStringNotContainsStringIgnoringCase('expect:', $echo['request']);
        $this->assertStringContainsString('one twotwo', str_replace("\r\n", '', $echo['body']));
    }

    public function testErrorOfStreamedBodyReachesTheCaller(): void
    {
        $records = (static function (): \Generator {
            yield ['code' => 'B-1'];
            throw new \DomainException('no more');
        })();
        $this->expectExceptionMessage('no more');
        (new Fleet(Vectors::key('test'), self::$url, timeout: 1))->vehicles->import($records);
    }

    public function testProxyIsNotUsedWithoutTls(): void
    {
        putenv('http_proxy=http://127.0.0.1:1');
        putenv('all_proxy=http://127.0.0.1:1');
        try {
            $this->assertStringStartsWith('GET /a ', self::echo(self::request('GET', '/a'))['request']);
        } finally {
            putenv('http_proxy');
            putenv('all_proxy');
        }
    }

    public function testOptionsOfCurlDoNotReplaceThoseOfTheRequest(): void
    {
        $transport = new CurlTransport([CURLOPT_FOLLOWLOCATION => true, CURLOPT_PROXY => 'http://127.0.0.1:1']);
        $helpdesk = new Helpdesk(Vectors::key('live'), self::$url, maxRetries: 0, transport: $transport);
        $this->expectExceptionCode(302);
        $helpdesk->tickets->get('redirect');
    }

    public function testLocalFilesAreNotRead(): void
    {
        $request = new Request('GET', 'file:///etc/hostname', new Key(Vectors::key('live')), [], null, 1, false);
        $this->expectException(ConnectionException::class);
        (new CurlTransport())->send($request);
    }
}
