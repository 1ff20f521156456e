<?php

declare(strict_types=1);

namespace Kickstand\Internal;

use Kickstand\Exception\ConnectionException;
use Kickstand\Exception\TimeoutException;
use Kickstand\Http\Request;
use Kickstand\Http\Response;

/**
 * One request with curl, and its answer piece by piece.
 *
 * @internal
 */
final class CurlExchange
{
    private readonly \CurlHandle $curl;
    private int $status = 0;
    /** @var array<string, string> */
    private array $headers = [];
    private bool $headersComplete = false;
    private string $received = '';
    private bool $over = false;
    private ?ConnectionException $failure = null; // of a transfer that is over
    private float $progress; // the time of the last byte, or of the start

    /** @param array<int, mixed> $options */
    public function __construct(
        private readonly \CurlMultiHandle $multi,
        private readonly Request $request,
        array $options,
    ) {
        $this->curl = curl_init();
        curl_setopt_array($this->curl, $this->options() + $options);
        $this->progress = self::time();
        curl_multi_add_handle($multi, $this->curl);
    }

    /** Returns the answer once its headers are here. */
    public function response(): Response
    {
        try {
            while (!$this->over && (!$this->headersComplete || $this->received === '')) {
                $this->advance();
            }
            if (!$this->headersComplete) {
                throw $this->failure ?? new ConnectionException('The connection ended before the answer.');
            }
        } catch (\Throwable $e) {
            $this->close();
            throw $e;
        }
        return new Response($this->status, $this->headers, $this->body());
    }

    /** @return \Generator<int, string> */
    private function body(): \Generator
    {
        try {
            while (true) {
                if ($this->received !== '') {
                    $piece = $this->received;
                    $this->received = '';
                    yield $piece;
                } elseif ($this->failure !== null) {
                    throw $this->failure;
                } elseif ($this->over) {
                    return;
                } else {
                    if ($this->request->stream) {
                        $this->progress = self::time(); // the reader's pauses do not count
                    }
                    $this->advance();
                }
            }
        } finally {
            $this->close();
        }
    }

    public function __destruct()
    {
        $this->close();
    }

    private function close(): void
    {
        curl_multi_remove_handle($this->multi, $this->curl);
        curl_reset($this->curl); // releases the callbacks, and with them this object
    }

    /** Runs the transfer until there are bytes, complete headers, or an end. */
    private function advance(): void
    {
        $before = $this->headersComplete;
        while (true) {
            curl_multi_exec($this->multi, $running);
            while ($message = curl_multi_info_read($this->multi)) {
                if ($message['handle'] === $this->curl) {
                    $this->finish($message['result']);
                }
            }
            if ($this->over || $this->received !== '' || $this->headersComplete !== $before) {
                return;
            }
            $left = $this->progress + $this->request->timeout - self::time();
            if ($left <= 0) {
                throw new TimeoutException("No answer within {$this->request->timeout} seconds.");
            }
            if (curl_multi_select($this->multi, min($left, 1.0)) < 1) {
                usleep(500); // curl had nothing to wait for, such as during a look-up of the host
            }
        }
    }

    private function finish(int $result): void
    {
        $this->over = true;
        if ($result === CURLE_OPERATION_TIMEDOUT) {
            $this->failure = new TimeoutException("No answer within {$this->request->timeout} seconds.");
        } elseif ($result !== CURLE_OK) {
            $reason = curl_error($this->curl) ?: curl_strerror($result);
            $this->failure = new ConnectionException("The connection failed: $reason (curl $result).");
        }
    }

    /** @return array<int, mixed> */
    private function options(): array
    {
        $options = [
            CURLOPT_URL => $this->request->url,
            CURLOPT_CUSTOMREQUEST => $this->request->method,
            CURLOPT_PROTOCOLS => CURLPROTO_HTTP | CURLPROTO_HTTPS,
            CURLOPT_FOLLOWLOCATION => false,
            CURLOPT_SUPPRESS_CONNECT_HEADERS => true,
            CURLOPT_PATH_AS_IS => true,
            CURLOPT_NOSIGNAL => true,
            CURLOPT_CONNECTTIMEOUT_MS => max(1, (int) ceil($this->request->timeout * 1000)),
            CURLOPT_ENCODING => 'gzip',
            CURLOPT_HEADERFUNCTION => $this->readHeader(...),
            CURLOPT_WRITEFUNCTION => $this->readBody(...),
        ];
        if (str_starts_with($this->request->url, 'http:')) {
            $options[CURLOPT_PROXY] = '';
        }
        $headers = ['expect:'];
        foreach ($this->request->headers() as $name => $value) {
            $headers[] = "$name: $value";
        }
        $body = $this->request->body;
        if (is_iterable($body)) {
            $options[CURLOPT_UPLOAD] = true;
            $options[CURLOPT_READFUNCTION] = $this->writer($body);
        } elseif ($body !== null) {
            $options[CURLOPT_POSTFIELDS] = $body;
        } elseif ($this->request->method === 'POST' || $this->request->method === 'PUT') {
            $options[CURLOPT_POSTFIELDS] = '';
            $headers[] = 'content-type:'; // curl would send that of a form
        }
        $options[CURLOPT_HTTPHEADER] = $headers;
        return $options;
    }

    /**
     * @param iterable<string> $body
     * @return \Closure(mixed, mixed, int): string
     */
    private function writer(iterable $body): \Closure
    {
        $pieces = (static function () use ($body): \Generator {
            foreach ($body as $piece) {
                yield $piece;
            }
        })();
        $rest = '';
        return function (mixed $curl, mixed $file, int $length) use ($pieces, &$rest): string {
            $this->progress = self::time();
            while ($rest === '' && $pieces->valid()) {
                $rest = $pieces->current();
                $pieces->next();
            }
            $piece = substr($rest, 0, $length);
            $rest = substr($rest, strlen($piece));
            return $piece;
        };
    }

    private function readHeader(\CurlHandle $curl, string $line): int
    {
        if (preg_match('~^HTTP/[\d.]+ (\d{3})~', $line, $match) === 1) {
            // Headers begin anew after each interim answer (1xx).
            $this->status = (int) $match[1];
            $this->headers = [];
        } elseif (trim($line) === '') {
            $this->headersComplete = $this->status >= 200;
        } elseif (str_contains($line, ':')) {
            [$name, $value] = explode(':', $line, 2);
            $name = strtolower(trim($name));
            $value = trim($value);
            $this->headers[$name] = isset($this->headers[$name]) ? "{$this->headers[$name]}, $value" : $value;
        }
        return strlen($line);
    }

    private function readBody(\CurlHandle $curl, string $piece): int
    {
        $this->received .= $piece;
        if ($this->request->stream) {
            $this->progress = self::time();
        }
        return strlen($piece);
    }

    private static function time(): float
    {
        return hrtime(true) / 1e9;
    }
}
