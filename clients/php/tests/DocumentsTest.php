<?php

declare(strict_types=1);

namespace Kickstand\Tests;

use Kickstand\Exception\KickstandException;
use Kickstand\Model\Member;
use Kickstand\Page;
use Kickstand\Record;
use PHPUnit\Framework\TestCase;

/** The generated types fit the OpenAPI documents: values of all their schemas are read, and may be sent. */
final class DocumentsTest extends TestCase
{
    /** @return array<string, array{string, Schema, \stdClass}> */
    public static function operations(): array
    {
        $data = [];
        foreach (['helpdesk' => 'helpdesk', 'fleet' => 'sandbox'] as $api => $file) {
            $text = (string) file_get_contents(__DIR__ . "/../../../docs/api/$file.openapi.json");
            $schema = new Schema(json_decode($text, false, 512, JSON_THROW_ON_ERROR));
            foreach ($schema->operations() as $id => $operation) {
                $data["$api: $id"] = [$api, $schema, $operation];
            }
        }
        return $data;
    }

    /** @dataProvider operations */
    public function testBodyHasTheDocumentedShape(string $api, Schema $schema, \stdClass $operation): void
    {
        $body = $operation->requestBody->content->{'application/json'}->schema ?? null;
        $comment = (string) ShapesTest::method($api, $operation->operationId)?->getDocComment();
        $type = DocType::of($comment, '@param', 'body');
        $this->assertSame($body === null, $type === null);
        foreach ($type === null ? [] : [true, false] as $full) {
            $sample = json_decode((string) json_encode($schema->sample($body, $full)), true);
            $this->assertNull($type->refusal($sample), (string) json_encode($sample));
            $this->assertNotNull($type->refusal($sample + ['unknown member' => 1]));
        }
    }

    /** @dataProvider operations */
    public function testAnswerIsRead(string $api, Schema $schema, \stdClass $operation): void
    {
        $method = ShapesTest::method($api, $operation->operationId);
        $class = ltrim((string) $method?->getReturnType(), '?');
        if ($class === Page::class) {
            preg_match('/@return Page<(.*)>/', (string) $method?->getDocComment(), $match);
            $class = "Kickstand\\$match[1]";
        }
        foreach ((array) $operation->responses as $status => $response) {
            $answer = $response->content->{'application/json'}->schema ?? null;
            if (!in_array($status, [200, 201], true) || $answer === null) {
                continue;
            }
            foreach ([true, false] as $full) {
                $sample = $schema->sample($answer, $full);
                foreach ((string) $method?->getReturnType() === Page::class ? $sample->data : [$sample] as $json) {
                    $this->checkRecord($class::fromJson($json), $json);
                }
            }
        }
        $this->assertTrue(class_exists($class) || in_array($class, ['void'], true), $class);
    }

    private function checkRecord(Record $record, \stdClass $json): void
    {
        $this->assertEquals($json, Vectors::plain($record));
        foreach ((array) $json as $name => $value) {
            $property = new \ReflectionProperty($record, lcfirst(ShapesTest::pascal((string) $name)));
            $read = $property->getValue($record);
            $this->assertSame($value === null, $read === null, (string) $name);
            $type = DocType::of((string) $property->getDocComment(), '@var');
            $this->assertNull($type?->refusal($read), "$name of " . $record::class);
            if (is_array($read)) {
                $this->assertNotNull($type, "$name has no documented type");
                $this->assertCount(count((array) $value), $read);
            } elseif ($read instanceof Record) {
                $this->checkRecord($read, $value);
            } elseif ($read instanceof \DateTimeImmutable) {
                $this->assertEquals(new \DateTimeImmutable($value), $read);
            } else {
                $this->assertEquals($value, $read);
            }
        }
    }

    public function testMissingMemberIsNamed(): void
    {
        $this->expectException(KickstandException::class);
        $this->expectExceptionMessage('The member in the answer has no created_at.');
        $json = '{"id":"1","object":"member","name":"Ada","email":"a@example.com","role":"agent"}';
        Member::fromJson(json_decode($json));
    }
}
