// Adds tiles to a map that is being moved. The server renders those of a view that rests.
// view has z, x and y of the rendered view; to is the movement since, {k, x, y}.
export function cover(svg, view, to) {
  const group = svg.querySelector("[data-tiles]");
  const names = svg.querySelector(".tile-names");
  const box = svg.viewBox.baseVal;
  const size = names ? 512 : 256;
  const zoom = Math.max(0, Math.min(Number(group.dataset.deepest), Math.round(view.z + Math.log2(to.k) + Math.log2(256 / size) - (names ? 0.25 : 0))));
  const count = 2 ** zoom;
  const side = (256 * 2 ** view.z) / count;
  const left = box.width / 2 - view.x * count * side;
  const top = box.height / 2 - view.y * count * side;
  const first = (from, shift) => Math.floor((-shift / to.k - from) / side);
  const last = (from, shift, length) => Math.ceil(((length - shift) / to.k - from) / side);
  const add = (parent, id, type, attributes) => {
    if (svg.getElementById(id)) return;
    const e = document.createElementNS("http://www.w3.org/2000/svg", type);
    e.id = id;
    for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
    parent.append(e);
  };
  for (let y = Math.max(0, first(top, to.y)); y < Math.min(count, last(top, to.y, box.height)); y++) {
    for (let x = first(left, to.x); x < last(left, to.x, box.width); x++) {
      const at = `${zoom}-${x}-${y}`;
      const path = `${group.dataset.tiles}${zoom}/${((x % count) + count) % count}/${y}`;
      const place = { x: left + x * side, y: top + y * side };
      if (names) {
        const transform = `translate(${place.x} ${place.y}) scale(${side / size})`;
        add(group, "t" + at, "use", { href: path + "#t", transform });
        add(names, "l" + at, "use", { href: path + "#l", transform });
      } else {
        add(group, "t" + at, "image", { href: path, ...place, width: side + 0.3, height: side + 0.3 });
      }
    }
  }
}
