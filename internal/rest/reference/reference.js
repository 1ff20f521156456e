// The reference of a REST API: the language of samples, sandbox keys, copying and running.
// Without this module the page shows all samples of the first language, and runs nothing.

const languageKey = "reference.language";
const keysKey = "reference.keys";
const chosenKey = "reference.key";
const placeholder = /sk_test_…/g;

// The language stays the same from page to page.
const languages = [...document.querySelectorAll('input[name="language"]')];
const remembered = languages.find((l) => l.value === localStorage.getItem(languageKey));
if (remembered) remembered.checked = true;
for (const l of languages) l.addEventListener("change", () => localStorage.setItem(languageKey, l.value));

// Keys stay in this tab: they are in no address, cookie or request but to the sandbox.
const select = document.getElementById("key");
const storedKeys = () => JSON.parse(sessionStorage.getItem(keysKey) ?? "[]");
const currentKey = () => select?.value ?? "";

function showKeys() {
  const options = storedKeys().map((k) => new Option(`${k.name} …${k.key.slice(-8)}`, k.key));
  select.replaceChildren(new Option("None", ""), ...options);
  select.value = sessionStorage.getItem(chosenKey) ?? "";
  if (select.selectedIndex < 0) select.value = "";
  document.querySelector("[data-keys]").hidden = false;
  fillIn();
}

// fillIn puts the chosen key into the samples.
function fillIn() {
  for (const code of document.querySelectorAll(".code code")) {
    code.dataset.text ??= code.textContent;
    code.textContent = code.dataset.text.replace(placeholder, () => currentKey() || "sk_test_…");
  }
}

if (select) {
  showKeys();
  select.addEventListener("change", () => {
    sessionStorage.setItem(chosenKey, select.value);
    fillIn();
  });
  document.querySelector("[data-paste]").addEventListener("click", () => {
    const key = prompt("A sandbox key begins with sk_test_.")?.trim();
    if (!key) return;
    if (!/^sk_test_[0-9A-Za-z]+$/.test(key)) {
      alert("This is not a sandbox key. It must begin with sk_test_.");
      return;
    }
    const others = storedKeys().filter((k) => k.key !== key);
    sessionStorage.setItem(keysKey, JSON.stringify([...others, { name: "Pasted key", key }]));
    sessionStorage.setItem(chosenKey, key);
    showKeys();
  });
}

for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.closest(".code").querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}

// request returns the address and options of fetch for a form's values.
function request(form) {
  const values = new FormData(form);
  let path = form.dataset.path;
  for (const input of form.querySelectorAll("[data-in-path]")) {
    path = path.replace(`{${input.name}}`, () => encodeURIComponent(input.value));
  }
  const query = new URLSearchParams(values.get("?") ?? "");
  const headers = { Authorization: `Bearer ${currentKey()}` };
  const body = values.get("body");
  if (body !== null) headers["Content-Type"] = "application/json";
  const method = form.dataset.method;
  if (method !== "GET") headers["Idempotency-Key"] = crypto.randomUUID();
  return [path + (query.size ? `?${query}` : ""), { method, headers, body: body ?? undefined, credentials: "omit", redirect: "error" }];
}

async function run(form) {
  const output = form.querySelector("output");
  const pre = document.createElement("pre");
  pre.tabIndex = 0;
  if (!currentKey()) {
    output.replaceChildren("Choose a sandbox key at the top of the page first.");
    return;
  }
  const began = performance.now();
  const [address, options] = request(form);
  const response = await fetch(address, options).catch((err) => err);
  if (response instanceof Error) {
    output.replaceChildren(`No answer: ${response.message}`);
    return;
  }
  let text = await response.text();
  try {
    text = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // Not JSON: shown as it is.
  }
  const line = `${response.status} after ${Math.round(performance.now() - began)} ms, request ${response.headers.get("X-Request-Id") ?? "unknown"}`;
  pre.textContent = text.slice(0, 20000);
  output.replaceChildren(line, ...(text ? [pre] : []));
}

for (const form of document.querySelectorAll("form[data-run]")) {
  form.hidden = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button");
    button.disabled = true;
    await run(form);
    button.disabled = false;
  });
}

// "/" focuses the search, as in the dashboard.
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.closest("input, textarea, select")) return;
  event.preventDefault();
  document.querySelector("[data-search]")?.focus();
});
