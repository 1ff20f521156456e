import { type AnswerInfo, answerInfo, readJSON, readProblem } from "./answer.js";
import { checkKey, checkOrigin, environment, refuseBrowsers } from "./configuration.js";
import { Deadline } from "./deadline.js";
import { KickstandError, ProblemError } from "./errors.js";
import { Import } from "./import.js";
import { type ListBody, Page, type PagePromise, pagePromise } from "./page.js";
import { buildPath, buildQuery, checkHeader, type Operation } from "./request.js";
import { type Clock, retryWait, systemClock } from "./retry.js";
import { byteChunks, jsonLines, ndjsonBody, textChunks } from "./stream.js";
import { version } from "./version.js";

/** Options of a client. */
export interface ClientOptions {
  /** The API key. Default: the environment variable `KICKSTAND_KEY`. */
  key?: string | undefined;
  /** The server's origin: `https://help.example.com`. Default: the environment variable `KICKSTAND_URL`. */
  baseUrl?: string | undefined;
  /** Milliseconds that one attempt may take. Default: 30000. */
  timeout?: number | undefined;
  /** Default: 3. */
  maxRetries?: number | undefined;
  /** Milliseconds. A longer `Retry-After` ends the retries. Default: 60000. */
  maxRetryWait?: number | undefined;
  /** Allows http to other hosts than this machine, which shows the key to the network. */
  allowHttp?: boolean | undefined;
  /** Sends the requests. Default: the global `fetch`. */
  fetch?: typeof fetch | undefined;
  /** Default: the system's time. Tests may replace it. */
  clock?: Clock | undefined;
  /** Returns a random number from 0 up to 1 for each wait. Default: `Math.random`. */
  random?: (() => number) | undefined;
}

/** Options of one call. */
export interface CallOptions {
  /** Makes a write take effect once, however often it is sent. Default: a new UUID. */
  idempotencyKey?: string | undefined;
  /** Milliseconds that one attempt may take. */
  timeout?: number | undefined;
  maxRetries?: number | undefined;
  /** An ETag. A changed record refuses the write with the code `precondition_failed`. */
  ifMatch?: string | undefined;
  /** The id of the subaccount to which the request is limited. */
  subaccount?: string | undefined;
  /** The id of the request in the server's log: up to 64 characters of `A-Za-z0-9._-`. */
  requestId?: string | undefined;
  /** Ends the call and its waits. The call raises the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Is called for each answer, before its body is read. */
  onResponse?: ((answer: AnswerInfo) => void) | undefined;
}

/** Options of a call that returns null for an unchanged record. */
export interface ConditionalOptions extends CallOptions {
  /** The ETag of the record as the caller has it. */
  ifNoneMatch: string;
}

/** Options of a modification, which sets the others itself. */
export type ModifyOptions = Omit<CallOptions, "idempotencyKey" | "ifMatch">;

/** One call of an operation. */
interface Call {
  readonly operation: Operation;
  readonly ids: readonly string[];
  readonly query?: object | undefined;
  /** The body as JSON. */
  readonly body?: unknown;
  readonly records?: Iterable<unknown> | AsyncIterable<unknown>;
  readonly accept?: string;
  readonly options: Partial<ConditionalOptions>;
}

/** Makes the result of a method from an answer with status 2xx or 304. */
type Read<T> = (response: Response, deadline: Deadline) => Promise<T> | T;

/** Sends the requests of one client. It is safe to use for several calls at once. */
export class Core {
  readonly #key: string;
  readonly #base: string;
  readonly #options: ClientOptions;
  readonly #clock: Clock;

