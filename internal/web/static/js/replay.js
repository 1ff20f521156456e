// Replays a ride: a slider and a button move a mark along the track.
const still = matchMedia("(prefers-reduced-motion: reduce)");
const whole = 20_000; // milliseconds of a whole replay
const find = (selector) => document.querySelector(selector);
let playing = 0; // of requestAnimationFrame or setTimeout
let now = 0; // seconds of the ride

const points = () => find("[data-replay]").dataset.replay.split(" ").map((p) => p.split(",").map(Number));
const clock = (s) => `${Math.floor(s / 60)}:${String(Math.floor(s % 60)).padStart(2, "0")}`;

function show() {
  const box = find("[data-replay]");
  if (!box) return;
  box.hidden = false;
  const list = points();
  const to = Math.max(1, list.findIndex((p) => p[0] >= now));
  const [a, b] = [list[to - 1], list[to]];
  const f = b[0] > a[0] ? Math.min(1, Math.max(0, (now - a[0]) / (b[0] - a[0]))) : 1;
  const mark = find(".mover");
  mark.setAttribute("cx", a[1] + f * (b[1] - a[1]));
  mark.setAttribute("cy", a[2] + f * (b[2] - a[2]));
  mark.setAttribute("r", 9);
  const slider = box.querySelector("input");
  const text = `${clock(now)} of ${clock(Number(slider.max))}` + (box.dataset.replay.split(" ")[f < 1 ? to - 1 : to].endsWith(",") ? "" : `, ${(f < 1 ? a : b)[3]} km/h`);
  slider.value = now;
  slider.setAttribute("aria-valuetext", text);
  box.querySelector("output").textContent = text;
}

function press(on) {
  const button = find("[data-play]");
  button.setAttribute("aria-label", on ? "Pause" : "Play");
  const use = button.querySelector("use");
  use.setAttribute("href", use.getAttribute("href").replace(/#.*/, on ? "#pause" : "#play"));
}

function stop() {
  cancelAnimationFrame(playing);
  clearTimeout(playing);
  playing = 0;
  press(false);
}

// Without motion the mark goes in ten steps.
function play(last) {
  const end = Number(find("[data-replay] input").max);
  const step = (at) => {
    now = Math.min(end, now + (Math.max(0, at - last) / whole) * end);
    last = at;
    show();
    if (now >= end) stop();
    else next();
  };
  const next = () => {
    playing = still.matches ? setTimeout(() => step(performance.now()), whole / 10) : requestAnimationFrame(step);
  };
  if (now >= end) now = 0;
  press(true);
  next();
}

document.addEventListener("click", ({ target }) => {
  if (!target.closest("[data-play]")) return;
  if (playing) stop();
  else play(performance.now());
});
document.addEventListener("input", ({ target }) => {
  if (!target.matches("[data-replay] input")) return;
  if (playing) stop();
  now = Number(target.value);
  show();
});
document.addEventListener("kickstand:changed", () => {
  if (find("[data-replay]")) press(playing > 0);
  show();
});
show();
