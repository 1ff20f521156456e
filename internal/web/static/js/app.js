// On every page of the dashboard. All pages work without it.
import "./times.js";
import "./keys.js";
import "./live.js";
import { toast } from "./toast.js";

const on = (type, selector, handle) =>
  document.addEventListener(type, (event) => {
    const target = event.target.closest?.(selector);
    if (target) handle(event, target);
  });

// Reveal the buttons that need scripts.
const reveal = (root) => root.querySelectorAll("[data-copy][hidden]").forEach((b) => (b.hidden = false));
reveal(document);
document.addEventListener("kickstand:changed", () => reveal(document));

on("click", "[data-copy]", async (_, button) => {
  const text = button.previousElementSibling.textContent;
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied.");
  } catch {
    getSelection().selectAllChildren(button.previousElementSibling);
    toast("Text selected. Copy it with the keyboard.");
  }
});

// Scroll the current item of horizontal navigation into view.
document.querySelector(".under [aria-current=page]")?.scrollIntoView({ block: "nearest", inline: "center" });

// Dialogs load on first use.
on("click", "a[data-dialog]", async (event, link) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  try {
    await (await import("./dialogs.js")).show(link.href);
  } catch {
    location.href = link.href;
  }
});

on("change", "[data-submit]", (_, field) => field.form.requestSubmit());

on("keydown", "[data-send]", (event, form) => {
  if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) {
    event.preventDefault();
    form.requestSubmit(form.querySelector(`button[data-sends${event.shiftKey ? "-next" : ""}]`) ?? undefined);
  }
});

// Submit a form once.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post" || event.defaultPrevented) return;
  if (form.dataset.sending) {
    event.preventDefault();
    return;
  }
  form.dataset.sending = "1";
});
// A page restored from the history may submit again.
addEventListener("pageshow", () => document.querySelectorAll("[data-sending]").forEach((f) => delete f.dataset.sending));
