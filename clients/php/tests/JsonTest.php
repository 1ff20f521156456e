<?php

declare(strict_types=1);

namespace Kickstand\Tests;

use Kickstand\Exception\KickstandException;
use Kickstand\Fleet;
use Kickstand\Helpdesk;
use Kickstand\Http\Request;
use Kickstand\Http\Response;
use Kickstand\Http\Transport;
use Kickstand\Model\Member;
use Kickstand\Model\Vehicle;
use PHPUnit\Framework\TestCase;

/** Bodies and answers mean the same in JSON as in PHP. */
final class JsonTest extends TestCase implements Transport
{
    private string $sent = '';
    private string $answer = '{"id":"1","object":"ticket"}';

    public function send(Request $request): Response
    {
        $body = $request->body ?? '';
        $this->sent = is_string($body) ? $body : implode('', iterator_to_array($body, false));
        return new Response(200, ['Content-Type' => 'application/json'], [$this->answer]);
    }

    private function helpdesk(): Helpdesk
    {
        return new Helpdesk(Vectors::key('live'), 'https://kickstand.example', transport: $this);
    }

    private function fleet(): Fleet
    {
        return new Fleet(Vectors::key('test'), 'https://kickstand.example', transport: $this);
    }

    /** @return array<string, array{array<string, mixed>, string}> */
    public static function bodies(): array
    {
        return [
            'no members' => [[], '{}'],
            'an empty object' => [['metadata' => []], '{"metadata":{}}'],
            'an empty list' => [['tags' => []], '{"tags":[]}'],
            'names that are numbers' => [['metadata' => ['0' => 'a', '1' => 'b']], '{"metadata":{"0":"a","1":"b"}}'],
            'an object without members' => [['metadata' => new \stdClass()], '{"metadata":{}}'],
            'an empty object in another' => [['customer' => []], '{"customer":{}}'],
            'null' => [['external_id' => null], '{"external_id":null}'],
            'letters and slashes' => [['subject' => 'Schloß/öffnet'], '{"subject":"Schloß/öffnet"}'],
            'an unknown member' => [['new' => ['a' => []]], '{"new":{"a":[]}}'],
            'a time in another zone' => [
                ['new' => new \DateTime('2026-11-21T10:00:00.1239', new \DateTimeZone('Europe/Berlin'))],
                '{"new":"2026-11-21T09:00:00.123Z"}',
            ],
            'the largest integer' => [['new' => PHP_INT_MAX], '{"new":9223372036854775807}'],
            'digits of a fraction' => [['new' => 0.1 + 0.2], '{"new":0.30000000000000004}'],
        ];
    }

    /**
     * @dataProvider bodies
     * @param array<string, mixed> $body
     */
    public function testBody(array $body, string $expected): void
    {
        $before = ini_set('serialize_precision', '5');
        try {
            $this->helpdesk()->tickets->create($body);
            $this->assertSame('5', ini_get('serialize_precision'));
        } finally {
            ini_set('serialize_precision', (string) $before);
        }
        $this->assertSame($expected, $this->sent);
    }

    public function testObjectsInLists(): void
    {
        $this->fleet()->zones->create(['rules' => [[], ['vehicle_type_ids' => []]]]);
        $this->assertSame('{"rules":[{},{"vehicle_type_ids":[]}]}', $this->sent);
    }

    public function testUnencodableBodyIsRefused(): void
    {
        foreach (["\xff", NAN, INF] as $value) {
            try {
                $this->helpdesk()->tickets->create(['subject' => $value]);
                $this->fail('the body is sent');
            } catch (\InvalidArgumentException $e) {
                $this->assertStringContainsString('JSON', $e->getMessage());
            }
        }
        $this->assertSame('', $this->sent);
    }

    public function testRecordOfAnAnswerIsImported(): void
    {
        $this->answer = '{"summary":{"created":1}}' . "\n";
        $vehicle = Vehicle::unread((object) ['id' => '1', 'object' => 'vehicle', 'metadata' => new \stdClass()]);
        $import = $this->fleet()->vehicles->import([$vehicle, ['code' => 'B-1', 'metadata' => []]]);
        $this->assertSame(1, $import->summary()->created);
        $lines = ['{"id":"1","object":"vehicle","metadata":{}}', '{"code":"B-1","metadata":{}}', ''];
        $this->assertSame(implode("\n", $lines), $this->sent);
    }

    public function testAnswerOfAKeyThatMayNotRead(): void
    {
        $ticket = $this->helpdesk()->tickets->create(['subject' => 'x']);
        $this->assertSame('1', $ticket->id);
        $this->assertSame(['id' => '1', 'object' => 'ticket'], $ticket->toArray());
        $this->assertSame(['id' => '1', 'object' => 'ticket'], $ticket->__debugInfo());
        $this->expectException(\Error::class);
        $this->expectExceptionMessage('before initialization');
        $ticket->subject;
    }

    public function testRecord(): void
    {
        $json = '{"id":"1","object":"member","name":"Ada","email":"a@example.com","role":"owner",'
            . '"created_at":"2026-11-21T10:00:00.123456+01:00","empty":{},"none":[],"big":12345678901234567890}';
        $this->answer = '{"data":[' . $json . '],"has_more":false,"next_cursor":null}';
        $member = $this->helpdesk()->members->list()->data[0];
        $this->assertSame('owner', $member->role);
        $this->assertEquals(new \DateTimeImmutable('2026-11-21T09:00:00.123456Z'), $member->createdAt);
        $this->assertSame('12345678901234567890', $member->toArray()['big']);
        $this->assertSame([], $member->toArray()['empty']);
        $this->assertStringContainsString('"empty":{},"none":[]', (string) json_encode($member));
        $this->assertInstanceOf(Member::class, Member::fromJson(json_decode((string) json_encode($member))));
    }

    public function testAnswerOfAnotherKind(): void
    {
        foreach (['null', '[]', '7', '{}', '{"data":{}}', '{"data":[7]}'] as $this->answer) {
            try {
                $this->helpdesk()->members->list();
                $this->fail("$this->answer is a list");
            } catch (KickstandException $e) {
                $this->assertStringStartsWith('The answer is not', $e->getMessage());
            }
        }
    }

    public function testPageThatNamesItselfAsTheNext(): void
    {
        $this->answer = '{"data":[],"has_more":true,"next_cursor":"again"}';
        $this->expectExceptionMessage('cursor');
        iterator_to_array($this->helpdesk()->members->list());
    }
}
