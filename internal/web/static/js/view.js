// Pans and zooms a map by drag, wheel, pinch and arrow keys. Elements with data-pan
// follow at once; done gets the total movement at the end. The earth's circumference
// is 256 * 2 ** zoom map units; an element around the map has the zoom as data-z.
export function moves(svg, done) {
  const box = svg.viewBox.baseVal;
  const fingers = new Map();
  let now = { k: 1, x: 0, y: 0 };
  let timer = 0;
  let sent; // the movement that is being rendered
  let dragged = false;
  document.documentElement.classList.add("js");

  const at = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  const show = () => {
    for (const part of svg.querySelectorAll("[data-pan]")) part.setAttribute("transform", `translate(${now.x} ${now.y}) scale(${now.k})`);
    svg.dispatchEvent(new CustomEvent("moved", { detail: now }));
  };
  // By how far the centre and the zoom have moved.
  const offset = () => ({
    dx: (box.width / 2 - now.x) / now.k - box.width / 2,
    dy: (box.height / 2 - now.y) / now.k - box.height / 2,
    nearer: Math.log2(now.k),
  });
  const soon = (wait) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (now === sent || (now.k === 1 && !now.x && !now.y)) return;
      sent = now;
      done(offset());
    }, wait);
  };
  const zoom = (p, by) => {
    // The server renders no other zooms.
    const z = Number(svg.closest("[data-z]").dataset.z) + Math.log2(now.k);
    by = Math.min(2 ** (20 - z), Math.max(2 ** (2 - z), by));
    now = { k: now.k * by, x: p.x - (p.x - now.x) * by, y: p.y - (p.y - now.y) * by };
    show();
  };

  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(at(event), Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)));
    soon(180);
  }, { passive: false });
  svg.addEventListener("pointerdown", (event) => {
    if (event.button || event.target.closest("[data-holds]")) return;
    fingers.set(event.pointerId, at(event));
    dragged = false;
    clearTimeout(timer);
  });
  svg.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    // The button was released where the page did not hear of it.
    if (!(event.buttons & 1)) return up(event);
    const p = at(event);
    if (!dragged && Math.hypot(p.x - before.x, p.y - before.y) < 4) return;
    if (!dragged) svg.setPointerCapture(event.pointerId);
    dragged = true;
    const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      zoom(other, Math.hypot(p.x - other.x, p.y - other.y) / Math.max(1, Math.hypot(before.x - other.x, before.y - other.y)));
    } else {
      now = { ...now, x: now.x + p.x - before.x, y: now.y + p.y - before.y };
      show();
    }
    fingers.set(event.pointerId, p);
  });
  const up = (event) => {
    if (fingers.delete(event.pointerId) && !fingers.size) soon(50);
  };
  svg.addEventListener("pointerup", up);
  svg.addEventListener("pointercancel", up);
  svg.addEventListener("dragstart", (event) => event.preventDefault());
  // The end of a drag is no click.
  svg.addEventListener("click", (event) => {
    if (!dragged) return;
    dragged = false;
    event.preventDefault();
    event.stopPropagation();
  }, true);
  svg.addEventListener("keydown", (event) => {
    if (event.target.closest("[data-holds]") || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (!step) return;
    event.preventDefault();
    now = { ...now, x: now.x + step[0] * box.width / 8, y: now.y + step[1] * box.height / 8 };
    show();
    soon(180);
  });
  return {
    show,
    offset,
    // stop forgets that the movement is about to be done.
    stop: () => clearTimeout(timer),
    // rest ends the movement up to was, the one that the present view has: what came after it remains.
    rest(was) {
      const k = now.k / was.k;
      now = { k, x: now.x - was.x * k, y: now.y - was.y * k };
      show();
    },
    // of converts screen to map coordinates.
    of(event) {
      const p = at(event);
      return { x: (p.x - now.x) / now.k, y: (p.y - now.y) / now.k };
    },
    nearer: (by) => (zoom({ x: box.width / 2, y: box.height / 2 }, by), soon(180)),
  };
}

// Web Mercator and its inverse, in a unit square.
export const mercator = (lng, lat) => {
  const sin = Math.sin((Math.max(-85.05, Math.min(85.05, lat)) * Math.PI) / 180);
  return { x: lng / 360 + 0.5, y: 0.5 - Math.log((1 + sin) / (1 - sin)) / (4 * Math.PI) };
};
export const degrees = (x, y) => ({
  lng: ((((x % 1) + 1) % 1) - 0.5) * 360,
  lat: ((2 * Math.atan(Math.exp((0.5 - y) * 2 * Math.PI)) - Math.PI / 2) * 180) / Math.PI,
});
