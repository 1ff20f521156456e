// Pans and zooms the fleet map, which the server renders for each view.
import { heard, morph, updates } from "./live.js";
import { cover } from "./tiles.js";
import { degrees, moves } from "./view.js";

const map = document.querySelector("[data-map]");
const svg = map.querySelector(".ground");
let asked = 0;
let moved = { k: 1, x: 0, y: 0 }; // since the server rendered the view

async function go(address, push) {
  const turn = ++asked;
  ground.stop();
  const was = moved;
  const seen = updates;
  const response = await fetch(address, { headers: { "X-Live": "1" } }).catch(() => null);
  const text = response?.ok && !response.redirected && (await response.text().catch(() => ""));
  if (turn !== asked) return; // it is elsewhere by now
  if (!text) {
    location.assign(address);
    return;
  }
  const page = new DOMParser().parseFromString(text, "text/html");
  morph(map, page.querySelector("[data-map]"));
  ground.rest(was);
  // Forms submit the view.
  document.querySelector("[data-map-filters]").replaceWith(document.importNode(page.querySelector("[data-map-filters]"), true));
  history[push ? "pushState" : "replaceState"](null, "", address);
  document.dispatchEvent(new CustomEvent("kickstand:changed"));
  if (seen !== updates) heard(map.dataset.live.split(" ")); // the view may be older than the update
}

const view = () => ({ z: Number(map.dataset.z), x: Number(map.dataset.x), y: Number(map.dataset.y) });

// addressOf returns the address of the view, moved by an offset, without some parameters.
function addressOf({ dx, dy, nearer }, ...others) {
  const { z, x, y } = view();
  const scale = 256 * 2 ** z;
  const { lat, lng } = degrees(x + dx / scale, y + dy / scale);
  const address = new URL(location.href);
  for (const name of ["place", "was", "after", ...others]) address.searchParams.delete(name); // of another view
  address.searchParams.set("z", (z + nearer).toFixed(2));
  address.searchParams.set("lat", lat.toFixed(5));
  address.searchParams.set("lng", lng.toFixed(5));
  return address;
}

const ground = moves(svg, (offset) => go(addressOf(offset).href));

svg.addEventListener("moved", ({ detail }) => {
  moved = detail;
  // Without a view, each update would fit the map to the vehicles.
  if (detail.k !== 1 || detail.x || detail.y) {
    const { searchParams } = new URL(location.href);
    if (!searchParams.has("place") && (!searchParams.has("z") || searchParams.has("was"))) history.replaceState(null, "", addressOf({ dx: 0, dy: 0, nearer: 0 }).href);
  }
  cover(svg, view(), moved);
});

// near shows the vehicles nearest to a place, on the present view or on one of its own.
function near(lat, lng, rests) {
  const address = addressOf(ground.offset(), "vehicle");
  address.searchParams.set("near", lat.toFixed(5) + "," + lng.toFixed(5));
  if (!rests) for (const name of ["z", "lat", "lng"]) address.searchParams.delete(name);
  go(address.href, true);
}

const reveal = () => map.querySelectorAll("[data-here]").forEach((b) => (b.hidden = !navigator.geolocation));
document.addEventListener("kickstand:changed", () => {
  reveal();
  ground.show(); // an update renders the view as it was before the movement
});
reveal();

map.addEventListener("click", (event) => {
  const here = event.target.closest("[data-here]");
  if (here) {
    navigator.geolocation.getCurrentPosition(
      ({ coords }) => near(coords.latitude, coords.longitude),
      async () => (await import("./toast.js")).toast("Your position is unknown. Allow it in the browser, or search for a place."),
    );
    return;
  }
  if (event.target.closest(".ground") && !event.target.closest("a")) {
    const p = ground.of(event);
    const scale = 256 * 2 ** Number(map.dataset.z);
    const at = degrees(Number(map.dataset.x) + (p.x - svg.viewBox.baseVal.width / 2) / scale, Number(map.dataset.y) + (p.y - svg.viewBox.baseVal.height / 2) / scale);
    near(at.lat, at.lng, true);
    return;
  }
  const link = event.target.closest('a[data-go], a[href^="?"]');
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  go(new URL(link.getAttribute("href"), location.href).href, true);
});
addEventListener("popstate", () => go(location.href));
