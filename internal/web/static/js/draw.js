// Edits a zone's shape on a map: parts and holes, with undo. A field has the shape: the corners
// of a single ring, one per line, else GeoJSON. The server renders the map for each view, and
// says what the rules mean.
import { morph } from "./live.js";
import { cover } from "./tiles.js";
import { toast } from "./toast.js";
import { degrees, mercator, moves } from "./view.js";

const form = document.querySelector("form[data-draw]");
const search = document.querySelector(".place-search");
const field = form.elements.geometry;
const frame = form.querySelector(".draw");
const svg = frame.querySelector(".ground");
const sketch = svg.querySelector(".sketch");
const handles = svg.querySelector("[data-corners]");
const tools = form.querySelector("[data-tools]");
const file = form.querySelector("[data-file]");
const box = svg.viewBox.baseVal;
const maxHandles = 400;

let shape = []; // parts of rings of corners {x, y} in the unit square of the projection
let target = { part: 0, ring: 0 }; // gets new corners
let chosen = ""; // "part.ring.corner"
let moved = { k: 1, x: 0, y: 0 }; // since the server rendered the view
let checking = false;
let known; // what the field has, as far as it was read or written
let neighbours = []; // rings of other zones, as they are drawn
const past = [];
const future = [];
for (const part of [tools, form.querySelector("[data-instructions]")]) part.hidden = false;

const view = () => ({ z: Number(frame.dataset.z), x: Number(frame.dataset.x), y: Number(frame.dataset.y) });
const scale = () => 256 * 2 ** view().z;
// From map units, before movement, to the unit square and to the screen.
const onEarth = (p) => ({ x: view().x + (p.x - box.width / 2) / scale(), y: view().y + (p.y - box.height / 2) / scale() });
const onScreen = (p, turn = 0) => ({
  x: (box.width / 2 + (p.x + turn - view().x) * scale()) * moved.k + moved.x,
  y: (box.height / 2 + (p.y - view().y) * scale()) * moved.k + moved.y,
});
// The turns around the earth that bring a ring to the view.
const turns = (ring) => -Math.round(ring[0].x - view().x);
// home brings a point of the view to the turn of a ring, and to the side of the antimeridian on which a
// shape ends.
const home = (p, ring) => ({ ...p, x: inside(p.x - (ring.length ? turns(ring) : Math.floor(p.x))) });
const inside = (x) => Math.max(0, Math.min(1, x));
const apart = (a, b) => Math.hypot(a.x - b.x, a.y - b.y);
const path = (points) => (points.length ? "M" + points.map((p) => `${p.x.toFixed(2)} ${p.y.toFixed(2)}`).join("L") + "Z" : "");
const ringOf = (part, ring) => shape[part]?.[ring];
const locate = (at) => at.split(".").map(Number);

// The field and the shape.
function polygons(json) {
  if (json.features) return json.features.flatMap(polygons);
  if (json.geometry) return polygons(json.geometry);
  return json.type === "Polygon" ? [json.coordinates] : json.coordinates;
}

function parse(text) {
  if (!text.startsWith("{")) {
    const ring = text.split("\n").map((line) => line.trim().split(/[\s,;]+/).map(Number)).filter((n) => n.length === 2 && n.every(Number.isFinite));
    return ring.length ? [[ring.map(([lat, lng]) => mercator(lng, lat))]] : [];
  }
  return polygons(JSON.parse(text)).map((rings) => rings.map((ring) => ring.slice(0, -1).map(([lng, lat]) => mercator(lng, lat))));
}

function read() {
  known = field.value;
  try {
    shape = parse(field.value.trim());
  } catch {
    return; // incomplete; the server validates it
  }
  target = { part: 0, ring: 0 };
  chosen = "";
  draw();
}

function write() {
  const round = (p) => {
    // The longitude of its own turn: 180 stays 180.
    const { lat } = degrees(0, p.y);
    return [(p.x - 0.5) * 360, lat].map((n) => Number(n.toFixed(6)));
  };
  const parts = shape.map((rings) => rings.filter((ring) => ring.length)).filter((rings) => rings.length);
  if (parts.length < 2 && !parts[0]?.[1]) {
    field.value = (parts[0]?.[0] ?? []).map(round).map(([lng, lat]) => `${lat.toFixed(6)}, ${lng.toFixed(6)}`).join("\n");
  } else {
    const coordinates = parts.map((rings) => rings.map((ring) => [...ring, ring[0]].map(round)));
    field.value = JSON.stringify(parts.length > 1 ? { type: "MultiPolygon", coordinates } : { type: "Polygon", coordinates: coordinates[0] });
  }
  known = field.value;
  ask();
}

