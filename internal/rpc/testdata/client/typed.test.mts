// The same client with the types of @kickstand/client/trpc, which client_test.go compiles in
// strict mode: @ts-expect-error fails where the compiler finds no error.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createTRPCClient, httpBatchLink, httpBatchStreamLink, TRPCClientError } from '@trpc/client';
import type { inferRouterInputs, inferRouterOutputs } from '@trpc/server';
import superjson from 'superjson';
import type { AppRouter } from './trpc.js';

const server = process.env.KICKSTAND_URL;
const password = 'correct horse battery';

/** A fetch that keeps cookies. */
function browser(): typeof fetch {
  const jar = new Map<string, string>();
  return async (url, init) => {
    const headers = new Headers(init?.headers);
    headers.set('cookie', [...jar].map(([name, value]) => `${name}=${value}`).join('; '));
    const response = await fetch(url, { ...init, headers });
    // Debian's Node.js 18 only has the lines joined.
    const lines = response.headers.getSetCookie?.() ?? response.headers.get('set-cookie')?.split(/, (?=[\w-]+=)/) ?? [];
    for (const line of lines) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(line) ?? assert.fail(line);
      jar.set(name!, value!);
    }
    return response;
  };
}

/** True if the types are the same. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const holds = <T extends true>(value: T) => assert.ok(value);

for (const [name, link] of Object.entries({ httpBatchLink, httpBatchStreamLink })) {
  test(`types with ${name}`, async () => {
    const client = createTRPCClient<AppRouter>({
      links: [link({ url: `${server}/api/trpc`, transformer: superjson, fetch: browser() })],
    });
    const email = `typed-${name}@example.com`.toLowerCase();
    await fetch(`${server}/test/user`, { method: 'POST', body: new URLSearchParams({ email, password, role: 'admin' }) });

    const signedIn = await client.auth.signInWithPassword.mutate({ email, password });
    holds<Same<typeof signedIn.user.created_at, string>>(true);
    const [user, { hasPassword }] = await Promise.all([client.auth.getUser.query(), client.auth.hasPassword.query()]);
    holds<Same<typeof user.role, 'admin' | 'agent' | null>>(true);
    holds<Same<typeof hasPassword, boolean>>(true);
    assert.deepEqual([user.email, user.role, user.avatar_url, hasPassword], [email, 'admin', null, true]);
    assert.equal((await client.auth.updateProfile.mutate({ name: 'Ada' })).name, 'Ada');

    const webhook = await client.webhooks.create.mutate({ url: 'https://hooks.example.com/in', events: ['ticket.created'], payloadForm: 'a' });
    holds<Same<typeof webhook.lastDeliveryAt, string | null>>(true);
    const input: inferRouterInputs<AppRouter>['webhooks']['deliveries'] = { webhookId: webhook.id, from: new Date(0), limit: 10 };
    const output: inferRouterOutputs<AppRouter>['webhooks']['deliveries'] = await client.webhooks.deliveries.query(input);
    assert.deepEqual(output, { deliveries: [], next: null });
    assert.deepEqual(await client.webhooks.deliveries.query(), output);

    // @ts-expect-error: a query
    await assert.rejects(client.auth.getUser.mutate(), TRPCClientError);
    // @ts-expect-error: no such procedure
    await assert.rejects(client.auth.nonsense.query(), TRPCClientError);
    // @ts-expect-error: a member is missing
    await assert.rejects(client.webhooks.delete.mutate({}), TRPCClientError);
    // @ts-expect-error: not a form
    await assert.rejects(client.webhooks.create.mutate({ url: webhook.url, events: ['*'], payloadForm: 'c' }), TRPCClientError);

    const error = await client.webhooks.delete.mutate({ id: 'x' }).catch((e: TRPCClientError<AppRouter>) => e);
    assert.ok(error instanceof TRPCClientError);
    const issues = error.data?.issues;
    holds<Same<typeof issues, { path: string; message: string }[] | undefined>>(true);
    assert.equal(issues?.[0]?.path, 'id');
    assert.equal(error.data?.reason, undefined);
  });
}
