// list shows the page's shortcuts as a dialog.
export function list() {
  if (document.querySelector("dialog[open]")) return;
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-labelledby", "keys-title");
  const title = Object.assign(document.createElement("h1"), { id: "keys-title", textContent: "Keyboard" });
  const keys = Object.assign(document.createElement("dl"), { className: "keys" });
  const seen = new Set();
  const add = (key, label) => {
    if (seen.has(key) || !label) return;
    seen.add(key);
    const dt = document.createElement("dt");
    dt.append(Object.assign(document.createElement("kbd"), { textContent: key }));
    keys.append(dt, Object.assign(document.createElement("dd"), { textContent: label }));
  };
  for (const e of document.querySelectorAll("[data-hotkey]")) {
    add(e.dataset.hotkey, e.dataset.hotkeyLabel ?? e.getAttribute("aria-label") ?? e.textContent.trim());
  }
  add("Ctrl K", "Search and commands");
  add("?", "Keyboard shortcuts");
  add("Esc", "Close, or leave a field");
  const close = document.createElement("form");
  close.method = "dialog";
  close.className = "actions";
  close.append(Object.assign(document.createElement("button"), { className: "plain", textContent: "Close" }));
  dialog.append(title, keys, close);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
