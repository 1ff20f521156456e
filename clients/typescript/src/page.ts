import { KickstandError } from "./errors.js";

/** The body of a list on the wire. */
export interface ListBody<T> {
  readonly data: T[];
  readonly has_more: boolean;
  readonly next_cursor: string | null;
}

/** A page of a list. Iterating over it returns its records and the records of all later pages. */
export class Page<T> implements AsyncIterable<T> {
  readonly data: readonly T[];
  readonly has_more: boolean;
  readonly next_cursor: string | null;
  readonly #cursor: string | undefined;
  readonly #load: (cursor: string) => Promise<Page<T>>;

  /** cursor is that of this page; the first page has none. */
  constructor(body: ListBody<T>, cursor: string | undefined, load: (cursor: string) => Promise<Page<T>>) {
    if (!Array.isArray(body?.data)) {
      throw new KickstandError("The answer is not a list.");
    }
    this.#cursor = cursor;
    this.data = body.data;
    this.has_more = body.has_more;
    this.next_cursor = body.next_cursor;
    this.#load = load;
  }

  /** Requests the next page with the same parameters. Null after the last page. */
  async nextPage(): Promise<Page<T> | null> {
    if (!this.has_more) {
      return null;
    }
    if (!this.next_cursor || this.next_cursor === this.#cursor) {
      throw new KickstandError("The list has more records, but no new cursor.");
    }
    return this.#load(this.next_cursor);
  }

  /** Returns this page and all later ones. */
  async *pages(): AsyncGenerator<Page<T>, void, undefined> {
    for (let page: Page<T> | null = this; page !== null; page = await page.nextPage()) {
      yield page;
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for await (const page of this.pages()) {
      yield* page.data;
    }
  }
}

/**
 * A list that was requested: await it for its first page, or iterate over it for all records
 * of all pages.
 */
export interface PagePromise<T> extends Promise<Page<T>>, AsyncIterable<T> {}

/** Makes the promise of a page iterable. */
export function pagePromise<T>(promise: Promise<Page<T>>): PagePromise<T> {
  return Object.assign(promise, {
    async *[Symbol.asyncIterator]() {
      yield* await promise;
    },
  });
}
