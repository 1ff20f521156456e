<?php

declare(strict_types=1);

namespace Kickstand\Exception;

/** The server cannot be reached, or the connection ended before the end of the answer. */
class ConnectionException extends KickstandException
{
}
