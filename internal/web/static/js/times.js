// Sets the cookie with the browser's time zone, in which the server formats times,
// and updates relative times in the server's format (time.go). The server writes all dates
// and clock times, in the form that the user prefers.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const wanted = "kickstand-zone=" + encodeURIComponent(zone);
if (zone && !document.cookie.split("; ").includes(wanted)) {
  document.cookie = wanted + "; Path=/; Max-Age=31536000; SameSite=Lax" + (location.protocol === "https:" ? "; Secure" : "");
}

// A page rendered before the server knew the zone is in UTC.
if ("utc" in document.documentElement.dataset && zone !== "UTC" && document.cookie.includes(wanted)) {
  import("./live.js").then(({ renew }) => renew([document.getElementById("main")]));
}

// The page's clock: the server's, or the sandbox clock, which can be advanced. It runs
// from the time of the page or of its last update.
let came = "";
let ahead = 0;

function now() {
  if (document.body.dataset.now && document.body.dataset.now !== came) {
    came = document.body.dataset.now;
    ahead = Date.parse(came) - Date.now();
  }
  return Date.now() + ahead;
}

function ago(at) {
  const minutes = (now() - at) / 60000;
  const format = (n, unit) => (minutes < 0 ? `in ${Math.floor(n)} ${unit}` : `${Math.floor(n)} ${unit}`);
  const size = Math.abs(minutes);
  if (size < 1) return "now";
  if (size < 60) return format(size, "min");
  if (size < 24 * 60) return format(size / 60, "h");
  if (size < 30 * 24 * 60) return format(size / 60 / 24, "d");
  return null; // a date stays as it is
}

export function refresh() {
  for (const e of document.querySelectorAll("time[data-ago]")) {
    const text = ago(Date.parse(e.dateTime));
    if (text !== null && text !== e.textContent) e.textContent = text;
  }
}
now();
setInterval(refresh, 30000);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
