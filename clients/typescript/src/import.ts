import { cutShort } from "./stream.js";

/** The problem of one line of an import. */
export interface ImportProblem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly code: string;
  readonly errors?: readonly { readonly code: string; readonly detail: string; readonly pointer?: string }[];
}

/** The result of one record of an import. */
export interface ImportLine {
  /** The record's place, counted from 1. */
  readonly line: number;
  readonly status: number;
  /** The record's id, unless it failed. */
  readonly id?: string;
  /** Telemetry that is older than the stored one. */
  readonly ignored?: readonly string[];
  readonly problem?: ImportProblem;
}

/** The counts of an import. */
export interface ImportSummary {
  readonly created: number;
  readonly failed: number;
  readonly updated?: number;
  readonly unchanged?: number;
  /** In how many records each read-only member was skipped. */
  readonly skipped?: Readonly<Record<string, number>>;
}

/**
 * An import, which starts with the iteration over its lines. An import is not retried. It can
 * be iterated over once.
 */
export class Import implements AsyncIterable<ImportLine> {
  readonly #lines: () => AsyncIterable<unknown>;
  #summary: ImportSummary | undefined;

  constructor(lines: () => AsyncIterable<unknown>) {
    this.#lines = lines;
  }

  /** The counts; undefined until all lines are read. */
  get summary(): ImportSummary | undefined {
    return this.#summary;
  }

  /** Reads all lines and returns the counts. */
  async finish(): Promise<ImportSummary> {
    for await (const _ of this) {
      // The counts come last.
    }
    return this.#summary as ImportSummary;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ImportLine, void, undefined> {
    for await (const line of this.#lines() as AsyncIterable<ImportLine | { summary: ImportSummary }>) {
      if ("summary" in line) {
        this.#summary = line.summary;
      } else {
        yield line;
      }
    }
    if (this.#summary === undefined) {
      throw cutShort();
    }
  }
}
