import assert from "node:assert/strict";
import { test } from "node:test";

import {
  type AnswerInfo,
  attachment,
  type CallOptions,
  type ClientOptions,
  ConnectionError,
  Fleet,
  Helpdesk,
  type Import,
  KickstandError,
  type PagePromise,
  ProblemError,
  TimeoutError,
} from "../src/index.js";
import * as methods from "./methods.js";
import { assertIncludes, collect, type Key, keyText, vectors } from "./vectors.js";

interface Vector {
  name: string;
  client: "helpdesk" | "fleet";
  key: Key;
  options?: { max_retries?: number; max_retry_wait?: number };
  random: number;
  now?: number;
  call: Call;
  exchanges: Exchange[];
  waits: number[];
  result?: unknown;
  raw?: unknown;
  observed?: Record<string, unknown>;
  yielded?: unknown[];
  error?: { kind: string; [member: string]: unknown };
}

interface Call {
  operation: string;
  mode: "call" | "iterate" | "pages" | "export" | "export_csv" | "import" | "file" | "modify";
  path?: Record<string, string>;
  query?: Record<string, unknown>;
  body?: unknown;
  options?: Record<string, string | number>;
  records?: unknown[];
  append?: { tags: string };
}

interface Exchange {
  request: {
    method: string;
    path: string;
    query?: Record<string, string | string[]>;
    headers?: Record<string, string>;
    present?: string[];
    absent?: string[];
    same?: string[];
    differs?: string[];
    body?: unknown;
    lines?: unknown[];
  };
  response?: { status: number; headers: Record<string, string>; body?: unknown; text?: string; base64?: string };
  failure?: "connect" | "reset" | "timeout" | "cut";
}

for (const v of vectors<Vector>("exchanges.json")) {
  test(v.name, () => run(v));
}

async function run(v: Vector): Promise<void> {
  const transport = new Transport(v);
  const waits: number[] = [];
  const options: ClientOptions = {
    key: keyText(v.key),
    baseUrl: "https://kickstand.example",
    timeout: transport.timeout,
    maxRetries: v.options?.max_retries,
    maxRetryWait: v.options?.max_retry_wait && v.options.max_retry_wait * 1000,
    fetch: transport.fetch,
    random: () => v.random,
    clock: {
      now: () => (v.now ?? 0) * 1000,
      sleep: async (milliseconds) => {
        waits.push(milliseconds / 1000);
      },
    },
  };
  const client = v.client === "helpdesk" ? new Helpdesk(options) : new Fleet(options);
  const answers: AnswerInfo[] = [];
  const yielded: unknown[] = [];
  let result: unknown;
  let error: unknown;
  try {
    result = await invoke(v, client, (answer) => answers.push(answer), yielded);
  } catch (caught) {
    error = caught;
  }
  if (v.error === undefined) {
    assert.ifError(error);
    assertIncludes(result ?? null, v.result, "result");
    if (v.raw !== undefined) {
      assertIncludes(result, v.raw, "raw");
    }
  } else {
    assertError(error, v.error);
    assertIncludes(yielded, v.yielded ?? [], "yielded");
  }
  assert.equal(transport.count, v.exchanges.length, "number of requests");
  assertIncludes(waits, v.waits, "waits");
  if (v.observed) {
    assertIncludes(observed(answers.at(-1)), v.observed, "observed");
  }
}

type Method = (...args: unknown[]) => unknown;

/** Calls the method of the vector's operation in the vector's mode. */
async function invoke(
  { client: api, call }: Vector,
  client: Helpdesk | Fleet,
  onResponse: (answer: AnswerInfo) => void,
  yielded: unknown[],
): Promise<unknown> {
  const [group, method] = methods[api][call.operation] ?? assert.fail(`no operation ${call.operation}`);
  const ids = Object.values(call.path ?? {});
  const options = { ...callOptions(call.options ?? {}), onResponse };
  const query = fromJSON(call.query ?? {});
  const methodsOfGroup = (client as unknown as Record<string, Record<string, Method>>)[group] ?? {};
  // The arguments are the ids, then a body or a query if the method has one, and the options.
  const send = <T>(name: string, ...args: unknown[]): T => {
    const f = methodsOfGroup[name] ?? assert.fail(`no method ${group}.${name}`);
    const second = f.length > args.length + 1 ? [call.body === undefined ? query : fromJSON(call.body)] : [];
    return f.call(methodsOfGroup, ...args, ...second, options) as T;
  };
  switch (call.mode) {
    case "call":
      return send(method, ...ids);
    case "iterate":
      return collect(send<PagePromise<unknown>>(method, ...ids), yielded);
    case "pages": {
      const first = await send<PagePromise<unknown>>(method, ...ids);
      return (await collect(first.pages())).map((page) => page.data);
    }
    case "export":
      return collect(send<AsyncIterable<unknown>>("export", ...ids), yielded);
    case "export_csv":
      return (await collect(send<AsyncIterable<string>>("exportCsv", ...ids))).join("");
    case "file":
      return {
        base64: Buffer.concat(await collect(send<AsyncIterable<Uint8Array>>(method, ...ids))).toString("base64"),
      };
    case "import": {
      const run = send<Import>("import", call.records);
      return { lines: await collect(run, yielded), summary: run.summary };
    }
    case "modify":
      return send("modify", ...ids, (r: { tags: string[] }) => ({ tags: [...r.tags, call.append?.tags] }));
  }
}

function callOptions(o: Record<string, string | number>): CallOptions {
  const camel = (name: string) => name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(o).map(([name, value]) => [camel(name), value]));
}

