// Does with the library all that docs/api/README.md and docs/api/fleet.md do with curl, against a
// running demo: KICKSTAND_URL, KICKSTAND_KEY and KICKSTAND_FLEET_KEY, a key of the sandbox.
import assert from "node:assert/strict";

import { type AnswerInfo, attachment, Fleet, Helpdesk, ProblemError } from "@kickstand/client";

async function step(name: string, run: () => Promise<void>): Promise<void> {
  await run();
  console.log(name);
}

async function refused(call: Promise<unknown>): Promise<ProblemError> {
  const error = await call.then(
    () => assert.fail("the call must be refused"),
    (e: unknown) => e,
  );
  assert.ok(error instanceof ProblemError, String(error));
  return error;
}

const helpdesk = new Helpdesk();
let answer: AnswerInfo | undefined;
const onResponse = (a: AnswerInfo) => {
  answer = a;
};

const created = await helpdesk.tickets.create({
  subject: "The lock does not open",
  text: "It beeps twice.",
  tags: ["walk"],
  customer: { name: "Ada", email: "ada@example.com" },
});

await step("create a ticket", async () => {
  assert.equal(created.status, "open");
  assert.equal(created.customer.email, "ada@example.com");
});

await step("list all wrong fields", async () => {
  const body = { subjct: "typo", priority: "asap" } as never;
  const error = await refused(helpdesk.tickets.create(body));
  assert.equal(error.code, "validation_failed");
  assert.deepEqual(
    error.errors.map((e) => `${e.pointer} ${e.code}`),
    ["#/subjct unknown_field", "#/priority invalid_value", "#/subject required"],
  );
  assert.notEqual(error.requestId, "");
});

await step("list with filters", async () => {
  const page = await helpdesk.tickets.list({
    tags: ["walk"],
    status: ["open", "pending"],
    created_at_gte: new Date("2026-01-01T00:00:00Z"),
    sort: "-created_at",
    limit: 1,
    expand: ["customer"],
  });
  assert.equal(page.data[0]?.id, created.id);
  assert.equal(page.data[0]?.customer.email, "ada@example.com");
});

await step("list over several pages", async () => {
  const ids = new Set<string>();
  for await (const ticket of helpdesk.tickets.list({ limit: 3 })) {
    ids.add(ticket.id);
  }
  assert.ok(ids.size > 6 && ids.has(created.id));
});

await step("export as CSV and NDJSON", async () => {
  let csv = "";
  for await (const text of helpdesk.tickets.exportCsv({ tags: ["walk"] })) {
    csv += text;
  }
  assert.match(csv, /subject,status,priority/);
  for await (const ticket of helpdesk.tickets.export({ tags: ["walk"] })) {
    assert.ok(ticket.tags.includes("walk"));
  }
});

await step("change a record", async () => {
  const changed = await helpdesk.tickets.update(created.id, { priority: "high", metadata: { order: "1042" } });
  assert.equal(changed.priority, "high");
  assert.deepEqual(changed.metadata, { order: "1042" });
  const error = await refused(helpdesk.tickets.update(created.id, { priority: "low" }, { ifMatch: '"an older one"' }));
  assert.equal(error.code, "precondition_failed");
  const modified = await helpdesk.tickets.modify(created.id, ({ tags }) => ({ tags: [...tags, "lock"] }));
  assert.deepEqual(modified.tags, ["walk", "lock"]);
});

await step("read a record that is unchanged", async () => {
  await helpdesk.tickets.get(created.id, {}, { onResponse });
  const ifNoneMatch = answer?.etag ?? assert.fail("no ETag");
  assert.equal(await helpdesk.tickets.get(created.id, {}, { ifNoneMatch }), null);
});

await step("repeat a write", async () => {
  const idempotencyKey = crypto.randomUUID();
  const note = { kind: "note", text: "A stone was in the lock." } as const;
  const first = await helpdesk.messages.create(created.id, note, { idempotencyKey });
  const again = await helpdesk.messages.create(created.id, note, { idempotencyKey, onResponse });
  assert.equal(again.id, first.id);
  assert.equal(answer?.replayed, true);
  const other = helpdesk.messages.create(created.id, { ...note, text: "Another" }, { idempotencyKey });
  assert.equal((await refused(other)).code, "idempotency_key_reused");
});

await step("read the limit", async () => {
  await helpdesk.apiKey.get({ onResponse });
  assert.ok((answer?.rateLimit?.limit ?? 0) > (answer?.rateLimit?.remaining ?? 0));
});

