// toast shows a message for a few seconds and announces it to screen readers.
export function toast(text, { bad = false } = {}) {
  const box = document.createElement("div");
  box.className = bad ? "toast bad" : "toast";
  const p = document.createElement("p");
  p.textContent = text;
  box.append(p);
  document.getElementById("toasts").append(box);
  leave(box);
}

// leave removes a toast after a while, but not while it has focus or pointer.
export function leave(box) {
  const wait = () => setTimeout(() => (box.matches(":hover, :focus-within") ? wait() : box.remove()), 6000);
  wait();
}

// carry shows the toasts of a fetched page on the page that opens next.
export const carry = (page) => sessionStorage.setItem("kickstand-toasts", page.getElementById("toasts")?.innerHTML ?? "");

document.getElementById("toasts").insertAdjacentHTML("beforeend", sessionStorage.getItem("kickstand-toasts") ?? "");
sessionStorage.removeItem("kickstand-toasts");
document.querySelectorAll(".toast").forEach(leave);
