<?php

declare(strict_types=1);

namespace Kickstand\Exception;

/** A delivery of a webhook is not authentic, or not new. */
final class SignatureException extends KickstandException
{
    /** A header of the signature is missing. */
    public const UNSIGNED = 'unsigned';

    /** No signature matches the body and the secrets. */
    public const SIGNATURE = 'signature';

    /** The signature is authentic, but older or newer than the tolerance. */
    public const TIMESTAMP = 'timestamp';

    /** @internal */
    public function __construct(
        /** One of the constants of this class. */
        public readonly string $reason,
        string $message,
    ) {
        parent::__construct($message);
    }
}
