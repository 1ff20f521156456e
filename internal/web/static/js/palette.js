// The command palette: records, pages and the actions of the page, each with its key. keys.js
// loads it on its first use.
const dialog = document.createElement("dialog");
dialog.className = "palette";
dialog.ariaLabel = "Search and commands";
dialog.innerHTML =
  '<input type="search" name="q" role="combobox" aria-expanded="true" aria-autocomplete="list" aria-controls="palette-list" aria-label="Search and commands" placeholder="Search or type a command" maxlength="200" autocomplete="off"><ul id="palette-list" role="listbox" aria-label="Results"></ul>';
const [field, list] = dialog.children;
let commands = [];
let request;

// All actions of the page and all links of its navigation.
function collect() {
  const seen = new Set();
  const out = [];
  const add = (label, key, run) => {
    label = label?.trim().replace(/\s+/g, " ");
    if (!label || seen.has(label)) return;
    seen.add(label);
    out.push({ label, key, run });
  };
  for (const e of document.querySelectorAll("[data-hotkey]")) {
    if (!e.matches("i")) add(e.dataset.hotkeyLabel ?? e.getAttribute("aria-label") ?? e.textContent, e.dataset.hotkey, () => (e.matches("input:not([type=checkbox], [type=radio]), textarea, select") ? e.focus() : e.click()));
  }
  for (const a of document.querySelectorAll("nav a[href]")) add("Go to " + (a.getAttribute("aria-label") ?? a.textContent), "", () => a.click());
  return out;
}

const fold = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

function option(content, key, run) {
  const item = document.createElement("li");
  item.role = "option";
  item.id = "palette-" + list.children.length;
  item.append(...content);
  if (key) item.append(Object.assign(document.createElement("kbd"), { textContent: key }));
  item.onclick = () => {
    dialog.close();
    run();
  };
  list.append(item);
}

function choose(item) {
  list.querySelector("[aria-selected=true]")?.removeAttribute("aria-selected");
  item?.setAttribute("aria-selected", "true");
  item?.scrollIntoView({ block: "nearest" });
  field.setAttribute("aria-activedescendant", item?.id ?? "");
}

function show() {
  const words = fold(field.value).split(/\s+/).filter(Boolean);
  list.replaceChildren();
  for (const c of commands) if (words.every((w) => fold(c.label).includes(w))) option([c.label], c.key, c.run);
  choose(list.firstElementChild);
}

function append(found) {
  for (const li of found) {
    const link = li.querySelector("a");
    if (link) option([...li.childNodes].map((n) => (n === link ? link.firstElementChild.cloneNode(true) : n.cloneNode(true))), "", () => location.assign(link.href));
  }
  if (!list.querySelector("[aria-selected=true]")) choose(list.firstElementChild);
}

async function update() {
  request?.abort();
  request = new AbortController();
  const text = field.value.trim();
  if (text.length < 2) return;
  try {
    const response = await fetch("/search?q=" + encodeURIComponent(text), { signal: request.signal, headers: { "X-Live": "1" } });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    append(page.querySelectorAll("#results li"));
  } catch {} // replaced by a later one, or offline
}

let timer;
field.oninput = () => {
  request?.abort();
  show();
  clearTimeout(timer);
  timer = setTimeout(update, 120);
};
field.onkeydown = (event) => {
  if (event.isComposing) return;
  const now = list.querySelector("[aria-selected=true]");
  const to = { ArrowDown: now?.nextElementSibling ?? list.firstElementChild, ArrowUp: now?.previousElementSibling ?? list.lastElementChild }[event.key];
  if (event.key === "Enter") now?.click();
  if (!to && event.key !== "Enter") return;
  event.preventDefault();
  if (to) choose(to);
};
dialog.onclick = (event) => event.target === dialog && dialog.close();
document.body.append(dialog);

export function open() {
  commands = collect();
  field.value = "";
  request?.abort();
  show();
  dialog.showModal();
}
