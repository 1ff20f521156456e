<?php

declare(strict_types=1);

namespace Kickstand\Internal;

use Kickstand\Download;
use Kickstand\Exception\ConnectionException;
use Kickstand\Exception\KickstandException;
use Kickstand\Exception\ProblemException;
use Kickstand\Http\CurlTransport;
use Kickstand\Http\Request;
use Kickstand\Http\Response;
use Kickstand\Http\Transport;
use Kickstand\Import;
use Kickstand\Page;
use Kickstand\Record;
use Kickstand\RequestOptions;
use Kickstand\ResponseInfo;
use Kickstand\Timing;

/**
 * Sends the calls of a client, again if necessary, and reads their answers.
 *
 * @internal
 */
final class Connection
{
    public const VERSION = '0.1.0';

    private const LARGEST_ANSWER = 64 << 20; // bytes
    private const MODIFICATIONS = 5;

    private readonly Key $key;
    private readonly string $baseUrl;
    private readonly Transport $transport;
    private readonly Timing $timing;

    public function __construct(
        #[\SensitiveParameter] ?string $key,
        ?string $baseUrl,
        string $livePath,
        string $testPath,
        private readonly float $timeout,
        private readonly int $maxRetries,
        private readonly float $maxRetryWait,
        bool $allowHttp,
        ?Transport $transport,
        ?Timing $timing,
    ) {
        if ($timeout <= 0 || $maxRetries < 0) {
            throw new \InvalidArgumentException('The timeout must be positive, and maxRetries not negative.');
        }
        $this->key = new Key($key ?? (string) getenv('KICKSTAND_KEY'));
        $this->baseUrl = BaseUrl::origin($baseUrl ?? (string) getenv('KICKSTAND_URL'), $allowHttp)
            . ($this->key->isTest() ? $testPath : $livePath);
        $this->transport = $transport ?? new CurlTransport();
        $this->timing = $timing ?? new Timing();
    }

    /**
     * Calls an operation and returns its JSON, or null if the answer has none or is 304.
     *
     * @param array<string, string> $ids
     * @param array<string, mixed> $query
     */
    public function call(
        string $method,
        string $path,
        array $ids,
        array $query,
        ?string $body,
        ?RequestOptions $options,
    ): mixed {
        return $this->answer(new Call($method, $path, $ids, $query, $options ?? new RequestOptions(), $body))[0];
    }

    /**
     * Calls an operation that returns one record.
     *
     * @template T of Record
     * @param class-string<T> $class
     * @param array<string, string> $ids
     * @param array<string, mixed> $query
     * @return T
     */
    public function record(
        string $class,
        string $method,
        string $path,
        array $ids,
        array $query,
        ?string $body,
        ?RequestOptions $options,
    ): Record {
        $json = $this->call($method, $path, $ids, $query, $body, $options);
        if (isset($json->id, $json->object) && count((array) $json) === 2) {
            return $class::unread($json);
        }
        return self::read($class, $json);
    }

    /**
     * Calls an operation that returns one record, or 304 while the record has the ETag of ifNoneMatch.
     *
     * @template T of Record
     * @param class-string<T> $class
     * @param array<string, string> $ids
     * @param array<string, mixed> $query
     * @return T|null null if the answer is 304
     */
    public function recordIfChanged(
        string $class,
        string $method,
        string $path,
        array $ids,
        array $query,
        ?string $body,
        ?RequestOptions $options,
    ): ?Record {
        $json = $this->call($method, $path, $ids, $query, $body, $options);
        return $json === null ? null : self::read($class, $json);
    }

    /**
     * Fetches a page of a list.
     *
     * @template T of Record
     * @param class-string<T> $class
     * @param array<string, string> $ids
     * @param array<string, mixed> $query
     * @return Page<T>
     */
    public function page(string $class, string $path, array $ids, array $query, ?RequestOptions $options): Page
    {
        $json = $this->call('GET', $path, $ids, $query, null, $options);
        if (!is_array($json->data ?? null)) {
            throw new KickstandException('The answer is not a list.');
        }
        $data = array_map(static fn (mixed $item): Record => self::read($class, $item), $json->data);
        $cursor = $json->next_cursor ?? null;
        $fetch = fn (string $next): Page => $this->page($class, $path, $ids, ['cursor' => $next] + $query, $options);
        return new Page($data, ($json->has_more ?? false) === true, is_string($cursor) ? $cursor : null, $fetch);
    }

