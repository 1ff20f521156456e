// Password fields: a checkbox that shows the passwords of a form, and a strength
// meter for new ones. The server validates passwords.
import "./times.js";

const words = ["Too short", "Weak", "Fair", "Good", "Strong"];

// strength returns an index of words, by length and number of different characters.
function strength(text) {
  const characters = [...text.toLowerCase()];
  if (characters.length < 8) return 0;
  const counted = Math.min(characters.length, 2 * new Set(characters).size);
  return 1 + [10, 14, 18].filter((n) => counted >= n).length;
}

function meter(field) {
  const bar = Object.assign(document.createElement("meter"), { min: 0, max: 4, low: 2, high: 3, optimum: 4, value: 0 });
  bar.setAttribute("aria-label", "Password strength");
  const text = Object.assign(document.createElement("p"), { className: "help" });
  text.setAttribute("role", "status");
  field.closest(".field").append(bar, text);
  field.addEventListener("input", () => {
    bar.value = strength(field.value);
    text.textContent = field.value && words[bar.value];
  });
}

function reveal(form, fields) {
  const id = "show-" + fields[0].id;
  const box = Object.assign(document.createElement("input"), { type: "checkbox", id });
  const label = Object.assign(document.createElement("label"), { htmlFor: id, textContent: fields.length > 1 ? "Show passwords" : "Show password" });
  const row = Object.assign(document.createElement("div"), { className: "field check" });
  row.append(box, label);
  fields.at(-1).closest(".field").after(row);
  const show = (shown) => fields.forEach((f) => (f.type = shown ? "text" : "password"));
  box.addEventListener("change", () => show(box.checked));
  form.addEventListener("submit", () => show(false)); // browsers remember texts
  addEventListener("pageshow", () => show(box.checked));
}

for (const form of document.forms) {
  const fields = [...form.querySelectorAll(".field input[type=password]")];
  if (!fields.length) continue;
  const fresh = fields.find((f) => f.autocomplete === "new-password");
  if (fresh) meter(fresh);
  reveal(form, fields);
}
