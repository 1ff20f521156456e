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
    import("./shortcuts.js").then((shortcuts) => shortcuts.list());
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
