import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

/** Reads a file of clients/vectors. */
export function vectors<T>(name: string): T[] {
  return JSON.parse(readFileSync(new URL(`../../../vectors/${name}`, import.meta.url), "utf8")) as T[];
}

export type Key = "test" | "live" | { text: string };

/** Returns the API key for which a vector's word stands. */
export function keyText(key: Key): string {
  return typeof key === "object" ? key.text : `sk_${key}_${"k".repeat(32)}`;
}

/** Asserts that got has all members of want. Arrays have the same length. */
export function assertIncludes(got: unknown, want: unknown, path: string): void {
  if (typeof want !== "object" || want === null) {
    assert.deepEqual(got, want, path);
    return;
  }
  assert.ok(typeof got === "object" && got !== null, `${path} is ${JSON.stringify(got)}`);
  if (Array.isArray(want)) {
    assert.equal((got as unknown[]).length, want.length, `length of ${path}`);
  }
  for (const [name, value] of Object.entries(want)) {
    assertIncludes((got as Record<string, unknown>)[name], value, `${path}.${name}`);
  }
}

/** Collects all values, also in seen, which has them even if the source fails. */
export async function collect<T>(source: AsyncIterable<T>, seen: unknown[] = []): Promise<T[]> {
  const all: T[] = [];
  for await (const value of source) {
    all.push(value);
    seen.push(value);
  }
  return all;
}