  constructor(options: ClientOptions, prefix: (key: string) => string) {
    refuseBrowsers();
    this.#key = checkKey(options.key ?? environment("KICKSTAND_KEY"));
    this.#base = checkOrigin(options.baseUrl ?? environment("KICKSTAND_URL"), options.allowHttp) + prefix(this.#key);
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  /** Returns the JSON of an answer; null for 304, and undefined for an answer without content. */
  async json<T>(
    operation: Operation,
    ids: string[],
    query?: object,
    body?: unknown,
    options: CallOptions = {},
  ): Promise<T> {
    return this.#execute({ operation, ids, query, body, options }, readJSON<T>);
  }

  list<T>(operation: Operation, ids: string[], query: object = {}, options: CallOptions = {}): PagePromise<T> {
    const load = async (cursor?: string): Promise<Page<T>> => {
      const params = cursor === undefined ? query : { ...query, cursor };
      return new Page(await this.json<ListBody<T>>(operation, ids, params, undefined, options), cursor, load);
    };
    return pagePromise(load());
  }

  /** Returns the records of an export. */
  async *export<T>(
    operation: Operation,
    ids: string[],
    query?: object,
    options: CallOptions = {},
  ): AsyncGenerator<T, void, undefined> {
    const call = { operation, ids, query, options, accept: "application/x-ndjson" };
    yield* jsonLines(await this.#execute(call, textChunks)) as AsyncGenerator<T, void, undefined>;
  }

  /** Returns the text of an export as CSV. */
  async *exportCsv(
    operation: Operation,
    ids: string[],
    query?: object,
    options: CallOptions = {},
  ): AsyncGenerator<string, void, undefined> {
    yield* await this.#execute({ operation, ids, query, options, accept: "text/csv" }, textChunks);
  }

  import(
    operation: Operation,
    records: Iterable<unknown> | AsyncIterable<unknown>,
    query?: object,
    options: CallOptions = {},
  ): Import {
    const accept = "application/x-ndjson";
    const call = { operation, ids: [], query, records, accept, options: { ...options, maxRetries: 0 } };
    const send = () => this.#execute(call, textChunks);
    return new Import(async function* () {
      yield* jsonLines(await send());
    });
  }

  /** Returns the bytes of an answer. */
  async *file(
    operation: Operation,
    ids: string[],
    options: CallOptions = {},
  ): AsyncGenerator<Uint8Array, void, undefined> {
    yield* await this.#execute({ operation, ids, options, accept: "*/*" }, byteChunks);
  }

  /** Reads a record, and writes its changes if it is unchanged by then; otherwise again, up to five times. */
  async modify<T>(
    get: Operation,
    update: Operation,
    ids: string[],
    change: (record: T) => unknown,
    options: ModifyOptions = {},
  ): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      let ifMatch: string | undefined;
      const read: Read<T> = (response, deadline) => {
        ifMatch = response.headers.get("etag") ?? undefined;
        return readJSON<T>(response, deadline);
      };
      const record = await this.#execute({ operation: get, ids, options }, read);
      if (ifMatch === undefined) {
        throw new KickstandError("The record has no ETag, so a change could overwrite others.");
      }
      const body = await change(record);
      try {
        return await this.json<T>(update, ids, undefined, body, { ...options, ifMatch });
      } catch (error) {
        if (!(error instanceof ProblemError) || error.status !== 412 || attempt === 5) {
          throw error;
        }
      }
    }
  }

  async #execute<T>(call: Call, read: Read<T>): Promise<T> {
    const url = this.#base + buildPath(call.operation.path, call.ids) + buildQuery(call.operation, call.query ?? {});
    const headers = this.#headers(call);
    const body = call.body === undefined ? undefined : JSON.stringify(call.body);
    const retries = call.options.maxRetries ?? this.#options.maxRetries ?? 3;
    for (let n = 0; ; n++) {
      call.options.signal?.throwIfAborted();
      try {
        return await this.#attempt(call, url, headers, body, read);
      } catch (error) {
        const random = (this.#options.random ?? Math.random)();
        const wait = n < retries ? retryWait(error, n, random, this.#options.maxRetryWait ?? 60_000) : undefined;
        if (wait === undefined) {
          throw error;
        }
        await this.#clock.sleep(wait, call.options.signal);
      }
    }
  }

  #headers({ operation, options, body, records, accept = "application/json" }: Call): Record<string, string> {
    const headers: Record<string, string> = {
      accept,
      authorization: `Bearer ${this.#key}`,
      "user-agent": `kickstand-typescript/${version}`,
    };
    const set = (name: string, value: string | undefined) => {
      if (value !== undefined) {
        headers[name] = checkHeader(name, value);
      }
    };
    if (body !== undefined || records !== undefined) {
      headers["content-type"] = records === undefined ? "application/json" : "application/x-ndjson";
    }
    if (operation.method !== "GET") {
      set("idempotency-key", options.idempotencyKey ?? crypto.randomUUID());
    }
    set("if-match", options.ifMatch);
    set("if-none-match", options.ifNoneMatch);
    set("x-subaccount-id", options.subaccount);
    set("x-request-id", options.requestId);
    return headers;
  }

  async #attempt<T>(
    call: Call,
    url: string,
    headers: Record<string, string>,
    body: string | undefined,
    read: Read<T>,
  ): Promise<T> {
    const { operation, options, records } = call;
    const deadline = new Deadline(options.timeout ?? this.#options.timeout ?? 30_000, options.signal);
    try {
      const init: RequestInit = { method: operation.method, headers, redirect: "manual", signal: deadline.signal };
      if (records !== undefined) {
        Object.assign(init, { body: ndjsonBody(records, deadline), duplex: "half" }); // lets Node send a stream
      } else if (body !== undefined) {
        init.body = body;
      }
      const send = this.#options.fetch ?? fetch;
      const response = await send(url, init).catch((cause: unknown) => {
        throw deadline.failure(cause);
      });
      options.onResponse?.(answerInfo(response));
      if (response.ok || response.status === 304) {
        return await read(response, deadline);
      }
      throw await readProblem(response, deadline, this.#clock.now());
    } catch (error) {
      deadline.stop();
      throw error;
    }
  }
}
