<?php

declare(strict_types=1);

namespace Kickstand\Http;

use Kickstand\Internal\CurlExchange;

/**
 * Sends requests with ext-curl. Connections are reused. Redirects are not followed, because the key
 * must not travel to another server. Proxies of the environment (`HTTPS_PROXY`, `NO_PROXY`) apply to
 * https only: the key would travel through a proxy in the clear otherwise.
 */
final class CurlTransport implements Transport
{
    private ?\CurlMultiHandle $shared = null;
    private int $process = 0;

    /** @var \WeakReference<CurlExchange>|null the last exchange of the shared connections */
    private ?\WeakReference $last = null;

    /**
     * @param array<int, mixed> $options more options of curl, such as CURLOPT_CAINFO or CURLOPT_PROXY; the
     *                                   options of the request itself take precedence
     */
    public function __construct(private readonly array $options = [])
    {
    }

    public function send(Request $request): Response
    {
        if ($request->stream || $this->last?->get() !== null) {
            // Other requests may be sent between the pieces of a stream, and while an answer is observed.
            return (new CurlExchange(curl_multi_init(), $request, $this->options))->response();
        }
        $exchange = new CurlExchange($this->shared(), $request, $this->options);
        $this->last = \WeakReference::create($exchange);
        return $exchange->response();
    }

    /** The connections that requests share. A forked process must not write to its parent's. */
    private function shared(): \CurlMultiHandle
    {
        $process = (int) getmypid();
        if ($this->shared === null || $this->process !== $process) {
            $this->shared = curl_multi_init();
            $this->process = $process;
        }
        return $this->shared;
    }

    /** @return array<string, mixed> */
    public function __debugInfo(): array
    {
        return [];
    }
}
