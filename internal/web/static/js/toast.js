// toast says something in passing, also to who cannot see it.
export function toast(text, { bad = false } = {}) {
  const box = document.createElement("div");
  box.className = bad ? "toast bad" : "toast";
  const p = document.createElement("p");
  p.textContent = text;
  box.append(p);
  document.getElementById("toasts").append(box);
  leave(box);
}

// leave takes a toast away after a while, though not while it is looked at.
export function leave(box) {
  const wait = () => setTimeout(() => (box.matches(":hover, :focus-within") ? wait() : box.remove()), 6000);
  wait();
}
document.querySelectorAll(".toast").forEach(leave);
