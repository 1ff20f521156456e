// Finds the polygons of a GeoJSON file, and the view of a map that shows them.
import { degrees } from "./view.js";

// polygons returns the polygons of GeoJSON in degrees, and how many other geometries it has. It
// throws a SyntaxError if text is not JSON.
export function polygons(text) {
  const found = { polygons: [], others: 0 };
  const position = (p) => Array.isArray(p) && Number.isFinite(p[0]) && Number.isFinite(p[1]) && Math.abs(p[0]) <= 180 && Math.abs(p[1]) <= 90;
  const closed = (ring) => (ring[0][0] === ring.at(-1)[0] && ring[0][1] === ring.at(-1)[1] ? ring : [...ring, ring[0]]);
  const take = (rings) => {
    const valid = Array.isArray(rings) && rings.length > 0 && rings.every((ring) => Array.isArray(ring) && ring.length && ring.every(position) && closed(ring).length > 3);
    if (valid) found.polygons.push(rings.map(closed));
    else found.others++;
  };
  const visit = (json) => {
    const { type, features, geometries, geometry, coordinates } = json ?? {};
    const list = { FeatureCollection: features, GeometryCollection: geometries, Feature: [geometry] }[type];
    if (Array.isArray(list)) list.forEach(visit);
    else if (type === "MultiPolygon" && Array.isArray(coordinates)) coordinates.forEach(take);
    else take(type === "Polygon" ? coordinates : null);
  };
  visit(JSON.parse(text));
  return found;
}

// open reads a file. text is the shape as GeoJSON, empty if the file has none; words say what
// became of the file, empty if the shape is all of it.
export async function open(file) {
  let found;
  try {
    found = polygons(await file.text());
  } catch {
    return { text: "", words: "The file is not GeoJSON. The shape is as before." };
  }
  const { polygons: list, others } = found;
  if (!list.length) return { text: "", words: "The file has no polygon in degrees of longitude and latitude. The shape is as before." };
  const text = JSON.stringify({ type: "MultiPolygon", coordinates: list });
  return { text, words: others ? `Skipped: ${others === 1 ? "1 geometry of the file that is no polygon" : others + " geometries of the file that are no polygons"}.` : "" };
}

// fit returns the parameters of the view of points in the unit square, on a map of a height.
export function fit(points, height) {
  const range = (axis) => points.reduce(([a, b], p) => [Math.min(a, p[axis]), Math.max(b, p[axis])], [Infinity, -Infinity]);
  const [[left, right], [top, bottom]] = [range("x"), range("y")];
  const span = Math.max(right - left, bottom - top, 1e-7);
  const { lat, lng } = degrees((left + right) / 2, (top + bottom) / 2);
  return { z: Math.min(17, Math.log2((height * 0.7) / 256 / span)).toFixed(2), lat: lat.toFixed(5), lng: lng.toFixed(5) };
}
