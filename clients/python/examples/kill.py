"""Creates KICKSTAND_COUNT tickets, one after another, while the server is killed and restarted."""

import os
import time

from kickstand import Helpdesk

client = Helpdesk(max_retries=30, sleep=lambda seconds: time.sleep(min(seconds, 0.2)))
for i in range(int(os.environ.get("KICKSTAND_COUNT", "200"))):
    ticket = client.tickets.create(subject=f"record {i}", customer={"email": "ada@example.com"})
    print(ticket.id, flush=True)
