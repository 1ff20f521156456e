// Selects rows of a list: all of a page at once, a range by shift. The button has their number.
const form = () => document.querySelector(".selection");
const boxes = () => [...document.querySelectorAll(".selection [name=vehicle]")];
let last = null;

function show() {
  if (!form()) return;
  const page = form().querySelector("[data-page]");
  const whole = form().querySelector("[data-all]").checked;
  const n = boxes().filter((b) => b.checked).length;
  page.hidden = false;
  page.checked = n > 0 && n === boxes().length;
  page.indeterminate = n > 0 && !page.checked;
  const button = form().querySelector("[data-continue]");
  button.textContent = n && !whole ? `Continue with ${n}` : "Continue";
  button.disabled = !n && !whole;
}
document.addEventListener("change", ({ target }) => {
  if (target.matches(".selection [data-page]")) for (const b of boxes()) b.checked = target.checked;
  if (target.closest(".selection")) show();
});
document.addEventListener("click", ({ target, shiftKey }) => {
  if (!target.matches(".selection [name=vehicle]")) return;
  const list = boxes();
  const [from, to] = [list.indexOf(last), list.indexOf(target)].sort((a, b) => a - b);
  if (shiftKey && from >= 0) for (const b of list.slice(from, to + 1)) b.checked = target.checked;
  last = target;
  show();
});
document.addEventListener("kickstand:changed", show);
show();
