// A ticket's page: saves drafts, submits without a page load, sizes HTML mails, and
// reports presence.
import { morph } from "./live.js";
import { carry, leave, toast } from "./toast.js";

const ticket = document.querySelector(".ticket");
const composer = document.getElementById("composer");
const read = async (response) => new DOMParser().parseFromString(await response.text(), "text/html");

// put applies a response to the page.
function put(page) {
  for (const part of document.querySelectorAll("[data-live][id]")) {
    const now = page.getElementById(part.id);
    if (now) morph(part, now);
  }
  for (const said of page.querySelectorAll("#toasts > .toast")) {
    const box = document.importNode(said, true);
    document.getElementById("toasts").append(box);
    leave(box);
  }
  document.dispatchEvent(new CustomEvent("kickstand:changed"));
}

const ours = (response) => response.redirected && response.ok && new URL(response.url).pathname === location.pathname;

// Submit properties and undo in place.
document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (event.defaultPrevented || form.method !== "post" || !form.matches(".ticket [data-quiet], .toast form")) return;
  event.preventDefault();
  try {
    const response = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form, event.submitter)) });
    if (!ours(response) && response.status !== 422) {
      location.assign(response.redirected ? response.url : location.href);
      return;
    }
    const page = await read(response);
    const focus = document.activeElement?.id; // where it is by now
    form.closest(".toast")?.remove();
    put(page);
    if (form.action.includes("/pending/")) undo(page.querySelector("#composer [name=reply]")?.value);
    if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
  } catch {
    toast("Not saved: the server is unreachable. Try again.", { bad: true });
  }
});

if (composer) compose();

// undo puts the text of an undone reply before what was written since. draft has both, as far as the
// latter was saved.
function undo(draft) {
  if (!draft || !composer) return;
  const { reply } = composer.elements;
  const later = "\n\n" + reply.value;
  reply.value = !reply.value || draft.endsWith(later) ? draft : draft + later;
  reply.dispatchEvent(new Event("input", { bubbles: true }));
}

