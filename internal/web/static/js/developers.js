// The forms of API keys, and pages that show something once.

// What the key will be able to do is said by the server, as one types.
const form = document.querySelector("form[data-says]");
const says = document.getElementById("says");
let timer = 0;
let asked = 0;

async function say() {
  const typed = new FormData(form);
  typed.delete("name");
  const turn = ++asked;
  const response = await fetch(form.dataset.says + "&" + new URLSearchParams(typed)).catch(() => null);
  if (!response?.ok || turn !== asked) return;
  const text = await response.text();
  says.replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.childNodes);
}

form?.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(say, 200);
});

// A button that puts a line into a field.
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

// What is shown once is not asked for again: to load the page again leads to where
// it is looked after.
const made = document.querySelector("[data-address]");
if (made) history.replaceState(null, "", made.dataset.address);

// Long work goes on by itself.
document.querySelector("form[data-goon]")?.requestSubmit();
