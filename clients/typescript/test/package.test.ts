import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createRequire } from "node:module";
import { text } from "node:stream/consumers";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const program = fileURLToPath(new URL("../../test/smoke.mjs", import.meta.url));

// Two pages of tickets, an import, and a redirect.
const server = createServer(async (request, response) => {
  const url = new URL(request.url ?? "", "http://localhost");
  const json = { "content-type": "application/json" };
  if (request.method === "POST") {
    const codes = (await text(request))
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line).code);
    const lines = codes.map((code, i) => ({ line: i + 1, status: 201, id: `veh_${code}` }));
    const answer = [...lines, { summary: { created: lines.length, failed: 0 } }];
    response.writeHead(200, { "content-type": "application/x-ndjson" });
    response.end(answer.map((line) => `${JSON.stringify(line)}\n`).join(""));
  } else if (url.pathname === "/api/v1/tickets") {
    const last = url.searchParams.get("cursor") === "c1";
    const data = [{ subject: last ? "Schloß" : "Lock" }];
    response.writeHead(200, json).end(JSON.stringify({ data, has_more: !last, next_cursor: last ? null : "c1" }));
  } else {
    response.writeHead(302, { location: "/api/v1/tickets" }).end();
  }
});
let url = "";
before(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
after(() => server.close());

const runtimes: [name: string, ...args: string[]][] = [
  ["node"],
  ["deno", "run", "--no-config", "--allow-net=127.0.0.1", "--allow-env"],
  ["bun", "run"],
];
for (const [name, ...args] of runtimes) {
  test(`works in ${name}`, async (t) => {
    if (
      !(await run(name, ["--version"]).then(
        () => true,
        () => false,
      ))
    ) {
      t.skip(`there is no ${name}`);
      return;
    }
    const { stdout } = await run(name, [...args, program], { env: { ...process.env, KICKSTAND_URL: url } });
    const want = [
      ["Lock", "Schloß"],
      ["veh_A", "veh_B"],
      { created: 2, failed: 0 },
      "ProblemError",
      302,
      "ticket.created",
    ];
    assert.deepEqual(JSON.parse(stdout), want);
  });
}

test("has the same names as an ES module and in CommonJS", async () => {
  const require = createRequire(import.meta.url);
  for (const name of ["@kickstand/client", "@kickstand/client/testing"]) {
    const module = (await import(name)) as object;
    const names = Object.keys(require(name) as object);
    assert.deepEqual(names.sort(), Object.keys(module).sort());
    assert.ok(names.length > 0);
  }
});
