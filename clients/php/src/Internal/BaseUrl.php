<?php

declare(strict_types=1);

namespace Kickstand\Internal;

/**
 * The origin of a server.
 *
 * @internal
 */
final class BaseUrl
{
    /** Returns a URL as an origin without a slash at its end, or refuses it. */
    public static function origin(string $url, bool $allowHttp): string
    {
        if ($url === '') {
            throw new \InvalidArgumentException('The base URL is missing: pass baseUrl, or set KICKSTAND_URL.');
        }
        $parts = preg_match('/[^\x21-\x7e]/', $url) === 1 ? [] : parse_url($url);
        $scheme = strtolower($parts['scheme'] ?? '');
        $host = $parts['host'] ?? '';
        $rest = array_diff_key($parts ?: [], array_flip(['scheme', 'host', 'port', 'path']));
        if (
            !in_array($scheme, ['https', 'http'], true) || preg_match('/^[\w.:\[\]-]+$/D', $host) !== 1
            || $rest !== [] || !in_array($parts['path'] ?? '/', ['', '/'], true)
        ) {
            throw new \InvalidArgumentException(
                'The base URL must be a scheme, a host and perhaps a port, such as https://kickstand.example:8443.'
            );
        }
        if ($scheme === 'http' && !$allowHttp && !self::isLoopback($host)) {
            throw new \InvalidArgumentException(
                'The base URL must be https, because the key travels with each request; pass allowHttp to allow http.'
            );
        }
        return "$scheme://$host" . (isset($parts['port']) ? ":{$parts['port']}" : '');
    }

    private static function isLoopback(string $host): bool
    {
        return strtolower($host) === 'localhost' || $host === '[::1]'
            || filter_var($host, FILTER_VALIDATE_IP, FILTER_FLAG_IPV4) !== false && str_starts_with($host, '127.');
    }
}
