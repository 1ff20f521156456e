// Runs in Node.js, Deno and Bun against the server in package.test.ts.
import { Fleet, Helpdesk, webhooks } from "../dist/esm/index.js";
import { sign } from "../dist/esm/testing.js";

const options = { key: `sk_test_${"k".repeat(32)}`, baseUrl: process.env.KICKSTAND_URL };
const helpdesk = new Helpdesk(options);
const subjects = [];
for await (const ticket of helpdesk.tickets.list({ status: ["open"] })) {
  subjects.push(ticket.subject);
}
async function* records() {
  yield { code: "A" };
  yield { code: "B" };
}
const run = new Fleet(options).vehicles.import(records());
const lines = [];
for await (const line of run) {
  lines.push(line.id);
}
const error = await helpdesk.apiKey.get({ maxRetries: 0 }).catch((e) => e);
const body = JSON.stringify({ id: "1", event: "ticket.created", data: {} });
const event = await webhooks.verify(body, await sign(body, "a secret of the test"), "a secret of the test");
console.log(JSON.stringify([subjects, lines, run.summary, error.name, error.status, event.event]));