// Back to the page, the browser restores what its fields had, at a time of its own.
function sync() {
  if (field.value === known) return;
  read();
  ask();
  if (shape.length) reveal();
}

// commit stores the state before a change.
function commit() {
  past.push(JSON.stringify(shape));
  if (past.length > 200) past.shift();
  future.length = 0;
}

function restore(from, to) {
  if (!from.length) return;
  to.push(JSON.stringify(shape));
  shape = JSON.parse(from.pop());
  chosen = "";
  if (!(target.ring <= shape[target.part]?.length)) target = { part: 0, ring: 0 };
  write();
  draw();
}

// draw renders the shape, its corners, and a handle between two of them to add one.
function draw() {
  const focused = document.activeElement?.closest?.(".corner")?.dataset.at;
  let d = "";
  const all = [];
  const total = shape.flat().reduce((n, ring) => n + ring.length, 0);
  const circle = (p, name, at, label) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", "circle");
    const attributes = { cx: p.x, cy: p.y, r: name === "between" ? 4.5 : 7, class: name + (name === "corner" && at === chosen ? " chosen" : ""), tabindex: 0, role: "button", "aria-label": label, "data-holds": "", "data-at": at };
    for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
    all.push(e);
  };
  shape.forEach((rings, part) => rings.forEach((ring, number) => {
    const points = ring.map((p) => onScreen(p, turns(ring)));
    d += path(points);
    if (total > maxHandles) return;
    const where = (number ? `, hole ${number}` : "") + (shape.length > 1 ? `, part ${part + 1}` : "");
    points.forEach((p, i) => circle(p, "corner", `${part}.${number}.${i}`, `Corner ${i + 1}${where}`));
    if (points.length < 2) return;
    points.forEach((p, i) => {
      const q = points[(i + 1) % points.length];
      if (apart(p, q) > 24) circle({ x: (p.x + q.x) / 2, y: (p.y + q.y) / 2 }, "between", `${part}.${number}.${i}`, `Add a corner after ${i + 1}${where}`);
    });
  }));
  sketch.setAttribute("d", d);
  handles.replaceChildren(...all);
  if (focused) focus(focused);
  for (const button of tools.querySelectorAll("[data-tool]")) {
    const tool = button.dataset.tool;
    if (tool === "undo" || tool === "redo") button.disabled = !(tool === "undo" ? past : future).length;
    if (tool === "hole") button.disabled = !(shape[target.part]?.[0]?.length > 2);
    if (tool === "hole") button.setAttribute("aria-pressed", target.ring > 0);
    if (tool === "part") button.setAttribute("aria-pressed", target.part > 0 && target.ring === 0);
    if (tool === "check") button.setAttribute("aria-pressed", checking);
  }
  svg.classList.toggle("checking", checking);
}

const focus = (at) => handles.querySelector(`.corner[data-at="${at}"]`)?.focus();

// snap returns the corner, or else the point of an edge, of another ring near a point.
function snap(p, event, self) {
  if (event.altKey) return p;
  const here = onScreen(p);
  const own = shape.flat().filter((ring) => ring !== self).map((ring) => ring.map((p) => ({ x: p.x + turns(ring), y: p.y })));
  let best = p;
  let least = 10;
  const rings = [...neighbours, ...own];
  const near = (q, reach) => {
    const at = onScreen(q);
    const far = apart(at, here);
    if (far < Math.min(least, reach)) [least, best] = [far, q];
  };
  for (const ring of rings) for (const q of ring) near(q, 10);
  if (best !== p) return best;
  for (const ring of rings) {
    ring.forEach((a, i) => {
      const b = ring[(i + 1) % ring.length];
      const length = (b.x - a.x) ** 2 + (b.y - a.y) ** 2;
      const t = length && ((p.x - a.x) * (b.x - a.x) + (p.y - a.y) * (b.y - a.y)) / length;
      if (t > 0 && t < 1) near({ x: a.x + t * (b.x - a.x), y: a.y + t * (b.y - a.y) }, 7);
    });
  }
  return best;
}

function findNeighbours() {
  neighbours = [];
  for (const zone of svg.querySelectorAll(".zones .zone")) {
    for (const ring of zone.getAttribute("d").split("Z")) {
      const points = [...ring.matchAll(/[ML](-?[\d.]+) (-?[\d.]+)/g)].map(([, x, y]) => onEarth({ x: Number(x), y: Number(y) }));
      if (points.length) neighbours.push(points);
    }
  }
}

