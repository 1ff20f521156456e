import { ConnectionError, TimeoutError } from "./errors.js";

/** The end of one attempt: after its timeout, or when the caller aborts. */
export class Deadline {
  readonly #controller = new AbortController();
  readonly #milliseconds: number;
  readonly #caller: AbortSignal | undefined;
  readonly #abort = () => this.#controller.abort();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #expired = false;
  #failed: { error: unknown } | undefined;

  constructor(milliseconds: number, caller: AbortSignal | undefined) {
    this.#milliseconds = milliseconds;
    this.#caller = caller;
    caller?.addEventListener("abort", this.#abort, { once: true });
    this.extend();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Starts the timeout again, for the next part of a stream. */
  extend(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#expired = true;
      this.#controller.abort();
    }, this.#milliseconds);
  }

  /** Ends the attempt with an error of the caller's own code. */
  fail(error: unknown): void {
    this.#failed = { error };
    this.#controller.abort();
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#caller?.removeEventListener("abort", this.#abort);
  }

  /** Returns the error to raise for a failed connection. */
  failure(cause: unknown): unknown {
    if (this.#failed !== undefined) {
      return this.#failed.error;
    }
    if (this.#caller?.aborted) {
      return this.#caller.reason;
    }
    if (this.#expired) {
      return new TimeoutError(`The server did not answer within ${this.#milliseconds} ms.`);
    }
    return new ConnectionError("The connection to the server failed.", { cause });
  }
}
