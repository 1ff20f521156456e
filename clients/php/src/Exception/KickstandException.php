<?php

declare(strict_types=1);

namespace Kickstand\Exception;

/** The base of all errors of a request, an answer or a signature. */
class KickstandException extends \RuntimeException
{
}