// add adds a corner where it lengthens the ring least, so that it does not cross itself.
function add(p) {
  sync();
  commit();
  shape[target.part] ??= [];
  const ring = (shape[target.part][target.ring] ??= []);
  p = home(p, ring);
  let at = ring.length;
  let least = Infinity;
  if (ring.length > 2) {
    ring.forEach((a, i) => {
      const b = ring[(i + 1) % ring.length];
      const more = apart(a, p) + apart(p, b) - apart(a, b);
      if (more < least) [least, at] = [more, i + 1];
    });
  }
  ring.splice(at, 0, p);
  chosen = `${target.part}.${target.ring}.${at}`;
  write();
  draw();
}

function remove(at) {
  commit();
  const [part, number, i] = locate(at);
  const ring = ringOf(part, number);
  ring.splice(i, 1);
  chosen = ring.length ? `${part}.${number}.${Math.min(i, ring.length - 1)}` : "";
  if (!ring.length) {
    shape[part].splice(number, number ? 1 : shape[part].length);
    if (!shape[part].length) shape.splice(part, 1);
    target = { part: 0, ring: 0 };
  }
  write();
  draw();
  if (chosen) focus(chosen);
}

// The view.
const ground = moves(svg, ({ dx, dy, nearer }) => {
  const { z, x, y } = view();
  const { lat, lng } = degrees(x + dx / scale(), y + dy / scale());
  go({ z: (z + nearer).toFixed(2), lat: lat.toFixed(5), lng: lng.toFixed(5) });
});
svg.addEventListener("moved", ({ detail }) => {
  moved = detail;
  cover(svg, view(), moved);
  draw();
});

const pageOf = async (response) => (response?.ok && !response.redirected ? new DOMParser().parseFromString(await response.text().catch(() => ""), "text/html") : null);

let turn = 0;
let rendered = "";
// Errors show the same view. By another action, the browser would not recognize the form that it restores.
form.addEventListener("submit", ({ submitter }) => rendered && submitter && (submitter.formAction = rendered));
async function go(query) {
  const mine = ++turn;
  ground.stop();
  const was = moved;
  const address = location.pathname + "?" + new URLSearchParams(query);
  const response = await fetch(address, { headers: { "X-Live": "1" } }).catch(() => null);
  const page = await pageOf(response);
  if (mine !== turn) return;
  const now = page?.querySelector(".draw");
  if (!now) return toast("The map could not be loaded. Try again.", { bad: true });
  for (const part of [".tiles", ".zones", ".tile-names", ".bar"]) {
    const [old, fresh] = [svg, now].map((e) => e.querySelector(part));
    if (old && fresh) morph(old, fresh);
  }
  for (const name of ["z", "x", "y"]) frame.dataset[name] = now.dataset[name];
  rendered = address;
  if (query.place !== undefined) {
    const found = page.querySelector(".place-search");
    morph(search, found);
    search.elements.place.value = found.elements.place.value;
  }
  findNeighbours();
  ground.rest(was);
}

search.addEventListener("submit", (event) => {
  event.preventDefault();
  go({ place: search.elements.place.value });
});
search.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link) return;
  event.preventDefault();
  go(Object.fromEntries(new URLSearchParams(link.search)));
});

// Rules in words, and whether a ride may end at a place, by the server.
let timer = 0;
let question = 0;
function ask() {
  clearTimeout(timer);
  timer = setTimeout(async () => {
    const mine = ++question;
    const body = new URLSearchParams(new FormData(form));
    body.set("check", "1");
    const response = await fetch(location.pathname, { method: "POST", body, headers: { "X-Live": "1" } }).catch(() => null);
    const words = (await pageOf(response))?.getElementById("zone-words");
    if (mine !== question) return;
    const now = document.getElementById("zone-words");
    if (words) morph(now, words);
    else now.innerHTML = '<p class="error">This could not be checked. Try again.</p>';
  }, 250);
}
form.addEventListener("change", ask);
// Without this script, Enter checks before it saves.
const tidy = () => form.querySelector('button[hidden][name="check"]')?.remove();
document.addEventListener("kickstand:changed", tidy);
tidy();
const check = (event) => {
  event.preventDefault();
  ask();
};
form.querySelector('[name="check"]').addEventListener("click", check);
form.elements.check_at.addEventListener("keydown", (event) => event.key === "Enter" && check(event));

