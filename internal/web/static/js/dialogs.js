// A link with data-dialog opens the form of its page as a dialog. The response
// replaces the page; a refused form stays in the dialog.
export async function show(address) {
  const turn = ++asked;
  const form = await fetch(address, { headers }).then(pageOf).then(formOf).catch(() => null);
  if (turn !== asked) return; // another link opens a dialog by now
  if (!form) throw new Error("no form");
  open(form, address);
}

// This request must not consume the notice for the next page.
const headers = { "X-Live": "1" };
let asked = 0;

const pageOf = async (response) => new DOMParser().parseFromString(await response.text(), "text/html");

function formOf(page) {
  const form = page.querySelector("main form:not([data-elsewhere])");
  if (form && !form.querySelector("h1")) form.prepend(page.querySelector("h1"));
  return form;
}

function open(form, address) {
  const dialog = document.createElement("dialog");
  const show = (form) => {
    form.querySelector("h1")?.setAttribute("id", "dialog-title");
    dialog.setAttribute("aria-labelledby", "dialog-title");
    if (!form.getAttribute("action")) form.action = address;
    dialog.replaceChildren(document.importNode(form, true));
    dialog.querySelector("[autofocus]")?.focus();
    if (dialog.querySelector("[data-passkey]")) import("./passkeys.js").then((m) => m.setup(dialog));
  };
  show(form);
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
    if (event.target.closest("[data-cancel]")) {
      event.preventDefault();
      dialog.close();
    }
  });
  dialog.addEventListener("submit", async (event) => {
    const form = event.target;
    if (form.method !== "post") return;
    event.preventDefault();
    if (form.dataset.sending) return;
    form.dataset.sending = "1";
    const body = form.enctype === "multipart/form-data" ? new FormData(form, event.submitter) : new URLSearchParams(new FormData(form, event.submitter));
    const response = await fetch(form.action, { method: "POST", body, headers }).catch(() => null);
    if (!response?.redirected) delete form.dataset.sending; // else the next page is on its way
    if (response?.redirected) {
      response.url === location.href ? location.reload() : location.assign(response.url);
      return;
    }
    const page = response && (await pageOf(response).catch(() => null));
    const again = (response?.status === 422 || response?.status === 429) && page && formOf(page);
    const main = page?.querySelector("main");
    if (again) {
      show(again);
    } else if (main) {
      // The response is another page.
      main.querySelector("h1")?.setAttribute("id", "dialog-title");
      dialog.replaceChildren(...main.childNodes);
    } else {
      form.querySelector(".error.lost")?.remove();
      const lost = Object.assign(document.createElement("p"), { className: "error lost", textContent: response ? "The server did not finish. Look whether the change was saved before you try again." : "The server is unreachable; the change was probably not saved. Try again." });
      lost.setAttribute("role", "alert");
      form.append(lost);
    }
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
