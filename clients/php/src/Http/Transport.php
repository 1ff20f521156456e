<?php

declare(strict_types=1);

namespace Kickstand\Http;

use Kickstand\Exception\ConnectionException;

/** Sends requests. {@see CurlTransport} is the one for production. */
interface Transport
{
    /**
     * Makes one attempt and returns its answer, of any status, without following redirects. The body
     * may still be on its way.
     *
     * @throws ConnectionException if there is no answer; reading the answer's body throws it too
     */
    public function send(Request $request): Response;
}
