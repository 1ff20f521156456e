import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { inspect } from "node:util";

import {
  type ClientOptions,
  ConnectionError,
  Fleet,
  Helpdesk,
  KickstandError,
  type OrUnknown,
  TimeoutError,
  version,
} from "../src/index.js";
import type { TicketStatus } from "../src/index.js";
import { collect, type Key, keyText, vectors } from "./vectors.js";

interface Configuration {
  name: string;
  key: Key;
  base_url: string;
  options?: { allow_http?: boolean };
  result?: { helpdesk: string; fleet: string };
  error?: { kind: "argument" };
}

for (const v of vectors<Configuration>("configurations.json")) {
  test(v.name, async () => {
    const requested: string[] = [];
    const options: ClientOptions = {
      key: keyText(v.key),
      baseUrl: v.base_url,
      allowHttp: v.options?.allow_http,
      fetch: async (url) => {
        requested.push(String(url));
        return Response.json({});
      },
    };
    if (v.result === undefined) {
      assert.throws(() => new Helpdesk(options), TypeError);
      assert.throws(() => new Fleet(options), TypeError);
      return;
    }
    await new Helpdesk(options).apiKey.get();
    await new Fleet(options).apiKey.get();
    assert.deepEqual(requested, [`${v.result.helpdesk}/key`, `${v.result.fleet}/key`]);
  });
}

const key = keyText("test");
const baseUrl = "https://kickstand.example";

test("reads the environment", async () => {
  Object.assign(process.env, { KICKSTAND_KEY: key, KICKSTAND_URL: baseUrl });
  let requested: unknown;
  await new Fleet({
    fetch: async (url) => {
      requested = url;
      return Response.json({});
    },
  }).apiKey.get();
  assert.equal(requested, `${baseUrl}/sandbox/v1/key`);
  delete process.env["KICKSTAND_KEY"];
  assert.throws(() => new Helpdesk({ baseUrl }), /There is no API key/);
  delete process.env["KICKSTAND_URL"];
  assert.throws(() => new Helpdesk({ key }), /There is no address/);
});

test("refuses browsers", () => {
  Object.assign(globalThis, { window: {}, document: {} });
  try {
    assert.throws(() => new Helpdesk({ key, baseUrl }), {
      name: "KickstandError",
      message: /does not run in a browser/,
    });
  } finally {
    Reflect.deleteProperty(globalThis, "window");
    Reflect.deleteProperty(globalThis, "document");
  }
});

test("does not show the key", async () => {
  const fetch = async () => new Response("", { status: 401 });
  const client = new Helpdesk({ key, baseUrl, fetch });
  const error = await client.apiKey.get().catch((e: unknown) => e);
  const shown = [
    inspect(client, { depth: 9, showHidden: true }),
    JSON.stringify(client),
    inspect(error),
    String(error),
  ];
  assert.deepEqual(
    shown.filter((text) => text.includes(key)),
    [],
  );
});

test("ends a wait when the caller aborts", async () => {
  const controller = new AbortController();
  const reason = new Error("no longer needed");
  const client = new Helpdesk({
    key,
    baseUrl,
    fetch: async () => {
      queueMicrotask(() => controller.abort(reason));
      return new Response("", { status: 503, headers: { "retry-after": "60" } });
    },
  });
  await assert.rejects(client.apiKey.get({ signal: controller.signal }), reason);
});

test("ends a request when the caller aborts", async () => {
  const controller = new AbortController();
  const reason = new Error("no longer needed");
  let attempts = 0;
  const client = new Helpdesk({
    key,
    baseUrl,
    fetch: (_, init) => {
      attempts++;
      queueMicrotask(() => controller.abort(reason));
      return new Promise((_, reject) => init?.signal?.addEventListener("abort", () => reject(init.signal?.reason)));
    },
  });
  await assert.rejects(client.apiKey.get({ signal: controller.signal }), reason);
  await assert.rejects(client.apiKey.get({ signal: controller.signal }), reason);
  assert.equal(attempts, 1);
});

test("releases the connection of an export that is not read to its end", async () => {
  let cancelled = false;
  const body = new ReadableStream<Uint8Array>({
    pull: (controller) => controller.enqueue(new TextEncoder().encode(`{"id":"1"}\n`)),
    cancel: () => {
      cancelled = true;
    },
  });
  const client = new Helpdesk({ key, baseUrl, fetch: async () => new Response(body) });
  for await (const ticket of client.tickets.export()) {
    assert.equal(ticket.id, "1");
    break;
  }
  assert.ok(cancelled);
});