await step("reply, and read a file", async () => {
  const file = attachment(new TextEncoder().encode("from the walk"), "walk.txt", "text/plain");
  const reply = await helpdesk.messages.create(created.id, {
    kind: "reply",
    text: "It is repaired.",
    attachments: [file],
  });
  assert.equal(reply.delivery, null);
  const id = reply.attachments[0]?.id ?? assert.fail("no attachment");
  const chunks: Uint8Array[] = [];
  for await (const chunk of helpdesk.messages.getAttachment(id)) {
    chunks.push(chunk);
  }
  assert.equal(Buffer.concat(chunks).toString(), "from the walk");
});

const fleet = new Fleet({ key: process.env["KICKSTAND_FLEET_KEY"] });
const began = new Date();
const later = (seconds: number) => new Date(began.getTime() + seconds * 1000);

await step("reset the sandbox", () => fleet.sandbox.reset());

await step("find vehicles", async () => {
  const missing = await fleet.vehicles.list({ state: ["missing"], sort: "code" });
  assert.deepEqual(
    missing.data.map((v) => v.code),
    ["B-0114", "F-0108"],
  );
  const near = await fleet.vehicles.list({
    lat: 52.52,
    lng: 13.41,
    radius_meters: 10000,
    state: ["available"],
    limit: 1,
  });
  assert.equal(near.data[0]?.state, "available");
});

const like = (await fleet.vehicles.list({ code: ["B-0101"] })).data[0] ?? assert.fail("no vehicle B-0101");
const city = like.subaccount_id;
const vehicle = await fleet.vehicles.create({
  subaccount_id: city,
  code: "TRIAL-1",
  vehicle_type_id: like.vehicle_type_id,
  state: "available",
  battery_percent: 80,
  odometer_meters: 0,
  location: { lat: 52.5219, lng: 13.4132 },
});

await step("create a vehicle", async () => {
  assert.equal(vehicle.state, "available");
});

let rider = "";
for await (const customer of fleet.customers.export({ subaccount_id: [city], status: ["active"] })) {
  if (customer.open_ride_id === null) {
    rider = customer.id;
    break;
  }
}
const start = { customer_id: rider, vehicle_code: "TRIAL-1" };

await step("start a ride, once", async () => {
  const idempotencyKey = crypto.randomUUID();
  const ride = await fleet.rides.create(start, { idempotencyKey });
  assert.equal((await fleet.rides.create(start, { idempotencyKey })).id, ride.id);
  assert.equal((await refused(fleet.rides.create(start))).code, "vehicle_unavailable");
});

await step("end it outside and inside of the zones", async () => {
  await fleet.sandbox.updateClock({ now: later(630) });
  const [ride] = (await fleet.rides.list({ vehicle_id: [vehicle.id] })).data;
  const id = ride?.id ?? assert.fail("no ride");
  const park = { status: "completed", end_location: { lat: 52.515, lng: 13.355 } } as const;
  const error = await refused(fleet.rides.update(id, park));
  assert.equal(error.code, "out_of_zone_fee_required");
  assert.equal(error.members["out_of_zone_amount"], 1500);
  const ended = await fleet.rides.update(id, {
    ...park,
    end_location: { lat: 52.5251, lng: 13.3694 },
    distance_meters: 1850,
  });
  assert.equal(ended.price?.total_amount, 375);
});

await step("let a reservation expire", async () => {
  const { id } = await fleet.rides.create({ ...start, status: "reserved" });
  await fleet.sandbox.updateClock({ now: later(4200) });
  const ride = await fleet.rides.get(id);
  assert.equal(ride.cancel_reason, "reservation_expired");
  assert.equal(ride.price?.total_amount, 150);
  assert.equal((await fleet.vehicles.get(vehicle.id)).last_event, "comms_lost");
});

await step("read the revenue", async () => {
  const revenue = await fleet.analytics.revenue({
    from: began.toISOString(),
    to: later(9000).toISOString(),
    granularity: "total",
  });
  assert.equal(revenue.totals.find((t) => t.currency === "EUR")?.total_amount, 675);
});

await step("export and import", async () => {
  const statuses: string[] = [];
  for await (const ride of fleet.rides.export({ vehicle_id: [vehicle.id], sort: "created_at" })) {
    statuses.push(ride.status);
  }
  assert.deepEqual(statuses, ["completed", "cancelled"]);
  const zones = fleet.zones.export() as AsyncIterable<never>;
  const summary = await fleet.zones.import(zones, { on_conflict: "update" }).finish();
  assert.equal(summary.unchanged, 8);
});
