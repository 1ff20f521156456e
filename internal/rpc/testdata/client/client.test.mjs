// What a TypeScript developer sees who points the public tRPC client at a
// Kickstand server. client_test.go runs it and serves what it calls:
//
//   KICKSTAND_URL   where the server is; below /test/ it does what a browser
//                   cannot, such as letting access tokens expire
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { createTRPCClient, httpBatchLink, httpBatchStreamLink, httpLink, isTRPCClientError } from '@trpc/client';
import superjson from 'superjson';

const server = process.env.KICKSTAND_URL;
const password = 'correct horse battery';

/** The Set-Cookie lines; Debian's Node.js 18 only has them joined. */
function setCookies(headers) {
  if (headers.getSetCookie) return headers.getSetCookie();
  return (headers.get('set-cookie') ?? '').split(/, (?=[\w-]+=)/).filter(Boolean);
}

/** A browser: it keeps cookies and remembers what it asked for. */
class Browser {
  jar = new Map();
  requests = [];
  headers = {};

  fetch = async (url, init = {}) => {
    const headers = new Headers(init.headers);
    if (this.jar.size) headers.set('cookie', [...this.jar].map(([k, v]) => `${k}=${v}`).join('; '));
    for (const [k, v] of Object.entries(this.headers)) headers.set(k, v);
    const request = { method: init.method, path: new URL(url).pathname.replace('/api/trpc/', '') };
    this.requests.push(request);
    const response = await fetch(url, { ...init, headers });
    request.status = response.status;
    const cookies = setCookies(response.headers);
    request.cookies = cookies.map((line) => line.split('=')[0]).sort();
    for (const line of cookies) {
      const [, name, value] = line.match(/^([^=]+)=([^;]*)/);
      if (/max-age=0/i.test(line)) this.jar.delete(name);
      else this.jar.set(name, value);
    }
    return response;
  };

  client(link, options = {}) {
    return createTRPCClient({
      links: [link({ url: `${server}/api/trpc`, transformer: superjson, fetch: this.fetch, ...options })],
    });
  }

  /** The client of somebody new, with that role, who has just signed in. */
  async signedIn(role, link) {
    const client = this.client(link);
    this.email = await newUser(role);
    await client.auth.signInWithPassword.mutate({ email: this.email, password });
    this.requests = [];
    return client;
  }
}

/** Does on the server what a client cannot. */
async function control(what, input = {}) {
  const response = await fetch(`${server}/test/${what}`, { method: 'POST', body: new URLSearchParams(input) });
  assert.equal(response.status, 204, `${what}: ${await response.text()}`);
}

let users = 0;

/** Makes somebody who knows the password and returns the e-mail address. */
async function newUser(role) {
  const email = `${role}-${++users}@example.com`;
  await control('user', { email, password, role });
  return email;
}

/** The error that a promise of the client ends with. */
async function failure(promise) {
  let value;
  try {
    value = await promise;
  } catch (error) {
    assert.ok(isTRPCClientError(error), `not an error of the client: ${error}`);
    return error;
  }
  assert.fail(`succeeded with ${JSON.stringify(value)}`);
}