function compose() {
  const field = () => composer.elements[composer.elements.kind.value];
  const files = composer.elements.files;
  const wrong = composer.querySelector("[data-wrong]");
  const draftState = composer.querySelector("[data-draft-state]");
  const refuse = (text) => {
    wrong.textContent = text;
    wrong.hidden = !text;
  };

  composer.querySelectorAll(".kinds label").forEach((label) => label.addEventListener("click", () => requestAnimationFrame(() => field().focus())));
  composer.addEventListener("change", (event) => event.target.name === "kind" && field().focus());

  // Drafts.
  let timer = 0;
  let saved = composer.elements.reply.value + "\0" + composer.elements.note.value;
  let sending = false;
  let keeping = Promise.resolve();
  const keep = (last) => (keeping = keepNow(last));
  async function keepNow(last) {
    clearTimeout(timer);
    timer = 0;
    const now = composer.elements.reply.value + "\0" + composer.elements.note.value;
    if (now === saved || sending) return;
    const form = new FormData(composer);
    form.delete("files");
    form.set("do", "draft");
    const response = await fetch(composer.action, { method: "POST", body: form, headers: { "X-Draft": "1" }, keepalive: last && now.length < 20000 }).catch(() => null);
    if (response?.ok) saved = now;
    draftState.textContent = response?.ok ? "Draft saved" : "Draft not saved yet";
    if (!response?.ok && !last) timer ||= setTimeout(keep, 10000);
  }
  composer.addEventListener("input", (event) => {
    if (!event.target.matches("textarea")) return;
    if (composer.querySelector("[data-most][name]")) import("./limits.js").then((m) => m.count(composer, draftState));
    if (!writing) here("writing");
    timer ||= setTimeout(keep, 1500);
  });
  addEventListener("pagehide", () => keep(true));

  // Macros.
  let macrosReady = false;
  const macros = () => import("./macros.js").then((m) => (m.setup(composer), (macrosReady = true)));
  composer.querySelector("[value=macros]").addEventListener("click", (event) => {
    if (macrosReady) return;
    event.preventDefault();
    macros().then(() => event.target.click());
  });
  for (const type of ["focusin", "pointerover"]) composer.addEventListener(type, macros, { once: true });

  // Add files by selection, drop and paste.
  let attached;
  const add = async (more, pasted) => {
    attached ??= (await import("./files.js")).setup(composer, refuse);
    attached.add(more, pasted);
  };
  files.addEventListener("change", () => add([...files.files]));
  composer.addEventListener("paste", (event) => {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    add([...event.clipboardData.files], true);
  });
  const over = (is) => (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    composer.classList.toggle("over", is);
    if (event.type === "drop") add([...event.dataTransfer.files]);
  };
  ticket.addEventListener("dragover", over(true));
  ticket.addEventListener("dragleave", over(false));
  ticket.addEventListener("drop", over(false));

  // The newest message when the user began to write.
  const { seen, reply } = composer.elements;
  const see = () => reply.value || (seen.value = document.getElementById("thread").dataset.newest);
  document.addEventListener("kickstand:changed", see);

  const preview = composer.querySelector("[formtarget]");
  let previews;
  preview.addEventListener("click", (event) => {
    if (previews) return;
    event.preventDefault();
    import("./preview.js").then((m) => (m.setup(composer, preview), (previews = true), preview.click()));
  });

  composer.addEventListener("submit", async (event) => {
    if (event.submitter === preview) return;
    event.preventDefault();
    if (sending) return;
    sending = true;
    refuse("");
    composer.setAttribute("aria-busy", "true");
    const area = field();
    const text = area.value;
    const body = new FormData(composer, event.submitter);
    // Shortcuts apply to the ticket from here on.
    const scroll = document.querySelector(".scroll");
    scroll.focus({ preventScroll: true });
    let back = true;
    // A pending save would restore the draft of the sent reply.
    await keeping;
    try {
      const response = await fetch(composer.action, { method: "POST", body });
      const page = await read(response);
      const again = page.getElementById("composer");
      if (again) composer.elements.once.value = again.elements.once.value;
      if (ours(response)) {
        back = false;
        if (area.value.startsWith(text)) area.value = area.value.slice(text.length);
        saved = composer.elements.reply.value + "\0" + composer.elements.note.value;
        attached?.clear();
        composer.querySelectorAll("[name^=bcc]").forEach((blind) => (blind.value = ""));
        draftState.textContent = "";
        composer.querySelector("[data-macro]")?.remove();
        put(page);
        see();
        here("open");
        scroll.scrollTop = 0;
      } else if (response.status === 409 && again) {
        back = false;
        put(page);
        seen.value = again.elements.seen.value;
        const { ask } = await import("./ask.js");
        ask(again.querySelector("[data-crossed] b").textContent, (send) => (send ? composer.requestSubmit(event.submitter) : field().focus()));
      } else if (response.status === 422 && again) {
        put(page);
        seen.value = again.elements.seen.value;
        // The files are still attached here, unlike on the returned page.
        refuse(again.querySelector("[data-wrong]").textContent.replace(" Attach the files again.", ""));
      } else if (response.redirected && /^\/(tickets|inbox)/.test(new URL(response.url).pathname)) {
        saved = reply.value + "\0" + composer.elements.note.value; // sent, no draft
        carry(page);
        location.assign(response.url);
      } else {
        refuse(page.querySelector("main")?.textContent.trim().replace(/\s+/g, " ").slice(0, 300) || "Refused. Nothing was sent.");
      }
    } catch {
      refuse("Not sent: the server is unreachable. Your text is still here.");
    }
    composer.removeAttribute("aria-busy");
    sending = false;
    if (back) field().focus();
  });
}

document.addEventListener("click", ({ target }) => {
  const link = target.closest("[data-pictures]");
  if (!link) return;
  document.getElementsByName(link.target)[0].focus();
  link.parentElement.hidden = true;
});

// Size HTML mails to their content, up to a limit.
function fit(frame) {
  const page = frame.contentDocument?.documentElement;
  if (page?.scrollHeight) frame.style.height = Math.min(Math.max(page.querySelector("body")?.scrollHeight ?? 0, 24) + 2, 1200) + "px";
}
const watched = new WeakSet();
function watch() {
  for (const frame of document.querySelectorAll("iframe.mail")) {
    if (watched.has(frame)) continue;
    watched.add(frame);
    const ready = () => {
      fit(frame);
      const body = frame.contentDocument?.body;
      if (body) new ResizeObserver(() => fit(frame)).observe(body);
    };
    frame.addEventListener("load", ready);
    if (frame.contentDocument?.readyState === "complete") ready();
  }
}
watch();
document.addEventListener("kickstand:changed", watch);

// Presence: a heartbeat while the page is visible.
var writing = false;
function here(state) {
  if (!ticket) return;
  writing = state === "writing";
  fetch(ticket.dataset.here, { method: "POST", body: new URLSearchParams({ state, note: document.activeElement?.name === "note" ? 1 : "" }), keepalive: true }).catch(() => {});
}
here("open");
setInterval(() => document.hidden || here(composer?.contains(document.activeElement) && writing ? "writing" : "open"), 20000);
composer?.addEventListener("focusout", (event) => writing && !composer.contains(event.relatedTarget) && here("open"));
addEventListener("pagehide", () => here("gone"));