    /**
     * Exports a list as records. Until the first record the export is attempted again like any call.
     *
     * @template T of Record
     * @param class-string<T> $class
     * @param array<string, string> $ids
     * @param array<string, mixed> $query
     * @return \Generator<int, T>
     */
    public function export(string $class, string $path, array $ids, array $query, ?RequestOptions $options): \Generator
    {
        $call = $this->stream($path, $ids, $query, $options, 'application/x-ndjson');
        $retry = $this->retry($call);
        while (true) {
            $records = Ndjson::decode($this->open($call, $retry)->body, self::LARGEST_ANSWER);
            try {
                $records->rewind();
                break;
            } catch (ConnectionException $e) {
                $retry->wait($e);
            }
        }
        for (; $records->valid(); $records->next()) {
            yield self::read($class, $records->current());
        }
    }

    /**
     * Exports a list as text, such as CSV.
     *
     * @param array<string, string> $ids
     * @param array<string, mixed> $query
     * @return \Generator<int, string> the pieces of the text
     */
    public function exportText(
        string $mediaType,
        string $path,
        array $ids,
        array $query,
        ?RequestOptions $options,
    ): \Generator {
        $call = $this->stream($path, $ids, $query, $options, $mediaType);
        foreach ($this->open($call, $this->retry($call))->body as $piece) {
            yield $piece;
        }
    }

    /**
     * Fetches a file, or null if the answer is 304.
     *
     * @param array<string, string> $ids
     * @param array<string, mixed> $query
     */
    public function download(string $path, array $ids, array $query, ?RequestOptions $options): ?Download
    {
        $call = $this->stream($path, $ids, $query, $options, '*/*');
        $response = $this->open($call, $this->retry($call));
        if ($response->status === 304) {
            return null;
        }
        $size = isset($response->headers['content-encoding']) ? null : $response->headers['content-length'] ?? null;
        return new Download(
            $response->headers['content-type'] ?? 'application/octet-stream',
            $size === null ? null : (int) $size,
            $response->body,
        );
    }

    /**
     * Imports records, once: they may come from a stream.
     *
     * @param iterable<array<string, mixed>|Record> $records
     * @param array<string, mixed> $objects as in {@see Json::encode()}
     * @param array<string, mixed> $query
     */
    public function import(
        string $path,
        array $query,
        iterable $records,
        array $objects,
        ?RequestOptions $options,
    ): Import {
        $lines = (static function () use ($records, $objects): \Generator {
            foreach ($records as $record) {
                yield Json::encode($record, $objects) . "\n";
            }
        })();
        $type = 'application/x-ndjson';
        $call = new Call('POST', $path, [], $query, $options ?? new RequestOptions(), $lines, $type, $type, true);
        return new Import($this->open($call, new Retry($this->timing, 0, 0))->body);
    }

    /**
     * Reads a record and updates it under its ETag; again with the new record if it has changed meanwhile.
     *
     * @template T of Record
     * @param class-string<T> $class
     * @param array<string, string> $ids
     * @param callable(T): array<string, mixed> $change
     * @param array<string, mixed> $objects as in {@see Json::encode()}
     * @return T
     */
    public function modify(
        string $class,
        string $path,
        array $ids,
        callable $change,
        array $objects,
        ?RequestOptions $options,
    ): Record {
        $options ??= new RequestOptions();
        if ($options->idempotencyKey !== null || $options->ifMatch !== null || $options->ifNoneMatch !== null) {
            throw new \InvalidArgumentException('A modification chooses its own idempotency keys and conditions.');
        }
        for ($attempt = 1; true; $attempt++) {
            [$json, $info] = $this->answer(new Call('GET', $path, $ids, [], $options));
            if ($info->etag === null) {
                throw new KickstandException('The answer has no ETag, so the record cannot be modified safely.');
            }
            $body = Json::encode($change(self::read($class, $json)), $objects);
            try {
                $call = new Call('PUT', $path, $ids, [], $options->withIfMatch($info->etag), $body);
                return self::read($class, $this->answer($call)[0]);
            } catch (ProblemException $e) {
                if ($e->status !== 412 || $attempt === self::MODIFICATIONS) {
                    throw $e;
                }
            }
        }
    }

