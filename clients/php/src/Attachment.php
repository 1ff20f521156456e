<?php

declare(strict_types=1);

namespace Kickstand;

/** Makes the attachments of a message. All files of a message together may have 25 MiB. */
final class Attachment
{
    private function __construct()
    {
    }

    /**
     * Attaches a file, by default under its own name.
     *
     * @return array{name: string, content: string, content_type?: string}
     */
    public static function fromFile(string $path, ?string $name = null, ?string $contentType = null): array
    {
        $bytes = is_file($path) ? file_get_contents($path) : false;
        if ($bytes === false) {
            throw new \InvalidArgumentException("The file $path cannot be read.");
        }
        return self::fromBytes($bytes, $name ?? basename($path), $contentType);
    }

    /**
     * Attaches bytes. Without a content type the server finds one.
     *
     * @return array{name: string, content: string, content_type?: string}
     */
    public static function fromBytes(string $bytes, string $name, ?string $contentType = null): array
    {
        $attachment = ['name' => $name, 'content' => base64_encode($bytes)];
        return $contentType === null ? $attachment : $attachment + ['content_type' => $contentType];
    }
}
