// Live updates of elements with data-live="ticket ticket:ID". The server streams
// topics; an element with one of them is fetched again and morphed: input, selection
// and focus stay, and new nodes get the class "arrived".
//
// One tab of a browser has the stream and broadcasts to the others, since browsers
// limit connections per host. The mark identifies the last event before the page was
// rendered or the stream was interrupted; a different mark means missed events.
const shared = new BroadcastChannel("kickstand-live");
let mark = document.body.dataset.liveMark;
let leads = false;
let source;

shared.onmessage = ({ data }) => {
  // Missed events concern this tab only.
  if (data.topics && (!data.to || data.to === mark)) heard(data.topics);
  if (data.mark && leads && data.mark !== mark) shared.postMessage({ topics: ["*"], to: data.mark });
};

async function stream() {
  leads = true;
  do await listen();
  while (await mayReturn());
  leads = false;
}

// Resolves when the browser closes the stream, as after a refusal.
function listen() {
  source = new EventSource("/live?since=" + encodeURIComponent(mark));
  source.onmessage = (event) => {
    mark = event.lastEventId;
    const topics = event.data.split("\n");
    shared.postMessage({ topics });
    heard(topics);
  };
  return new Promise((done) => {
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) done();
    };
  });
}

// The server ends the stream with the session, before the next page is there.
document.addEventListener("submit", ({ target }) => {
  if (target.getAttribute("action") === "/sign-out") source?.close();
});

// Retry after a pause if the limit is reached or the server is unavailable, but not
// after the session has ended.
async function mayReturn() {
  const answer = await fetch("/live", { method: "HEAD" }).catch(() => null);
  if (answer && answer.status !== 200 && answer.status !== 429 && answer.status < 500) return false;
  const seconds = Number(answer?.headers.get("Retry-After")) || 30;
  await new Promise((done) => setTimeout(done, seconds * (1 + Math.random()) * 1000));
  return true;
}

if (mark && document.querySelector("[data-live]")) {
  shared.postMessage({ mark });
  navigator.locks?.request("kickstand-live", stream);
}

let waiting = new Set();
let timer = 0;
let last = 0;
let pause = 0; // seconds before the next attempt

export function heard(topics) {
  const { title } = document;
  if (topics.includes(document.getElementById("notices")?.dataset.live)) import("./notices.js").then((m) => m.announce(title));
  for (const topic of topics) {
    waiting.add(topic);
    // "kind:*" matches any topic of a kind.
    if (topic.includes(":")) waiting.add(topic.slice(0, topic.indexOf(":")));
  }
  soon();
}

// Immediately, but at most once a second.
function soon(wait = Math.max(50, last + 1000 - Date.now())) {
  if (waiting.size && !timer && !document.hidden) timer = setTimeout(update, wait);
}
document.addEventListener("visibilitychange", () => soon());

async function update() {
  last = Date.now();
  const topics = waiting;
  waiting = new Set();
  const parts = [...document.querySelectorAll("[data-live][id]")].filter(
    (e) => topics.has("*") || e.dataset.live.split(" ").some((t) => topics.has(t) || topics.has(t.split(":")[0] + ":*")),
  );
  let wait = 0;
  try {
    if (parts.length) wait = await renew(parts);
    if (!wait) topics.clear();
  } finally {
    timer = 0;
    pause = topics.size && Math.min(60, pause * 2 || 5);
    for (const topic of topics) waiting.add(topic);
    soon(topics.size ? Math.max(wait, pause) * 1000 * (1 + Math.random()) : undefined);
  }
}

// renew fetches the page again and updates these elements, after earlier calls: an older answer never
// comes last. The result is 0, or the seconds after which the server may answer.
let renewal = Promise.resolve();
export let updates = 0;
export function renew(parts) {
  const turn = () => replace(parts);
  return (renewal = renewal.then(turn, turn));
}

async function replace(parts) {
  const { href } = location;
  // A connection that died would hold back all updates.
  const response = await fetch(href, { headers: { "X-Live": "1" }, signal: AbortSignal.timeout(30000) }).catch(() => null);
  if (!response || response.status === 429 || response.status >= 500) return Math.min(60, Number(response?.headers.get("Retry-After")) || 1);
  if (!response.ok || response.redirected) return 0;
  const text = await response.text().catch(() => "");
  if (!text) return 1;
  if (href !== location.href) return replace(parts); // another view by now
  const page = new DOMParser().parseFromString(text, "text/html");
  document.dispatchEvent(new CustomEvent("kickstand:changing"));
  if (page.body.dataset.now) document.body.dataset.now = page.body.dataset.now;
  for (const { id } of parts) {
    const [old, now] = [document, page].map((d) => d.getElementById(id));
    if (old && now) morph(old, now);
  }
  document.title = page.title;
  updates++;
  document.dispatchEvent(new CustomEvent("kickstand:changed"));
  return 0;
}

// morph changes an element to equal another, and reuses equal nodes.
export function morph(old, now) {
  if (old.isEqualNode(now) || old.hasAttribute("data-preserve")) return;
  for (const { name } of [...old.attributes]) if (!now.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.matches("textarea, select, input")) return; // what it says is the reader's
  const byID = new Map([...old.children].filter((c) => c.id).map((c) => [c.id, c]));
  let at = old.firstChild;
  for (const fresh of [...now.childNodes]) {
    const same = fresh.id ? byID.get(fresh.id) : at && !at.id && at.nodeType === fresh.nodeType && at.nodeName === fresh.nodeName ? at : null;
    if (!same) {
      const added = document.importNode(fresh, true);
      if (added.id) added.classList.add("arrived");
      old.insertBefore(added, at);
      continue;
    }
    if (same === at) at = at.nextSibling;
    else old.insertBefore(same, at);
    if (same.nodeType === Node.ELEMENT_NODE) morph(same, fresh);
    else if (same.data !== fresh.data) same.data = fresh.data;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}