/** Asserts that a promise ends with an error that the server made. */
async function refused(promise, httpStatus, code, number, path, message) {
  const error = await failure(promise);
  assert.deepEqual(
    { httpStatus: error.data?.httpStatus, code: error.data?.code, number: error.shape?.code, path: error.data?.path, message: error.message },
    { httpStatus, code, number, path, message },
  );
  return error;
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/;

for (const [name, link] of Object.entries({ httpLink, httpBatchLink, httpBatchStreamLink })) {
  test(`${name}: a session from beginning to end`, async () => {
    const browser = new Browser();
    const client = browser.client(link);
    await refused(client.auth.getUser.query(), 401, 'UNAUTHORIZED', -32001, 'auth.getUser', 'you are not signed in');
    const email = await newUser('admin');
    const { success, user } = await client.auth.signInWithPassword.mutate({ email: email.toUpperCase(), password });
    assert.equal(success, true);
    assert.match(user.id, uuid);
    assert.equal(new Date(user.created_at).toISOString().slice(0, 2), '20');
    assert.deepEqual([...browser.jar.keys()].sort(), ['svc-access-token', 'svc-browser', 'svc-refresh-token']);

    // Without an argument, with undefined and with an argument that is not asked for.
    for (const input of [[], [undefined], [null], [{}], [{ surplus: true }]]) {
      const me = await client.auth.getUser.query(...input);
      assert.equal(me.id, user.id);
      assert.equal(me.avatar_url, null);
    }
    assert.deepEqual(await client.auth.hasPassword.query(), { hasPassword: true });
    assert.deepEqual(await client.auth.signOut.mutate(), { success: true });
    // The browser stays known: its cookie opens nothing.
    assert.deepEqual([...browser.jar.keys()], ['svc-browser']);
    await refused(client.auth.hasPassword.query(), 401, 'UNAUTHORIZED', -32001, 'auth.hasPassword', 'you are not signed in');
  });

  test(`${name}: optional members`, async () => {
    const browser = new Browser();
    const client = await browser.signedIn('agent', link);
    const before = await client.auth.getUser.query();
    const after = await client.auth.updateProfile.mutate({ name: 'Agnes', avatar_url: undefined, preferences: undefined });
    assert.deepEqual([after.name, after.avatar_url, after.preferences], ['Agnes', before.avatar_url, before.preferences]);
    const same = await client.auth.updateProfile.mutate({ name: undefined });
    assert.equal(same.name, 'Agnes');
    assert.equal((await client.auth.updateProfile.mutate({})).name, 'Agnes');

    const mail = browser.client(link);
    assert.deepEqual(await mail.auth.signInWithEmail.mutate({ email: `${name}@example.com`, redirectTo: undefined }), { success: true });
  });

  test(`${name}: what JSON has no word for`, async () => {
    const client = await new Browser().signedIn('agent', link);
    const since = new Date('2026-03-01T12:00:00.000Z');
    // The annotations of superjson are not kept: a Date comes back as a string.
    const { preferences } = await client.auth.updateProfile.mutate({
      preferences: { since, nested: { list: [1, undefined, { at: since }], none: undefined }, 'a.b': 'ü→🚲', set: new Set(['x']) },
    });
    const want = {
      since: since.toISOString(),
      nested: { list: [1, null, { at: since.toISOString() }], none: null },
      'a.b': 'ü→🚲',
      set: ['x'],
    };
    assert.deepEqual(preferences, want);
    assert.deepEqual((await client.auth.getUser.query()).preferences, want);
    assert.deepEqual((await client.auth.updateProfile.mutate({ preferences: {} })).preferences, {});
  });

  test(`${name}: errors`, async () => {
    const browser = new Browser();
    const client = await browser.signedIn('agent', link);
    const invalid = await refused(
      client.auth.signInWithPassword.mutate({ email: 7, password: '12345' }),
      400, 'BAD_REQUEST', -32600, 'auth.signInWithPassword', 'email must be a string (and 1 more)');
    assert.deepEqual(invalid.data.issues, [
      { path: 'email', message: 'must be a string' },
      { path: 'password', message: 'must have at least 6 characters' },
    ]);
    // A stream's status is sent before its errors are known.
    assert.equal(invalid.meta.response.status, link === httpBatchStreamLink ? 200 : 400);
    const none = await refused(client.auth.signInWithEmail.mutate(), 400, 'BAD_REQUEST', -32600, 'auth.signInWithEmail', 'email is required');
    assert.deepEqual(none.data.issues, [{ path: 'email', message: 'is required' }]);
    await refused(
      client.auth.signInWithPassword.mutate({ email: 'nobody@example.com', password }),
      401, 'UNAUTHORIZED', -32001, 'auth.signInWithPassword', 'the e-mail address or the password is wrong');
    await refused(client.webhooks.list.query(), 403, 'FORBIDDEN', -32003, 'webhooks.list', 'only admins may do this');
    await refused(client.auth.nonsense.query(), 404, 'NOT_FOUND', -32004, 'auth.nonsense', 'there is no procedure "auth.nonsense"');
    await refused(client['a/b?c d'].query(), 404, 'NOT_FOUND', -32004, 'a/b', 'there is no procedure "a/b"');
    await refused(client.auth.signOut.query(), 405, 'METHOD_NOT_SUPPORTED', -32005, 'auth.signOut', 'auth.signOut is called with POST');
    await refused(client.auth.getUser.mutate(), 405, 'METHOD_NOT_SUPPORTED', -32005, 'auth.getUser', 'auth.getUser is called with GET');
    await refused(client.auth.setPassword.mutate({ password: 'another horse' }), 412, 'PRECONDITION_FAILED', -32012, 'auth.setPassword',
      'you have a password already; change it with auth.changePassword');

    const broken = await failure(client.test.fault.query());
    assert.match(broken.message, /^internal error \(id [A-Z2-7]{12}\)$/);
    assert.deepEqual([broken.data.httpStatus, broken.data.code, broken.shape.code], [500, 'INTERNAL_SERVER_ERROR', -32603]);
  });

  test(`${name}: webhooks`, async () => {
    const client = await new Browser().signedIn('admin', link);
    const created = await client.webhooks.create.mutate({
      url: 'https://hooks.example.com/in', events: ['ticket.created'], secret: undefined, enabled: undefined,
    });
    assert.match(created.id, uuid);
    assert.deepEqual([created.enabled, created.lastDeliveryAt], [true, null]);
    const changed = await client.webhooks.update.mutate({ id: created.id, events: undefined, enabled: false });
    assert.deepEqual([changed.enabled, changed.events], [false, ['ticket.created']]);
    assert.deepEqual((await client.webhooks.list.query()).map((w) => w.id), [created.id]);
    const invalid = await failure(client.webhooks.create.mutate({ url: undefined, events: ['ticket.created', null] }));
    assert.deepEqual(invalid.data.issues, [{ path: 'url', message: 'is required' }, { path: 'events.1', message: 'must not be null' }]);
    const id = created.id;
    assert.deepEqual(await client.webhooks.delete.mutate({ id }), { success: true });
    await refused(client.webhooks.delete.mutate({ id }), 404, 'NOT_FOUND', -32004, 'webhooks.delete', 'there is no such webhook');
  });

  test(`${name}: queries by POST`, async () => {
    // Like tRPC's own server where nobody allowed it.
    const browser = new Browser();
    await browser.signedIn('agent', link);
    const client = browser.client(link, { methodOverride: 'POST' });
    await refused(client.auth.getUser.query(), 405, 'METHOD_NOT_SUPPORTED', -32005, 'auth.getUser', 'auth.getUser is called with GET');
    assert.deepEqual(await client.auth.signOut.mutate(), { success: true });
  });

  test(`${name}: too many attempts`, async () => {
    const client = new Browser().client(link);
    const attempt = () => client.auth.signInWithPassword.mutate({ email: `limit-${name}@example.com`, password: 'a guess' });
    for (let i = 0; i < 5; i++) assert.equal((await failure(attempt())).data.httpStatus, 401);
    const error = await failure(attempt());
    const [, seconds] = error.message.match(/^too many sign-in attempts, try again in (\d+) seconds$/);
    assert.deepEqual([error.data.code, error.data.httpStatus, error.shape.code], ['TOO_MANY_REQUESTS', 429, -32600]);
    assert.equal(error.meta.response.headers.get('retry-after'), seconds);
    assert.ok(seconds > 0 && seconds <= 60, seconds);
  });

  test(`${name}: another site`, async () => {
    const browser = new Browser();
    const client = await browser.signedIn('agent', link);
    for (const headers of [{ origin: 'https://evil.example' }, { 'sec-fetch-site': 'cross-site' }]) {
      browser.headers = headers;
      await refused(client.auth.signOut.mutate(), 403, 'FORBIDDEN', -32003, 'auth.signOut', 'this request comes from another site');
    }
    browser.headers = { origin: server };
    assert.deepEqual(await client.auth.signOut.mutate(), { success: true });
  });

  test(`${name}: too large`, async () => {
    const browser = new Browser();
    const client = await browser.signedIn('agent', link);
    const message = 'the input is larger than 1048576 bytes';
    // A little over, so that it is all sent before the answer, and far over.
    for (const size of [(1 << 20) + 1, 3 << 20, 30 << 20]) {
      await refused(client.auth.updateProfile.mutate({ preferences: { x: 'x'.repeat(size) } }), 413, 'PAYLOAD_TOO_LARGE', -32013, 'auth.updateProfile', message);
    }
    await refused(client.auth.getUser.query({ x: 'x'.repeat(32 << 10) }), 413, 'PAYLOAD_TOO_LARGE', -32013, 'auth.getUser', 'the input is larger than 32768 bytes');
    const bounded = await failure(client.auth.updateProfile.mutate({ preferences: { x: 'x'.repeat(16 << 10) } }));
    assert.deepEqual(bounded.data.issues, [{ path: 'preferences', message: 'must have at most 16384 bytes' }]);
    assert.equal((await client.auth.getUser.query()).email, browser.email);
  });

  test(`${name}: after an hour`, async () => {
    const browser = new Browser();
    const client = await browser.signedIn('agent', link);
    const old = new Map(browser.jar);
    await control('expire');
    const answers = await Promise.all([client.auth.getUser.query(), client.auth.hasPassword.query(), client.sessions.list.query()]);
    assert.equal(answers[0].email, browser.email);
    assert.equal(answers[2].filter((s) => s.current).length, 1);
    for (const cookie of ['svc-access-token', 'svc-refresh-token']) assert.notEqual(browser.jar.get(cookie), old.get(cookie));
    for (const r of browser.requests) assert.deepEqual([r.status, r.cookies], [200, ['svc-access-token', 'svc-refresh-token']]);
    browser.requests = [];
    await client.auth.getUser.query();
    assert.deepEqual(browser.requests[0].cookies, []);
  });

  test(`${name}: going away`, async () => {
    const browser = new Browser();
    const client = await browser.signedIn('agent', link);
    const abort = new AbortController();
    const waiting = failure(client.test.wait.query(undefined, { signal: abort.signal }));
    await control('waiting');
    abort.abort();
    const error = await waiting;
    assert.equal(error.cause?.name, 'AbortError');
    assert.equal(error.data, undefined);
    await control('gone'); // the server has noticed
    assert.equal((await client.auth.getUser.query()).email, browser.email);
  });
}

test('httpLink: inputs that are not JSON', async () => {
  const client = await new Browser().signedIn('agent', httpLink);
  const form = new FormData();
  form.set('name', 'Agnes');
  for (const input of [form, new Uint8Array([1, 2, 3])]) {
    const error = await failure(client.auth.updateProfile.mutate(input));
    assert.deepEqual([error.data.code, error.data.httpStatus, error.shape.code], ['UNSUPPORTED_MEDIA_TYPE', 415, -32015]);
    assert.match(error.message, /^the content type must be application\/json, not "/);
  }
});

test('httpBatchLink: each call settles on its own', async () => {
  const browser = new Browser();
  const client = await browser.signedIn('agent', httpBatchLink);
  const queries = await Promise.allSettled([
    client.auth.getUser.query(),
    client.webhooks.list.query(),
    client.auth.hasPassword.query(),
    client.auth.nonsense.query(),
    client.test.fault.query(),
  ]);
  assert.deepEqual(browser.requests.map((r) => [r.method, r.path, r.status]),
    [['GET', 'auth.getUser,webhooks.list,auth.hasPassword,auth.nonsense,test.fault', 207]]);
  assert.deepEqual(queries.map((q) => q.reason?.data.code), [undefined, 'FORBIDDEN', undefined, 'NOT_FOUND', 'INTERNAL_SERVER_ERROR']);
  assert.deepEqual(queries.map((q) => q.reason?.data.path), [undefined, 'webhooks.list', undefined, 'auth.nonsense', 'test.fault']);
  assert.equal(queries[0].value.email, browser.email);
  assert.deepEqual(queries[2].value, { hasPassword: true });

  browser.requests = [];
  const mutations = await Promise.allSettled([
    client.auth.updateProfile.mutate({ name: '' }),
    client.auth.updateProfile.mutate({ name: 'Agnes II' }),
    client.auth.updateProfile.mutate({ avatar_url: 7 }),
  ]);
  assert.deepEqual(browser.requests.map((r) => [r.method, r.status]), [['POST', 207]]);
  assert.deepEqual(mutations.map((m) => m.reason?.data.issues[0].path), ['name', undefined, 'avatar_url']);
  assert.equal(mutations[1].value.name, 'Agnes II');

  browser.requests = [];
  const failed = await Promise.allSettled([client.auth.updateProfile.mutate({ name: '' }), client.auth.updateProfile.mutate({ name: 7 })]);
  assert.deepEqual(failed.map((f) => f.reason.data.httpStatus), [400, 400]);
  assert.deepEqual(browser.requests.map((r) => r.status), [400]);

  // A query and a mutation of the same moment are two requests.
  browser.requests = [];
  await Promise.all([client.auth.getUser.query(), client.auth.updateProfile.mutate({ name: 'Agnes' })]);
  assert.deepEqual(browser.requests.map((r) => r.method).sort(), ['GET', 'POST']);
});

test('httpBatchLink: many calls', async () => {
  const browser = new Browser();
  const client = await browser.signedIn('agent', httpBatchLink);
  const all = (n, c = client) => Promise.allSettled(Array.from({ length: n }, () => c.auth.hasPassword.query()));
  assert.ok((await all(20)).every((r) => r.value?.hasPassword === true));
  assert.equal(browser.requests.length, 1);
  for (const { reason } of await all(21)) {
    assert.deepEqual([reason.data.httpStatus, reason.data.code, reason.data.path], [400, 'BAD_REQUEST', 'auth.hasPassword']);
    assert.equal(reason.message, 'a batch holds at most 20 calls');
  }

  browser.requests = [];
  assert.ok((await all(45, browser.client(httpBatchLink, { maxItems: 20 }))).every((r) => r.value?.hasPassword === true));
  assert.deepEqual(browser.requests.map((r) => r.path.split(',').length), [20, 20, 5]);

  browser.requests = [];
  const short = browser.client(httpBatchLink, { maxURLLength: 400 });
  assert.ok((await all(10, short)).every((r) => r.value?.hasPassword === true));
  assert.ok(browser.requests.length > 1, 'the URLs were not bounded');
  const long = await failure(short.auth.getUser.query({ x: 'x'.repeat(400) }));
  assert.deepEqual([long.message, long.data], ['Input is too big for a single dispatch', undefined]);
});

test('httpBatchLink: one of two goes away', async () => {
  const browser = new Browser();
  const client = await browser.signedIn('agent', httpBatchLink);
  const abort = new AbortController();
  const going = client.test.wait.query(undefined, { signal: abort.signal });
  const gone = failure(going);
  await control('waiting'); // a batch of one
  const both = [client.auth.hasPassword.query(undefined, { signal: abort.signal }), client.auth.getUser.query()];
  setTimeout(() => abort.abort()); // when the second batch was sent
  await gone;
  await control('gone');
  // The client ends a request when nobody is left who waits for it.
  assert.equal((await both[1]).email, browser.email);
  await both[0].catch((error) => assert.equal(error.data, undefined));
  assert.deepEqual(browser.requests.map((r) => r.path), ['test.wait', 'auth.hasPassword,auth.getUser']);
});

test('httpBatchLink: another site, all calls of a batch', async () => {
  const browser = new Browser();
  const client = await browser.signedIn('agent', httpBatchLink);
  browser.headers = { origin: 'https://evil.example' };
  const both = await Promise.allSettled([client.auth.updateProfile.mutate({ name: 'Eve' }), client.auth.signOut.mutate()]);
  assert.deepEqual(both.map((b) => [b.reason.data.httpStatus, b.reason.message]), Array(2).fill([403, 'this request comes from another site']));
});
