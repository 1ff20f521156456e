// Times are written by the server in the zone that this cookie names, and those
// that say how long ago grow old here, in the words of the server (time.go).
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const wanted = "kickstand-zone=" + encodeURIComponent(zone);
if (zone && !document.cookie.split("; ").includes(wanted)) {
  document.cookie = wanted + "; Path=/; Max-Age=31536000; SameSite=Lax" + (location.protocol === "https:" ? "; Secure" : "");
}

function ago(at) {
  let minutes = (Date.now() - at) / 60000;
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
setInterval(refresh, 30000);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
