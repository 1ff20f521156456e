import assert from "node:assert/strict";
import { test } from "node:test";

import { KickstandError, SignatureError, webhooks } from "../src/index.js";
import { sign } from "../src/testing.js";
import { assertIncludes, vectors } from "./vectors.js";

interface Vector {
  name: string;
  form: "a" | "b" | null;
  secrets: ({ text: string } | { whsec_base64_of: string })[];
  now: number;
  tolerance: number;
  headers: Record<string, string>;
  body: string;
  result?: unknown;
  error?: string;
}

for (const v of vectors<Vector>("signatures.json")) {
  test(v.name, async () => {
    const secrets = v.secrets.map((s) => ("text" in s ? s.text : `whsec_${btoa(s.whsec_base64_of)}`));
    const options = { now: new Date(v.now * 1000), tolerance: v.tolerance };
    for (const headers of [v.headers, new Headers(v.headers)]) {
      const verified = v.form
        ? webhooks.verifyBody(v.body, headers, secrets, v.form)
        : webhooks.verify(new TextEncoder().encode(v.body), headers, secrets, options);
      if (v.error === undefined) {
        assertIncludes(await verified, v.result, "event");
      } else {
        await assert.rejects(verified, (error) => error instanceof SignatureError && error.reason === v.error);
      }
    }
  });
}

test("signs deliveries for tests", async () => {
  const body = `{"id":"evt-1","event":"ticket.created","created_at":"2026-11-21T09:00:00.000Z","data":{}}`;
  const secret = `whsec_${btoa("a secret for this test only")}`;
  const at = new Date("2026-11-21T09:00:00.900Z");
  const headers = await sign(body, secret, { id: "evt-1", at });
  assert.equal((await webhooks.verify(body, headers, secret, { now: at })).event, "ticket.created");
  assert.equal((await webhooks.verifyBody(body, headers, secret, "b")).id, "evt-1");
  const flat = await sign(body, secret, { at, form: "a" });
  assert.equal((await webhooks.verifyBody(body, flat, secret, "a")).event, "ticket.created");
});

test("refuses a signed body that is no event", async () => {
  const secret = "a secret for this test only";
  for (const body of ["", "null", "[]", "{}", `{"event":5}`]) {
    const isRefused = (error: unknown) => error instanceof KickstandError && !(error instanceof SignatureError);
    await assert.rejects(webhooks.verify(body, await sign(body, secret), secret), isRefused, body);
  }
});

test("refuses an empty secret", async () => {
  const headers = await sign("{}", "a secret for this test only");
  for (const secrets of ["", [], ["a secret for this test only", ""]]) {
    await assert.rejects(webhooks.verify("{}", headers, secrets), TypeError);
  }
});
