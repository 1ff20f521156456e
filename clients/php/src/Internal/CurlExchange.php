<?php

declare(strict_types=1);

namespace Kickstand\Internal;

use Kickstand\Exception\ConnectionException;
use Kickstand\Exception\KickstandException;
use Kickstand\Exception\TimeoutException;
use Kickstand\Http\Request;
use Kickstand\Http\Response;

/**
 * One request with curl, and its answer piece by piece. It ends when nothing refers to it any more.
 *
 * @internal
 */
final class CurlExchange
{
    private readonly \CurlHandle $curl;
    private readonly CurlAnswer $answer;
    private bool $isOver = false;
    private ?KickstandException $failure = null; // of a transfer that is over

    /** @param array<int, mixed> $options */
    public function __construct(
        private readonly \CurlMultiHandle $multi,
        private readonly Request $request,
        array $options,
    ) {
        $this->curl = curl_init();
        $this->answer = new CurlAnswer($request->stream);
        curl_setopt_array($this->curl, $this->options() + $options);
        curl_multi_add_handle($multi, $this->curl);
    }

    public function __destruct()
    {
        curl_multi_remove_handle($this->multi, $this->curl);
    }

    /** Returns the answer once its headers are here. */
    public function response(): Response
    {
        while (!$this->isOver && (!$this->answer->hasHeaders || $this->answer->received === '')) {
            $this->advance();
        }
        if (!$this->answer->hasHeaders) {
            throw $this->failure ?? new ConnectionException('The connection ended before the answer.');
        }
        return new Response($this->answer->status, $this->answer->headers, $this->body());
    }

    /** @return \Generator<int, string> */
    private function body(): \Generator
    {
        while (true) {
            if ($this->answer->received !== '') {
                $piece = $this->answer->received;
                $this->answer->received = '';
                yield $piece;
            } elseif ($this->failure !== null) {
                throw $this->failure;
            } elseif ($this->isOver) {
                return;
            } else {
                if ($this->request->stream) {
                    $this->answer->progress = CurlAnswer::time(); // the reader's pauses do not count
                }
                $this->advance();
            }
        }
    }

    /** Runs the transfer until there are bytes, complete headers, or an end. */
    private function advance(): void
    {
        $before = $this->answer->hasHeaders;
        while (true) {
            curl_multi_exec($this->multi, $running);
            while ($message = curl_multi_info_read($this->multi)) {
                $this->finish($message['result']);
            }
            if ($this->isOver || $this->answer->received !== '' || $this->answer->hasHeaders !== $before) {
                return;
            }
            $left = $this->answer->progress + $this->request->timeout - CurlAnswer::time();
            if ($left <= 0) {
                $this->finish(CURLE_OPERATION_TIMEDOUT);
                return;
            }
            if (curl_multi_select($this->multi, min($left, 1.0)) < 1) {
                usleep(500); // curl had nothing to wait for, such as during a look-up of the host
            }
        }
    }

    private function finish(int $result): void
    {
        $this->isOver = true;
        if ($result === CURLE_OPERATION_TIMEDOUT) {
            $this->failure = new TimeoutException("No answer within {$this->request->timeout} seconds.");
        } elseif ($result !== CURLE_OK) {
            $reason = curl_error($this->curl) ?: curl_strerror($result);
            // Another attempt would find the same certificate.
            $this->failure = $result === CURLE_SSL_CACERT
                ? new KickstandException("The server's certificate is not valid: $reason (curl $result).")
                : new ConnectionException("The connection failed: $reason (curl $result).");
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
            CURLOPT_HEADERFUNCTION => $this->answer->readHeader(...),
            CURLOPT_WRITEFUNCTION => $this->answer->readBody(...),
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
            $options[CURLOPT_READFUNCTION] = self::writer($body, $this->answer);
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
    private static function writer(iterable $body, CurlAnswer $answer): \Closure
    {
        $pieces = (static function () use ($body): \Generator {
            foreach ($body as $piece) {
                yield $piece;
            }
        })();
        $rest = '';
        return static function (mixed $curl, mixed $file, int $length) use ($pieces, $answer, &$rest): string {
            while ($rest === '' && $pieces->valid()) {
                $rest = $pieces->current();
                $pieces->next();
            }
            $piece = substr($rest, 0, $length);
            $rest = substr($rest, strlen($piece));
            $answer->progress = CurlAnswer::time();
            return $piece;
        };
    }
}