test("sends an import from a generator", async () => {
  let sent = "";
  const client = new Fleet({
    key,
    baseUrl,
    fetch: async (_, init) => {
      sent = await new Response(init?.body ?? null).text();
      return new Response(`{"line":1,"status":201,"id":"zone_1"}\n{"summary":{"created":1,"failed":0}}\n`);
    },
  });
  async function* records() {
    yield { subaccount_id: "sub_1" } as never;
  }
  const run = client.zones.import(records());
  assert.equal(run.summary, undefined);
  assert.deepEqual(await run.finish(), { created: 1, failed: 0 });
  assert.equal(sent, `{"subaccount_id":"sub_1"}\n`);
});

test("raises the error of a generator of records", async () => {
  const reason = new Error("the file is gone");
  async function* records() {
    yield { subaccount_id: "sub_1" } as never;
    throw reason;
  }
  const server = createServer((request) => request.resume());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const client = new Fleet({ key, baseUrl: `http://127.0.0.1:${port}` });
  await assert.rejects(client.zones.import(records()).finish(), reason);
  server.close();
});

test("refuses an answer of more than 64 MiB", async () => {
  const mebibyte = new Uint8Array(1 << 20).fill(0x20);
  let sent = 0;
  const body = new ReadableStream<Uint8Array>({
    pull: (controller) => {
      sent++;
      controller.enqueue(mebibyte);
    },
  });
  const client = new Helpdesk({ key, baseUrl, fetch: async () => new Response(body) });
  await assert.rejects(client.apiKey.get(), (error) => error instanceof KickstandError && /64 MiB/.test(error.message));
  assert.ok(sent < 70);
});

test("returns null for an unchanged record, in the types too", async () => {
  const client = new Helpdesk({ key, baseUrl, fetch: async () => new Response(null, { status: 304 }) });
  const ticket = await client.tickets.get("tic-1", undefined, { ifNoneMatch: `"v1"` });
  // @ts-expect-error: it may be null
  assert.throws(() => ticket.id, TypeError);
  const status: OrUnknown<TicketStatus> | undefined = ticket?.status;
  assert.equal(status, undefined);
});

test("lists nothing twice", async () => {
  let requests = 0;
  const client = new Helpdesk({
    key,
    baseUrl,
    fetch: async () => {
      requests++;
      return Response.json({ data: [{ id: "tic-1" }], has_more: false, next_cursor: null });
    },
  });
  const list = client.tickets.list({ status: ["open"] });
  assert.equal((await list).data.length, 1);
  assert.equal((await collect(list)).length, 1);
  assert.equal(requests, 1);
});

test("refuses an answer without content instead of a list", async () => {
  const client = new Helpdesk({ key, baseUrl, fetch: async () => new Response(null, { status: 204 }) });
  await assert.rejects(client.tickets.list(), /not a list/);
});

test("does not retry for an invalid certificate", async () => {
  let requests = 0;
  const send: typeof fetch = async () => {
    requests++;
    throw new TypeError("fetch failed", { cause: Object.assign(new Error(), { code: "DEPTH_ZERO_SELF_SIGNED_CERT" }) });
  };
  const client = new Helpdesk({ key, baseUrl, fetch: send });
  await assert.rejects(client.tickets.get("tic-1"), ConnectionError);
  assert.equal(requests, 1);
});

test("limits the time of a whole answer", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let chunks = 0;
  const slow: typeof fetch = async (_, init) => {
    const body = new ReadableStream<Uint8Array>(
      {
        start: (controller) => init?.signal?.addEventListener("abort", () => controller.error(new Error("aborted"))),
        pull: (controller) => {
          if (++chunks > 9) {
            return controller.close();
          }
          controller.enqueue(new TextEncoder().encode(" "));
          t.mock.timers.tick(20_000); // less than the timeout
        },
      },
      { highWaterMark: 0 },
    );
    return new Response(body);
  };
  const client = new Helpdesk({ key, baseUrl, fetch: slow, maxRetries: 0 });
  await assert.rejects(client.tickets.get("tic-1"), TimeoutError);
  assert.equal(chunks, 2);
});

test("has the version of the package", () => {
  const { version: published } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
  assert.equal(version, published);
});