    /** @return array<string, mixed> */
    public function __debugInfo(): array
    {
        return ['baseUrl' => $this->baseUrl];
    }

    /** @return array<string, mixed> */
    public function __serialize(): array
    {
        throw new \LogicException('A client cannot be serialized: it has an API key.');
    }

    /**
     * @param array<string, string> $ids
     * @param array<string, mixed> $query
     */
    private function stream(string $path, array $ids, array $query, ?RequestOptions $options, string $accept): Call
    {
        return new Call('GET', $path, $ids, $query, $options ?? new RequestOptions(), accept: $accept, stream: true);
    }

    /**
     * Makes attempts until there is a whole answer of success.
     *
     * @return array{mixed, ResponseInfo} its JSON, or null; and its headers
     */
    private function answer(Call $call): array
    {
        $retry = $this->retry($call);
        while (true) {
            $response = $this->open($call, $retry);
            try {
                return [self::json($response), ResponseInfo::of($response)];
            } catch (ConnectionException $e) {
                $retry->wait($e);
            }
        }
    }

    /** Makes attempts until one has the status of success, or 304. */
    private function open(Call $call, Retry $retry): Response
    {
        while (true) {
            try {
                return $this->attempt($call);
            } catch (KickstandException $e) {
                $retry->wait($e);
            }
        }
    }

    private function attempt(Call $call): Response
    {
        $response = $this->transport->send(new Request(
            $call->method,
            $this->baseUrl . $call->url,
            $this->key,
            $call->headers,
            $call->body,
            $call->options->timeout ?? $this->timeout,
            $call->stream,
        ));
        if ($call->options->onResponse !== null) {
            ($call->options->onResponse)(ResponseInfo::of($response));
        }
        $isUnchanged = $response->status === 304 && $call->options->ifNoneMatch !== null;
        if ($isUnchanged || $response->status >= 200 && $response->status < 300) {
            return $response;
        }
        throw $this->problem($response);
    }

    private function problem(Response $response): ProblemException
    {
        $json = null;
        if (stripos($response->headers['content-type'] ?? '', 'application/problem+json') === 0) {
            try {
                $json = Json::decode(self::text($response));
            } catch (\JsonException) {
                // The status says enough.
            }
        }
        return ProblemException::fromAnswer(
            $response->status,
            $response->headers['x-request-id'] ?? '',
            Retry::after($response->headers['retry-after'] ?? null, ($this->timing->now)()),
            $json instanceof \stdClass ? $json : null,
        );
    }

    private function retry(Call $call): Retry
    {
        return new Retry($this->timing, $call->options->maxRetries ?? $this->maxRetries, $this->maxRetryWait);
    }

    /** Reads the JSON of an answer, or null if it has no content. */
    private static function json(Response $response): mixed
    {
        $text = self::text($response);
        if ($response->status === 204 || $response->status === 304) {
            return null;
        }
        try {
            return Json::decode($text);
        } catch (\JsonException) {
            $requestId = $response->headers['x-request-id'] ?? '';
            throw ProblemException::fromAnswer($response->status, $requestId, null, null, 'The answer is not JSON.');
        }
    }

    private static function text(Response $response): string
    {
        $pieces = [];
        $length = 0;
        foreach ($response->body as $piece) {
            $pieces[] = $piece;
            $length += strlen($piece);
            if ($length > self::LARGEST_ANSWER) {
                throw new KickstandException('The answer is larger than 64 MiB.');
            }
        }
        return implode('', $pieces);
    }

    /**
     * @template T of Record
     * @param class-string<T> $class
     * @return T
     */
    private static function read(string $class, mixed $json): Record
    {
        return $json instanceof \stdClass
            ? $class::fromJson($json)
            : throw new KickstandException('The answer is not an object.');
    }
}
