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

    /**
     * @param array<int, mixed> $options more options of curl, such as CURLOPT_CAINFO or CURLOPT_PROXY;
     *                                   those of the request itself cannot be replaced
     */
    public function __construct(private readonly array $options = [])
    {
    }

    public function send(Request $request): Response
    {
        $exchange = new CurlExchange($this->multi($request), $request, $this->options);
        return $exchange->response();
    }

    /**
     * A stream has connections of its own: between its pieces other requests may be sent. So has a
     * forked process, which must not write to the connections of its parent.
     */
    private function multi(Request $request): \CurlMultiHandle
    {
        if ($request->stream) {
            return curl_multi_init();
        }
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