/** Replaces the tagged values of a vector. */
function fromJSON(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.map(fromJSON);
  }
  if (typeof value !== "object" || value === null) {
    return value;
  }
  const members = value as Record<string, unknown>;
  if (typeof members["$time"] === "string") {
    return new Date(members["$time"]);
  }
  if (members["$attachment"]) {
    const file = members["$attachment"] as { name: string; content_type: string; base64: string };
    return attachment(Buffer.from(file.base64, "base64"), file.name, file.content_type);
  }
  return Object.fromEntries(Object.entries(members).map(([k, v]) => [k, fromJSON(v)]));
}

function assertError(error: unknown, want: { kind: string; [member: string]: unknown }): void {
  const kinds: Record<string, new (...args: never[]) => Error> = {
    problem: ProblemError,
    connection: ConnectionError,
    timeout: TimeoutError,
    argument: TypeError,
    answer: KickstandError,
  };
  const kind = kinds[want.kind] ?? assert.fail(want.kind);
  assert.ok(error instanceof kind, `error is ${error}, want ${want.kind}`);
  assert.equal(error instanceof KickstandError, want.kind !== "argument");
  if (want.kind === "answer") {
    assert.equal(Object.getPrototypeOf(error), KickstandError.prototype);
  }
  if (error instanceof ProblemError) {
    const { kind: _, ...members } = want;
    const got = { ...error, message: error.message, request_id: error.requestId, retry_after: error.retryAfter };
    assertIncludes(got, members, "error");
  }
}

function observed(answer: AnswerInfo | undefined): unknown {
  const limit = answer?.rateLimit;
  return {
    ...answer,
    request_id: answer?.requestId,
    rate_limit: limit && { ...limit, reset: limit.reset.getTime() / 1000 },
  };
}

/** Answers the requests of a vector, and checks them. */
class Transport {
  count = 0;
  readonly #seen: Record<string, string>[] = [];
  readonly #v: Vector;

  constructor(v: Vector) {
    this.#v = v;
  }

  /** Milliseconds: short only for the vectors that hang. */
  get timeout(): number {
    return this.#v.exchanges.some((e) => e.failure === "timeout") ? 1 : 30_000;
  }

  readonly fetch = async (url: unknown, init: RequestInit = {}): Promise<Response> => {
    const exchange = this.#v.exchanges[this.count++];
    assert.ok(exchange, `an unexpected request: ${init.method} ${url}`);
    await this.#check(exchange.request, new URL(String(url)), init);
    const { response, failure } = exchange;
    if (failure === "timeout") {
      await new Promise((_, reject) => {
        init.signal?.addEventListener("abort", () => reject(init.signal?.reason));
      });
    }
    if (response === undefined) {
      throw new TypeError("fetch failed");
    }
    return makeResponse(response, failure === "cut");
  };

  async #check(want: Exchange["request"], url: URL, init: RequestInit): Promise<void> {
    assert.equal(url.host, "kickstand.example");
    assert.equal(init.method, want.method);
    assert.equal(url.pathname, want.path);
    const query: Record<string, string | string[]> = {};
    for (const name of url.searchParams.keys()) {
      const all = url.searchParams.getAll(name);
      query[name] = Array.isArray(want.query?.[name]) ? all : all.length === 1 ? String(all[0]) : all;
    }
    assert.deepEqual(query, want.query ?? {});
    const headers = Object.fromEntries(new Headers(init.headers));
    assert.equal(headers["authorization"], `Bearer ${keyText(this.#v.key)}`);
    assert.match(headers["user-agent"] ?? "", /^kickstand-typescript\/\d/);
    assertIncludes(headers, want.headers ?? {}, "headers");
    for (const name of want.present ?? []) {
      assert.ok(headers[name], `header ${name} is missing`);
    }
    for (const name of want.absent ?? []) {
      assert.equal(headers[name], undefined, `header ${name}`);
    }
    this.#checkIdempotencyKey(want, headers);
    for (const name of want.same ?? []) {
      assert.equal(headers[name], this.#seen[0]?.[name], `header ${name} differs between attempts`);
    }
    for (const name of want.differs ?? []) {
      assert.ok(
        !this.#seen.some((earlier) => earlier[name] === headers[name]),
        `header ${name} is that of another request`,
      );
    }
    this.#seen.push(headers);
    const text = init.body ? await new Response(init.body).text() : "";
    if (want.lines) {
      assert.deepEqual(
        text
          .split("\n")
          .slice(0, -1)
          .map((line) => JSON.parse(line)),
        want.lines,
      );
    } else {
      assert.deepEqual(text === "" ? undefined : JSON.parse(text), want.body);
    }
  }

  #checkIdempotencyKey(want: Exchange["request"], headers: Record<string, string>): void {
    const key = headers["idempotency-key"];
    if (want.method === "GET") {
      assert.equal(key, undefined);
    } else if (!want.headers?.["idempotency-key"]) {
      assert.match(key ?? "", /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    }
  }
}

function makeResponse(r: NonNullable<Exchange["response"]>, cut: boolean): Response {
  const bytes = Buffer.from(
    r.base64 ?? r.text ?? (r.body === undefined ? "" : JSON.stringify(r.body)),
    r.base64 ? "base64" : "utf8",
  );
  if (bytes.length === 0 && !cut) {
    return new Response(null, r);
  }
  // One byte at a time, so that characters and lines are cut everywhere.
  let at = 0;
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      if (at < bytes.length) {
        controller.enqueue(bytes.subarray(at, ++at));
      } else if (cut) {
        controller.error(new TypeError("terminated"));
      } else {
        controller.close();
      }
    },
  });
  return new Response(body, r);
}
