// Prices the example rides of a pricing form again while it is filled in. The server computes them,
// as with the button.
import { morph } from "./live.js";

const form = document.querySelector(".fleet-form");
let timer = 0;
let asked = 0;

async function price() {
  const turn = ++asked;
  const body = new URLSearchParams(new FormData(form));
  body.set("preview", "1");
  const answer = await fetch(location.href, { method: "POST", body }).catch(() => null);
  if (!answer?.ok || turn !== asked) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.getElementById("examples");
  if (fresh && turn === asked) morph(document.getElementById("examples"), fresh);
}
form.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(price, 300);
});
form.addEventListener("click", (event) => {
  if (event.target.closest("[name=preview]")) {
    event.preventDefault();
    price();
  }
});
