// Finds the view of a map that shows a shape.
import { degrees } from "./view.js";

// fit returns the parameters of the view of points in the unit square, on a map of a height.
export function fit(points, height) {
  const range = (axis) => points.reduce(([a, b], p) => [Math.min(a, p[axis]), Math.max(b, p[axis])], [Infinity, -Infinity]);
  const [[left, right], [top, bottom]] = [range("x"), range("y")];
  const span = Math.max(right - left, bottom - top, 1e-7);
  const { lat, lng } = degrees((left + right) / 2, (top + bottom) / 2);
  return { z: Math.min(17, Math.log2((height * 0.7) / 256 / span)).toFixed(2), lat: lat.toFixed(5), lng: lng.toFixed(5) };
}
