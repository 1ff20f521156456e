<?php

declare(strict_types=1);

namespace Kickstand\Tests;

use PHPUnit\Framework\TestCase;

/** The programs of README.md are programs. */
final class ReadmeTest extends TestCase
{
    /** @return list<string> */
    private static function programs(): array
    {
        preg_match_all('/^```php\n(.*?)^```/ms', (string) file_get_contents(__DIR__ . '/../README.md'), $match);
        return $match[1];
    }

    public function testFirstProgramIsThatOfTheExamples(): void
    {
        $this->assertStringEqualsFile(__DIR__ . '/../examples/first.php', self::programs()[0]);
    }

    public function testProgramsParse(): void
    {
        foreach (self::programs() as $program) {
            $code = str_starts_with($program, '<?php') ? $program : "<?php\n$program";
            $this->assertNotEmpty(token_get_all($code, TOKEN_PARSE));
        }
    }
}
