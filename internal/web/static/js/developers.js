// Forms of API keys, and pages that show a secret once.

// The server renders the key's summary on input.
const form = document.querySelector("form[data-summary-url]");
const summary = document.getElementById("summary");
let timer = 0;
let requests = 0;

async function updateSummary() {
  const typed = new FormData(form);
  typed.delete("name");
  const turn = ++requests;
  const response = await fetch(form.dataset.summaryUrl + "&" + new URLSearchParams(typed)).catch(() => null);
  if (!response?.ok || turn !== requests) return;
  const text = await response.text();
  summary.replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.childNodes);
}

form?.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(updateSummary, 200);
});

// A button that adds a line to a field.
for (const button of document.querySelectorAll("[data-add]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const field = document.getElementById(button.dataset.to);
    const lines = field.value.split("\n").filter((line) => line.trim());
    if (!lines.includes(button.dataset.add)) lines.push(button.dataset.add);
    field.value = lines.join("\n");
    field.dispatchEvent(new Event("input", { bubbles: true }));
    field.focus();
  });
}

// A reload leads to the record's page, since the secret is shown once.
const page = document.querySelector("[data-address]");
if (page) history.replaceState(null, "", page.dataset.address);

// A sandbox key can be used in the API reference: this tab remembers it until it is closed.
const use = document.querySelector("button[data-reference]");
if (use) {
  use.hidden = false;
  use.addEventListener("click", () => {
    const key = document.querySelector(".secret code").textContent;
    const others = JSON.parse(sessionStorage.getItem("reference.keys") ?? "[]");
    sessionStorage.setItem("reference.keys", JSON.stringify([...others, { name: use.dataset.name, key }]));
    sessionStorage.setItem("reference.key", key);
    location.assign(use.dataset.reference);
  });
}

// Continue long operations automatically.
document.querySelector("form[data-continue]")?.requestSubmit();
