// What every page of the dashboard has. Without it all of them work: links are
// followed, forms are sent, and the page comes back.
import "./times.js";
import "./keys.js";
import "./dialogs.js";
import "./live.js";
import { toast } from "./toast.js";

const on = (type, selector, handle) =>
  document.addEventListener(type, (event) => {
    const target = event.target.closest?.(selector);
    if (target) handle(event, target);
  });

// Buttons that only a script can serve are hidden until there is one.
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
    toast("It is selected: copy it with the keyboard.");
  }
});

// Where places are side by side, the present one is in view.
document.querySelector(".under [aria-current=page]")?.scrollIntoView({ block: "nearest", inline: "center" });

on("change", "[data-submit]", (_, field) => field.form.requestSubmit());

on("keydown", "[data-send]", (event, form) => {
  if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) {
    event.preventDefault();
    form.requestSubmit(form.querySelector("button[data-sends]") ?? undefined);
  }
});

// A form is sent once, however often its button is pressed.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post" || event.defaultPrevented) return;
  if (form.dataset.sending) {
    event.preventDefault();
    return;
  }
  form.dataset.sending = "1";
});
// A page that comes back from the history may send again.
addEventListener("pageshow", () => document.querySelectorAll("[data-sending]").forEach((f) => delete f.dataset.sending));
