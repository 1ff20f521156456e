// Shortcuts: a key activates the element with data-hotkey="r", or fires
// "kickstand:key". "?" lists the page's shortcuts by data-hotkey-label.
const typing = (e) => e.closest("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && typing(event.target) && !event.target.closest("dialog")) {
    event.target.blur();
    return;
  }
  if (event.key === "k" && (event.ctrlKey || event.metaKey) && !document.querySelector("dialog[open]")) {
    event.preventDefault();
    import("./palette.js").then((palette) => palette.open());
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || typing(event.target) || document.querySelector("dialog[open]")) return;
  if (event.key === "?") {
    event.preventDefault();
    list();
    return;
  }
  const taken = !document.dispatchEvent(new CustomEvent("kickstand:key", { detail: event.key, cancelable: true }));
  if (taken) {
    event.preventDefault();
    return;
  }
  const all = [...document.querySelectorAll(`[data-hotkey="${CSS.escape(event.key)}"]`)];
  // Including elements in a closed menu or drawer.
  const target = all.find((e) => e.checkVisibility()) ?? all.find((e) => e.closest("[popover]:not(:popover-open)"));
  if (!target) return;
  event.preventDefault();
  if (target.matches("input:not([type=checkbox]), textarea, select")) {
    if (!target.checkVisibility()) target.closest("[popover]").showPopover();
    target.focus();
    target.select?.();
  } else {
    target.click();
  }
});

function list() {
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
