<?php

declare(strict_types=1);

namespace Kickstand\Tests;

use Kickstand\Attachment;
use Kickstand\Download;
use Kickstand\Exception\ConnectionException;
use Kickstand\Exception\KickstandException;
use Kickstand\Exception\ProblemException;
use Kickstand\Exception\TimeoutException;
use Kickstand\Fleet;
use Kickstand\Helpdesk;
use Kickstand\Page;
use Kickstand\Record;
use Kickstand\RequestOptions;
use Kickstand\ResponseInfo;
use Kickstand\Timing;
use PHPUnit\Framework\TestCase;

/** Runs clients/vectors/exchanges.json. */
final class ExchangesTest extends TestCase
{
    private ?ResponseInfo $observed = null;

    /** @var list<mixed> */
    private array $yielded = [];

    /** @return array<string, array{\stdClass}> */
    public static function vectors(): array
    {
        return Vectors::of('exchanges');
    }

    /** @dataProvider vectors */
    public function testExchange(\stdClass $vector): void
    {
        $key = Vectors::key($vector->key);
        $transport = new VectorTransport($vector->exchanges, $key);
        $waits = [];
        $timing = new Timing(
            static function (float $seconds) use (&$waits): void {
                $waits[] = $seconds;
            },
            static fn (): float => $vector->random,
            static fn (): float => $vector->now ?? 0,
        );
        $class = $vector->client === 'fleet' ? Fleet::class : Helpdesk::class;
        $client = new $class(
            $key,
            'https://kickstand.example',
            maxRetries: $vector->options->max_retries ?? 3,
            maxRetryWait: $vector->options->max_retry_wait ?? 60,
            transport: $transport,
            timing: $timing,
        );
        $error = $result = null;
        try {
            $names = Operations::METHODS[$vector->client][$vector->call->operation];
            $result = $this->execute($client, $vector->call, $names);
        } catch (KickstandException | \InvalidArgumentException $e) {
            $error = $e;
        }
        if (isset($vector->error)) {
            $this->assertNotNull($error, 'there is no error');
            $this->checkError($vector->error, $error);
        } elseif ($error !== null) {
            throw $error;
        } else {
            $plain = Vectors::plain($result);
            $this->assertNull(Vectors::difference($vector->result ?? null, $plain));
            $this->assertNull(Vectors::difference($vector->raw ?? new \stdClass(), (object) $plain));
        }
        $this->assertCount($transport->sent, $vector->exchanges);
        $this->assertEqualsWithDelta($vector->waits, $waits, 0.001);
        $this->checkObserved($vector);
    }

    /** @param array{string, string, string} $names */
    private function execute(Helpdesk|Fleet $client, \stdClass $call, array $names): mixed
    {
        $group = $client->{$names[0]};
        $arguments = ['options' => $this->options($call->options ?? new \stdClass())];
        foreach ([...(array) ($call->path ?? []), ...(array) ($call->query ?? [])] as $name => $value) {
            $arguments[lcfirst(str_replace(' ', '', ucwords(str_replace('_', ' ', $name))))] = self::value($value);
        }
        if (isset($call->body)) {
            $arguments['body'] = self::value($call->body);
        }
        switch ($call->mode) {
            case 'iterate':
                return $this->collect($group->{$names[1]}(...$arguments));
            case 'pages':
                $pages = [];
                for ($page = $group->{$names[1]}(...$arguments); $page !== null; $page = $page->nextPage()) {
                    $pages[] = $page->data;
                }
                return $pages;
            case 'export':
                return $this->collect($group->{$names[2]}(...$arguments));
            case 'export_csv':
                return implode('', iterator_to_array($group->{$names[2] . 'Csv'}(...$arguments), false));
            case 'import':
                $import = $group->{$names[2]}(...$arguments, records: array_map(self::value(...), $call->records));
                $lines = $this->collect($import);
                return ['lines' => $lines, 'summary' => $import->summary()->toArray()];
            case 'modify':
                $tags = static fn (Record $record): array => ['tags' => [...$record->tags, $call->append->tags]];
                return $group->modify(...$arguments, change: $tags);
        }
        $result = $group->{$names[1]}(...$arguments);
        if ($result instanceof Download) {
            return ['base64' => base64_encode($result->contents())];
        }
        if ($result instanceof Page) {
            return ['data' => $result->data, 'has_more' => $result->hasMore, 'next_cursor' => $result->nextCursor];
        }
        return $result;
    }

    /**
     * @param iterable<mixed> $items
     * @return list<mixed>
     */
    private function collect(iterable $items): array
    {
        foreach ($items as $item) {
            $this->yielded[] = $item instanceof \JsonSerializable ? $item : $item->toArray();
        }
        return $this->yielded;
    }

    private function options(\stdClass $options): RequestOptions
    {
        return new RequestOptions(
            idempotencyKey: $options->idempotency_key ?? null,
            ifMatch: $options->if_match ?? null,
            ifNoneMatch: $options->if_none_match ?? null,
            subaccount: $options->subaccount ?? null,
            requestId: $options->request_id ?? null,
            maxRetries: $options->max_retries ?? null,
            onResponse: function (ResponseInfo $info): void {
                $this->observed = $info;
            },
        );
    }

    /** A value of a vector as one of PHP. */
    private static function value(mixed $value): mixed
    {
        if (isset($value->{'$time'})) {
            return new \DateTimeImmutable($value->{'$time'});
        }
        if (isset($value->{'$attachment'})) {
            $attachment = $value->{'$attachment'};
            $bytes = (string) base64_decode($attachment->base64);
            return Attachment::fromBytes($bytes, $attachment->name, $attachment->content_type);
        }
        return is_array($value) || $value instanceof \stdClass ? array_map(self::value(...), (array) $value) : $value;
    }

    private function checkError(\stdClass $expected, \Throwable $error): void
    {
        $kind = match (true) {
            $error instanceof ProblemException => 'problem',
            $error instanceof TimeoutException => 'timeout',
            $error instanceof ConnectionException => 'connection',
            $error instanceof \InvalidArgumentException => 'argument',
            get_class($error) === KickstandException::class => 'answer',
            default => get_class($error),
        };
        $this->assertSame($expected->kind, $kind, $error->getMessage());
        if (!$error instanceof ProblemException) {
            return;
        }
        $actual = (object) [
            'kind' => 'problem',
            'status' => $error->status,
            'code' => $error->problemCode,
            'type' => $error->type,
            'title' => $error->title,
            'detail' => $error->detail,
            'request_id' => $error->requestId,
            'retry_after' => $error->retryAfter,
            'errors' => $error->errors,
            'members' => (object) $error->toArray(),
            'message' => $error->getMessage(),
        ];
        $this->assertNull(Vectors::difference($expected, Vectors::plain($actual)));
    }

    private function checkObserved(\stdClass $vector): void
    {
        if (isset($vector->yielded)) {
            $this->assertNull(Vectors::difference($vector->yielded, Vectors::plain($this->yielded)));
        }
        if (isset($vector->observed)) {
            $limit = $this->observed?->rateLimit;
            $actual = [
                'status' => $this->observed?->status,
                'etag' => $this->observed?->etag,
                'request_id' => $this->observed?->requestId,
                'replayed' => $this->observed?->replayed,
                'rate_limit' => $limit === null ? null : [
                    'limit' => $limit->limit,
                    'remaining' => $limit->remaining,
                    'reset' => $limit->reset->getTimestamp(),
                ],
            ];
            $this->assertNull(Vectors::difference($vector->observed, Vectors::plain($actual)));
        }
    }
}
