<?php

declare(strict_types=1);

namespace Kickstand\Tests;

use Kickstand\Exception\ConnectionException;
use Kickstand\Exception\TimeoutException;
use Kickstand\Http\Request;
use Kickstand\Http\Response;
use Kickstand\Http\Transport;
use PHPUnit\Framework\Assert;

/** Answers as a vector says, and checks its requests. */
final class VectorTransport implements Transport
{
    public int $sent = 0;

    /** @var list<array<string, string>> the headers of each request */
    private array $headers = [];

    /** @param list<\stdClass> $exchanges */
    public function __construct(private readonly array $exchanges, private readonly string $key)
    {
    }

    public function send(Request $request): Response
    {
        Assert::assertArrayHasKey($this->sent, $this->exchanges, "an unexpected request to $request->url");
        $exchange = $this->exchanges[$this->sent++];
        $this->check($request, $exchange->request);
        $failure = $exchange->failure ?? '';
        if ($failure === 'timeout') {
            throw new TimeoutException('No answer.');
        }
        if ($failure === 'connect' || $failure === 'reset') {
            throw new ConnectionException($failure);
        }
        $response = $exchange->response;
        return new Response(
            $response->status,
            (array) ($response->headers ?? []),
            $this->body($response, $failure === 'cut'),
        );
    }

    /** @return \Generator<int, string> */
    private function body(\stdClass $response, bool $cut): \Generator
    {
        $text = match (true) {
            isset($response->body) => (string) json_encode($response->body, JSON_UNESCAPED_UNICODE),
            isset($response->base64) => (string) base64_decode($response->base64),
            default => $response->text ?? '',
        };
        foreach (str_split($text, 7) as $piece) {
            yield $piece;
        }
        if ($cut) {
            throw new ConnectionException('The connection broke.');
        }
    }

    private function check(Request $request, \stdClass $expected): void
    {
        $url = (array) parse_url($request->url);
        Assert::assertSame('kickstand.example', $url['host'] ?? '');
        Assert::assertSame($expected->method, $request->method);
        Assert::assertSame($expected->path, $url['path'] ?? '');
        Assert::assertEquals((array) ($expected->query ?? []), self::query((string) ($url['query'] ?? '')));
        $this->checkHeaders($request->headers(), $expected, $request->method);
        $this->checkBody($request, $expected);
    }

    /** @return array<string, string|list<string>> */
    private static function query(string $query): array
    {
        $values = [];
        foreach ($query === '' ? [] : explode('&', $query) as $pair) {
            [$name, $value] = array_map(rawurldecode(...), explode('=', $pair, 2));
            if (str_ends_with($name, '[]')) {
                $values[$name][] = $value;
            } else {
                $values[$name] = $value;
            }
        }
        return $values;
    }

    /** @param array<string, string> $headers */
    private function checkHeaders(array $headers, \stdClass $expected, string $method): void
    {
        Assert::assertSame("Bearer $this->key", $headers['authorization'] ?? '');
        Assert::assertStringStartsWith('kickstand-php/', $headers['user-agent'] ?? '');
        foreach ((array) ($expected->headers ?? []) as $name => $value) {
            Assert::assertSame($value, $headers[$name] ?? null, (string) $name);
        }
        foreach ($expected->present ?? [] as $name) {
            Assert::assertArrayHasKey($name, $headers);
        }
        foreach ($expected->absent ?? [] as $name) {
            Assert::assertArrayNotHasKey($name, $headers);
        }
        foreach ($expected->same ?? [] as $name) {
            Assert::assertSame($this->headers[0][$name], $headers[$name]);
        }
        foreach ($expected->differs ?? [] as $name) {
            Assert::assertNotContains($headers[$name], array_column($this->headers, $name));
        }
        if ($method === 'GET') {
            Assert::assertArrayNotHasKey('idempotency-key', $headers);
        } elseif (!isset($expected->headers->{'idempotency-key'})) {
            $uuid = '/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/D';
            Assert::assertMatchesRegularExpression($uuid, $headers['idempotency-key'] ?? '');
        }
        $this->headers[] = $headers;
    }

    private function checkBody(Request $request, \stdClass $expected): void
    {
        $body = $request->body;
        $text = is_iterable($body) ? implode('', iterator_to_array($body, false)) : $body;
        if (isset($expected->body)) {
            $got = json_decode((string) $text, false, 512, JSON_THROW_ON_ERROR);
            Assert::assertEquals($expected->body, $got);
        } elseif (isset($expected->lines)) {
            $lines = array_map(json_decode(...), explode("\n", rtrim((string) $text, "\n")));
            Assert::assertEquals($expected->lines, $lines);
            Assert::assertStringEndsWith("\n", (string) $text);
        } else {
            Assert::assertNull($text);
        }
    }
}
