import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { type FleetWebhookPayload, type WebhookPayload, webhooks } from "../src/index.js";
import { sign } from "../src/testing.js";
import { vectors } from "./vectors.js";

interface Vector {
  name: string;
  source: "helpdesk" | "fleet";
  record: string;
  body: WebhookPayload | FleetWebhookPayload;
}

const root = fileURLToPath(new URL("../../", import.meta.url));
const secret = "a secret of sixteen or more";
const all = vectors<Vector>("events.json");
const known = (source: Vector["source"]) => all.filter((v) => v.source === source && v.record !== "");

for (const v of all) {
  test(v.name, async () => {
    const body = JSON.stringify(v.body);
    const headers = await sign(body, secret);
    assert.deepEqual(await webhooks.verify<FleetWebhookPayload>(body, headers, secret), v.body);
    assert.deepEqual(await webhooks.verifyBody<"b", FleetWebhookPayload>(body, headers, secret, "b"), v.body);
  });
}

/**
 * Reads typed members of every event of the fleet: the id of its record, and one of its own. It does not
 * compile if an event is missing.
 */
function read(event: FleetWebhookPayload): [id: string, own: unknown] {
  switch (event.event) {
    case "ride.reserved":
    case "ride.started":
    case "ride.paused":
    case "ride.resumed":
    case "ride.completed":
    case "ride.cancelled":
    case "ride.updated":
    case "ride.price_adjusted":
    case "ride.payment_updated":
      return [event.data.ride.id, event.data.ride.price?.total_amount];
    case "vehicle.state_changed":
    case "vehicle.comms_lost":
    case "vehicle.comms_restored":
      return [event.data.vehicle.id, event.data.state_change?.battery_percent];
    case "vehicle.created":
    case "vehicle.updated":
    case "vehicle.deleted":
      return [event.data.vehicle.id, event.data.vehicle.code];
    case "zone.created":
    case "zone.updated":
    case "zone.deleted":
      return [event.data.zone.id, event.data.zone.type];
    case "customer.created":
    case "customer.updated":
    case "customer.blocked":
    case "customer.unblocked":
    case "customer.anonymised":
      return [event.data.customer.id, event.data.customer.status];
    case "alert.raised":
    case "alert.cleared":
      return [event.data.alert.id, event.data.alert.value];
    case "task.created":
    case "task.updated":
    case "task.overdue":
    case "task.done":
      return [event.data.task.id, event.data.task.checklist?.[0]?.text];
  }
}

test("narrows the events of the fleet", () => {
  for (const v of known("fleet")) {
    const [id, own] = read(v.body as FleetWebhookPayload);
    assert.equal(typeof id, "string", v.name);
    assert.equal(own !== undefined || !v.name.endsWith("with all members"), true, v.name);
  }
});

// Types are gone at run time, so the compiler reads the bodies, without the members that no version knows.
test("the events have the types of their sources", () => {
  const literal = (v: Vector) => JSON.stringify(v.body, (name, value) => (name === "added_later" ? undefined : value));
  const lines = (["helpdesk", "fleet"] as const).flatMap((source) => {
    const type = source === "fleet" ? "FleetWebhookPayload" : "WebhookPayload";
    return [`export const ${source}: kickstand.${type}[] = [`, ...known(source).map((v) => `${literal(v)},`), "];"];
  });
  const folder = mkdtempSync(join(root, "dist-test", "events-"));
  try {
    const file = join(folder, "events.ts");
    writeFileSync(file, [`import type * as kickstand from "@kickstand/client";`, ...lines, ""].join("\n"));
    const options = ["--strict", "--noEmit", "--exactOptionalPropertyTypes", "--target", "es2022", "--module", "nodenext"];
    execFileSync(join(root, "node_modules", ".bin", "tsc"), ["--ignoreConfig", ...options, "--types", "node", file], { cwd: root });
  } catch (error) {
    assert.fail(String((error as { stdout?: Buffer }).stdout ?? error));
  } finally {
    rmSync(folder, { recursive: true });
  }
});
