// Creates KICKSTAND_COUNT tickets, one after another, while the server is killed and started again.
import { Helpdesk } from "@kickstand/client";

const helpdesk = new Helpdesk({
  maxRetries: 30,
  clock: {
    now: () => Date.now(),
    sleep: (milliseconds) => new Promise((resolve) => setTimeout(resolve, Math.min(milliseconds, 200))),
  },
});
for (let i = 0; i < Number(process.env["KICKSTAND_COUNT"] ?? "200"); i++) {
  const ticket = await helpdesk.tickets.create({ subject: `record ${i}`, customer: { email: "ada@example.com" } });
  console.log(ticket.id);
}
