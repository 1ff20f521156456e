<?php

declare(strict_types=1);

namespace Kickstand\Exception;

/** The timeout of an attempt passed before the end of the answer. */
final class TimeoutException extends ConnectionException
{
}
