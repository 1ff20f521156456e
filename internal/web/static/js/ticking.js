// Counts running durations from their value at page load, in the server's format.
const begun = new WeakMap();

function span(seconds) {
  const two = (n, unit, rest, smaller) => `${n.toLocaleString("en")} ${unit}` + (rest ? ` ${rest} ${smaller}` : "");
  const whole = (n) => Math.floor(n);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return two(whole(seconds / 60), "min", seconds % 60, "s");
  if (seconds < 86400) return two(whole(seconds / 3600), "h", whole(seconds / 60) % 60, "min");
  return two(whole(seconds / 86400), "d", whole(seconds / 3600) % 24, "h");
}

function tick() {
  for (const e of document.querySelectorAll("[data-seconds]")) {
    let from = begun.get(e);
    if (from?.seconds !== e.dataset.seconds) begun.set(e, (from = { seconds: e.dataset.seconds, at: performance.now() }));
    const text = span(Number(from.seconds) + Math.floor((performance.now() - from.at) / 1000));
    if (text !== e.textContent) e.textContent = text;
  }
}
tick();
setInterval(tick, 1000);
