// Edits a zone's outline on a map. A field has its corners, one per line. Shapes of
// several parts, or with holes, are GeoJSON and shown only.
import { degrees, mercator, moves } from "./view.js";

const form = document.querySelector("form[data-draw]");
const field = form.elements.geometry;
const frame = form.querySelector(".draw");
const svg = frame.querySelector(".ground");
const sketch = svg.querySelector(".sketch");
const handles = svg.querySelector("[data-corners]");
const box = svg.viewBox.baseVal;
const scale = 256 * 2 ** Number(frame.dataset.z);
const middle = { x: Number(frame.dataset.x), y: Number(frame.dataset.y) };
let corners = []; // {x, y} of the drawing
let editable = true;
let chosen = -1;
let view = { k: 1, x: 0, y: 0 };
frame.querySelector("[data-instructions]").hidden = false;

const place = (lng, lat) => {
  const p = mercator(lng, lat);
  let dx = p.x - middle.x;
  dx -= Math.round(dx);
  return { x: box.width / 2 + dx * scale, y: box.height / 2 + (p.y - middle.y) * scale };
};
const path = (points) => (points.length ? "M" + points.map((p) => `${p.x} ${p.y}`).join("L") + "Z" : "");

// read parses the field.
function read() {
  const text = field.value.trim();
  editable = !text.startsWith("{");
  chosen = -1;
  if (editable) {
    corners = text.split("\n").map((line) => line.trim().split(/[\s,;]+/).map(Number)).filter((n) => n.length === 2 && n.every(Number.isFinite)).map(([lat, lng]) => place(lng, lat));
    draw();
    return;
  }
  corners = [];
  let d = "";
  try {
    let shape = JSON.parse(text);
    if (shape.type === "Feature") shape = shape.geometry;
    const polygons = shape.type === "Polygon" ? [shape.coordinates] : shape.coordinates;
    d = polygons.flat().map((ring) => path(ring.map(([lng, lat]) => place(lng, lat)))).join("");
  } catch {
    // Incomplete; the server validates it.
  }
  sketch.setAttribute("d", d);
  handles.replaceChildren();
}

// write sets the field.
function write() {
  field.value = corners.map((p) => {
    const at = degrees(middle.x + (p.x - box.width / 2) / scale, middle.y + (p.y - box.height / 2) / scale);
    return `${at.lat.toFixed(6)}, ${at.lng.toFixed(6)}`;
  }).join("\n");
}

const onScreen = (p) => ({ x: p.x * view.k + view.x, y: p.y * view.k + view.y });

// draw renders the corners, and a handle between two of them to add one.
function draw() {
  sketch.setAttribute("d", path(corners));
  const circle = (p, name, i, label) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", "circle");
    const at = onScreen(p);
    for (const [key, value] of Object.entries({ cx: at.x, cy: at.y, r: name === "between" ? 4.5 : 7, class: name + (name === "corner" && i === chosen ? " chosen" : ""), tabindex: 0, role: "button", "aria-label": label, "data-holds": "", "data-at": i })) e.setAttribute(key, value);
    return e;
  };
  const focused = document.activeElement?.closest?.(".corner")?.dataset.at;
  const all = corners.map((p, i) => circle(p, "corner", i, `Corner ${i + 1}`));
  if (corners.length > 1 && corners.length < 200) {
    corners.forEach((p, i) => {
      const q = corners[(i + 1) % corners.length];
      all.push(circle({ x: (p.x + q.x) / 2, y: (p.y + q.y) / 2 }, "between", i, `Add a corner after ${i + 1}`));
    });
  }
  handles.replaceChildren(...all);
  if (focused !== undefined) handles.querySelector(`.corner[data-at="${focused}"]`)?.focus();
}

const ground = moves(svg, () => {});
svg.addEventListener("moved", () => {
  const zero = svg.querySelector("[data-pan]").transform.baseVal.consolidate()?.matrix;
  view = { k: zero.a, x: zero.e, y: zero.f };
  draw();
});

function remove(i) {
  corners.splice(i, 1);
  chosen = Math.min(i, corners.length - 1);
  write();
  draw();
}

// A double press removes a corner. The first press has redrawn it.
let pressed = { at: -1, when: 0 };
handles.addEventListener("pointerdown", (event) => {
  const handle = event.target.closest("[data-at]");
  if (!handle || event.button) return;
  event.preventDefault();
  let i = Number(handle.dataset.at);
  if (handle.matches(".between")) {
    corners.splice(i + 1, 0, ground.of(event));
    i++;
  } else if (pressed.at === i && event.timeStamp - pressed.when < 350) {
    remove(i);
    return;
  }
  pressed = { at: i, when: event.timeStamp };
  chosen = i;
  draw();
  const move = (event) => {
    corners[i] = ground.of(event);
    draw();
  };
  const end = () => {
    removeEventListener("pointermove", move);
    write();
    draw();
    handles.querySelector(`.corner[data-at="${i}"]`)?.focus();
  };
  addEventListener("pointermove", move);
  addEventListener("pointerup", end, { once: true });
  addEventListener("pointercancel", end, { once: true });
});
handles.addEventListener("keydown", (event) => {
  const handle = event.target.closest("[data-at]");
  const i = Number(handle.dataset.at);
  if (handle.matches(".between")) {
    if (event.key !== "Enter" && event.key !== " ") return;
    const q = corners[(i + 1) % corners.length];
    corners.splice(i + 1, 0, { x: (corners[i].x + q.x) / 2, y: (corners[i].y + q.y) / 2 });
    chosen = i + 1;
  } else if (event.key === "Delete" || event.key === "Backspace") {
    event.preventDefault();
    remove(i);
    return;
  } else {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!step) return;
    const far = (event.shiftKey ? 10 : 1) / view.k;
    corners[i] = { x: corners[i].x + step[0] * far, y: corners[i].y + step[1] * far };
    chosen = i;
  }
  event.preventDefault();
  write();
  draw();
  handles.querySelector(`.corner[data-at="${chosen}"]`)?.focus();
});
svg.addEventListener("click", (event) => {
  if (!editable || event.target.closest("[data-at]")) return;
  const p = ground.of(event);
  // At the shortest detour, so that the outline does not cross itself.
  let best = corners.length;
  let least = Infinity;
  const far = (a, b) => Math.hypot(a.x - b.x, a.y - b.y);
  if (corners.length > 2) {
    corners.forEach((a, i) => {
      const b = corners[(i + 1) % corners.length];
      const more = far(a, p) + far(p, b) - far(a, b);
      if (more < least) [least, best] = [more, i + 1];
    });
  }
  corners.splice(best, 0, p);
  chosen = best;
  write();
  draw();
});
field.addEventListener("input", read);
read();
