// The list of tickets: shortcuts, selection and scroll position.
import { refresh } from "./times.js";

const list = document.querySelector(".list");
const form = document.getElementById("selection");
const rows = () => [...document.querySelectorAll(".trow")];
const link = (row) => row.querySelector("a");
const box = (row) => row.querySelector("input[type=checkbox]");
const focused = () => document.activeElement?.closest?.(".trow");
const present = () => document.querySelector(".trow:has(> a[aria-current])");

function step(by) {
  const all = rows();
  const from = focused() ?? present();
  const to = from ? all[all.indexOf(from) + by] : all[0];
  if (!to) return;
  link(to).focus({ preventScroll: true });
  to.scrollIntoView({ block: "nearest" });
}

// Shortcuts for the focused row. On a ticket's page the other keys are the ticket's.
const keys = {
  j: () => (step(1), true),
  k: () => (step(-1), true),
  x(row) {
    box(row).click();
    return true;
  },
  X(row) {
    upTo(row);
    return true;
  },
  r: (row) => go(row, "#reply"),
  n: (row) => go(row, "#note"),
  a(row) {
    if (!box(row).checked) box(row).click();
    form.elements.assignee.focus();
    return true;
  },
  e(row) {
    sessionStorage.setItem("kickstand-row", rows().indexOf(row));
    form.reset(); // what was chosen for others is not for this one
    rows().forEach((other) => (box(other).checked = other === row));
    form.elements.status.value = "resolved";
    form.requestSubmit(form.querySelector("button[value=change]"));
    return true;
  },
};

function go(row, where) {
  location.assign(link(row).href + where);
  return true;
}

document.addEventListener("kickstand:key", (event) => {
  const does = keys[event.detail];
  const row = focused();
  if (!does || (!row && event.detail !== "j" && event.detail !== "k")) return;
  if (does(row)) event.preventDefault();
});

// A page opened to reply focuses the composer.
const wanted = { "#reply": "r", "#note": "n" }[location.hash];
if (wanted) addEventListener("load", () => document.querySelector(`[data-hotkey=${wanted}]:not(i)`)?.click());

let last = null;
function upTo(row) {
  const all = rows();
  const [from, to] = [all.indexOf(last ?? row), all.indexOf(row)].sort((a, b) => a - b);
  all.slice(Math.max(from, 0), to + 1).forEach((other) => (box(other).checked = true));
  last = row;
  count();
}

function count() {
  const label = form?.querySelector("[data-count]");
  if (label) label.textContent = `${form.querySelectorAll(".trow :checked").length} selected`;
}

form?.addEventListener("click", (event) => {
  const row = event.target.closest(".trow");
  if (!row) return;
  if (event.target === box(row)) {
    if (event.shiftKey && last && box(row).checked) upTo(row);
    last = row;
    count();
  } else if (event.shiftKey && event.target.closest("a")) {
    event.preventDefault();
    upTo(row);
    link(row).focus();
  }
});
form?.addEventListener("change", count);
count();

// If the ticket has left the list, its successor takes its place.
const at = (index) => {
  const all = rows();
  link(all[Math.min(index, all.length - 1)] ?? document.createElement("p"))?.focus({ preventScroll: true });
};
const next = sessionStorage.getItem("kickstand-row");
sessionStorage.removeItem("kickstand-row");
if (next !== null) at(Number(next));

// Keep the scroll position between tickets.
const place = "kickstand-list " + (new URLSearchParams(location.search).get("in") ?? location.pathname.replace(/^\/(inbox|tickets).*?\/?/, ""));
if (list) {
  const again = performance.getEntriesByType("navigation")[0]?.type !== "navigate";
  if (again || !list.matches(".alone")) list.scrollTop = sessionStorage.getItem(place) ?? 0;
  present()?.scrollIntoView({ block: "nearest" });
  addEventListener("pagehide", () => sessionStorage.setItem(place, list.scrollTop));
}

// New rows appear above without moving the visible ones.
let held = null;
document.addEventListener("kickstand:changing", () => {
  const row = focused() ?? document.querySelector(".trow:hover") ?? (list?.scrollTop > 0 ? rows().find((r) => r.getBoundingClientRect().bottom > list.getBoundingClientRect().top + 90) : null);
  held = row && { row, top: row.getBoundingClientRect().top, index: rows().indexOf(row), focused: row === focused() };
});
document.addEventListener("kickstand:changed", () => {
  refresh();
  count();
  if (held?.row.isConnected) {
    const moved = () => held.row.getBoundingClientRect().top - held.top;
    list.scrollTop += moved();
    // Near the end there may be too little left to scroll.
    if (moved() > 1) {
      form.style.paddingBottom = `${parseFloat(form.style.paddingBottom || 0) + moved()}px`;
      list.scrollTop += moved();
    }
  } else if (held?.focused) {
    at(held.index);
  }
});

// Further rows load when the end is near.
const end = document.getElementById("older");
if (end) {
  const near = new IntersectionObserver(
    async ([seen]) => {
      if (!seen.isIntersecting || !end.querySelector("[rel=next]")) return;
      if (!(await (await import("./older.js")).load(end))) return;
      near.unobserve(end); // once more if it is still near
      near.observe(end);
    },
    { root: list, rootMargin: "300px" },
  );
  near.observe(end);
}
