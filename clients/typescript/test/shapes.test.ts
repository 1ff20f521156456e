import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import * as client from "../src/index.js";
import * as methods from "./methods.js";
import { keyText } from "./vectors.js";

interface Shape {
  operations: string[];
  records: Record<string, string[]>;
  enums: Record<string, string[]>;
}

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");
const shapes = JSON.parse(read("../vectors/shapes.json")) as Record<"helpdesk" | "fleet", Shape>;
const options = { key: keyText("live"), baseUrl: "https://kickstand.example" };
const clients = { helpdesk: new client.Helpdesk(options), fleet: new client.Fleet(options) };

const pascal = (name: string) => name.replace(/(?:^|_)(\w)/g, (_, letter: string) => letter.toUpperCase());

// Types are gone at run time, so their members are read from the source.
for (const name of ["helpdesk", "fleet"] as const) {
  const source = read(`src/${name}.ts`);

  test(`${name}: has all operations of the last release`, () => {
    const groups = clients[name] as unknown as Record<string, Record<string, unknown>>;
    for (const operation of shapes[name].operations) {
      const [group, method] = methods[name][operation] ?? assert.fail(`no operation ${operation}`);
      assert.equal(typeof groups[group]?.[method], "function", `${group}.${method}`);
    }
  });

  test(`${name}: has all members of the last release`, () => {
    for (const [record, members] of Object.entries(shapes[name].records)) {
      const body = new RegExp(`^export interface ${pascal(record)} {\\n([^]*?)^}`, "m").exec(source)?.[1] ?? "";
      const got = Array.from(body.matchAll(/^ {2}"?([^\s"?:]+)"?\??: /gm), (match) => match[1]);
      assert.deepEqual(
        members.filter((member) => !got.includes(member)),
        [],
        `members of ${record}`,
      );
    }
  });

  test(`${name}: has all enum values of the last release`, () => {
    for (const [name_, values] of Object.entries(shapes[name].enums)) {
      const got = (client as unknown as Record<string, readonly string[]>)[pascal(name_)] ?? [];
      assert.deepEqual(
        values.filter((value) => !got.includes(value)),
        [],
        `values of ${name_}`,
      );
    }
  });
}
