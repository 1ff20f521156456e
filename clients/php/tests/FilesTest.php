<?php

declare(strict_types=1);

namespace Kickstand\Tests;

use Kickstand\Attachment;
use Kickstand\Download;
use Kickstand\Exception\ConnectionException;
use PHPUnit\Framework\TestCase;

/** Attachments are sent, and files of answers are saved. */
final class FilesTest extends TestCase
{
    private string $path = '';

    protected function setUp(): void
    {
        $this->path = (string) tempnam(sys_get_temp_dir(), 'kickstand');
    }

    protected function tearDown(): void
    {
        @unlink($this->path);
    }

    public function testAttachment(): void
    {
        file_put_contents($this->path, "\x00\xff");
        $this->assertSame(['name' => basename($this->path), 'content' => 'AP8='], Attachment::fromFile($this->path));
        $named = ['name' => 'a.png', 'content' => 'AP8=', 'content_type' => 'image/png'];
        $this->assertSame($named, Attachment::fromFile($this->path, 'a.png', 'image/png'));
        $this->expectException(\InvalidArgumentException::class);
        Attachment::fromFile("$this->path.missing");
    }

    public function testDownload(): void
    {
        $download = new Download('image/png', 2, ["\x00", "\xff"]);
        $download->saveTo($this->path);
        $this->assertSame("\x00\xff", file_get_contents($this->path));
        $this->expectException(\LogicException::class);
        $download->contents();
    }

    public function testCutDownloadLeavesNoFile(): void
    {
        $pieces = (static function (): \Generator {
            yield 'a';
            throw new ConnectionException('cut');
        })();
        try {
            (new Download('image/png', 2, $pieces))->saveTo($this->path);
            $this->fail('the file is saved');
        } catch (ConnectionException) {
            $this->assertFileDoesNotExist($this->path);
        }
    }
}