// Pointer.
let pressed = { at: "", when: 0 }; // a double press removes a corner; the first one has redrawn it
handles.addEventListener("pointerdown", (event) => {
  const handle = event.target.closest("[data-at]");
  if (!handle || event.button) return;
  event.preventDefault();
  let at = handle.dataset.at;
  const [part, number, i] = locate(at);
  const ring = ringOf(part, number);
  let index = i;
  if (handle.matches(".corner") && pressed.at === at && event.timeStamp - pressed.when < 350) {
    remove(at);
    return;
  }
  commit();
  if (handle.matches(".between")) {
    index = i + 1;
    ring.splice(index, 0, home(onEarth(ground.of(event)), ring));
    at = `${part}.${number}.${index}`;
  }
  pressed = { at, when: event.timeStamp };
  chosen = at;
  target = { part, ring: number };
  draw();
  const before = JSON.stringify(shape);
  const move = (event) => {
    if (!(event.buttons & 1)) return end(); // released where the page did not hear of it
    ring[index] = home(snap(onEarth(ground.of(event)), event, ring), ring);
    draw();
  };
  const over = new AbortController();
  const on = (type, handle) => addEventListener(type, (e) => e.pointerId === event.pointerId && handle(e), { signal: over.signal });
  const end = () => {
    over.abort();
    if (handle.matches(".corner") && JSON.stringify(shape) === before) past.pop();
    write();
    draw();
    focus(at);
  };
  on("pointermove", move);
  on("pointerup", end);
  on("pointercancel", end);
});
svg.addEventListener("click", (event) => {
  if (event.target.closest("[data-at]")) return;
  const p = onEarth(ground.of(event));
  if (!checking) {
    add(snap(p, event, ringOf(target.part, target.ring)));
    return;
  }
  const { lat, lng } = degrees(p.x, p.y);
  form.elements.check_at.value = `${lat.toFixed(6)}, ${lng.toFixed(6)}`;
  ask();
});

// Keys.
handles.addEventListener("keydown", (event) => {
  const handle = event.target.closest("[data-at]");
  const [part, number, i] = locate(handle.dataset.at);
  const ring = ringOf(part, number);
  if (handle.matches(".between")) {
    if (event.key !== "Enter" && event.key !== " ") return;
    commit();
    const q = ring[(i + 1) % ring.length];
    ring.splice(i + 1, 0, { x: (ring[i].x + q.x) / 2, y: (ring[i].y + q.y) / 2 });
    chosen = `${part}.${number}.${i + 1}`;
  } else if (event.key === "Delete" || event.key === "Backspace") {
    event.preventDefault();
    remove(handle.dataset.at);
    return;
  } else {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!step) return;
    if (!event.repeat) commit(); // a held key is one change
    const far = (event.shiftKey ? 10 : 1) / moved.k / scale();
    ring[i] = { x: inside(ring[i].x + step[0] * far), y: ring[i].y + step[1] * far };
    chosen = handle.dataset.at;
  }
  event.preventDefault();
  event.stopPropagation();
  write();
  draw();
  focus(chosen);
});
svg.addEventListener("keydown", (event) => {
  if (event.target !== svg || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Enter") {
    event.preventDefault();
    add(onEarth({ x: (box.width / 2 - moved.x) / moved.k, y: (box.height / 2 - moved.y) / moved.k }));
  } else if (event.key === "+" || event.key === "-") {
    event.preventDefault();
    ground.nearer(event.key === "+" ? 2 : 0.5);
  }
});
form.addEventListener("keydown", (event) => {
  if (event.target.closest("input, textarea, select")) return;
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") {
    event.preventDefault();
    if (event.shiftKey) restore(future, past);
    else restore(past, future);
  } else if (event.key === "Escape") {
    checking = false;
    target = { part: target.part, ring: 0 };
    draw();
  }
});

// Tools.
tools.addEventListener("click", (event) => {
  const tool = event.target.closest("[data-tool]")?.dataset.tool;
  if (tool === "undo") restore(past, future);
  if (tool === "redo") restore(future, past);
  if (tool === "open") file.click();
  if (tool === "check") [checking, target] = [!checking, { part: target.part, ring: 0 }];
  if (tool === "hole") target = { part: target.part, ring: target.ring ? 0 : shape[target.part].length };
  if (tool === "part") target = { part: target.part || !shape.length ? 0 : shape.length, ring: 0 };
  if (tool === "hole" || tool === "part") checking = false;
  draw();
});
const reveal = async () => go((await import("./area.js")).fit(shape.flat(2), box.height));
file.addEventListener("change", async () => {
  const { text, words } = await (await import("./area.js")).open(file.files[0]);
  file.value = "";
  if (words) toast(words, { bad: !text });
  if (!text) return;
  commit();
  field.value = text;
  read();
  write();
  reveal();
});

field.addEventListener("focus", commit, { once: true });
field.addEventListener("input", read);
findNeighbours();
read();
known = field.defaultValue;
addEventListener("pageshow", () => {
  sync();
  setTimeout(sync);
});
