// Announces new notices: by title, icon and badge also while the page is hidden, and, as chosen in this
// browser, by a sound and by a notification. Loaded with the first notice and on the page of notices.
const chosen = (name) => localStorage.getItem("kickstand-" + name) === "on";
const number = (title) => /^\((\d+)/.exec(title)?.[1] ?? "";

// announce reads the number of unread notices; before is the title until now. Of several open pages
// one makes the sound.
export async function announce(before) {
  const response = await fetch("/notices", { headers: { "X-Live": "1" } }).catch(() => null);
  if (!response?.ok || response.redirected) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const count = number(page.title);
  const more = Number(count) > Number(number(before));
  document.title = (count && "(" + count + ") ") + document.title.replace(/^\(\d+\+?\) /, "");
  document.querySelector("link[rel=icon]").href = new URL(count ? "unread.svg" : "favicon.svg", import.meta.url);
  navigator.setAppBadge?.(Number(count)).catch(() => {});
  if (!more) return;
  navigator.locks.request("kickstand-notices", { ifAvailable: true }, async (lock) => {
    if (!lock) return;
    if (chosen("sound")) chime();
    if (chosen("notify") && Notification.permission === "granted") {
      const row = page.querySelector("#notice-list tbody tr");
      const [ticket, what] = row.children;
      const link = ticket.querySelector("a").href;
      const shown = { body: what.firstElementChild.textContent, tag: "ticket-" + link.split("/").pop(), data: link };
      const title = ticket.innerText.trim();
      const worker = await navigator.serviceWorker?.getRegistration("/");
      if (worker) await worker.showNotification(title, shown); // in place of a pushed one
      else
        new Notification(title, shown).onclick = () => {
          window.focus();
          location.assign(link);
        };
    }
    await new Promise((done) => setTimeout(done, 1000));
  });
}

function chime() {
  const audio = new AudioContext(); // silent until the page has been used
  const tone = audio.createOscillator();
  const gain = audio.createGain();
  tone.frequency.value = 660;
  gain.gain.setValueAtTime(0.1, audio.currentTime);
  gain.gain.exponentialRampToValueAtTime(0.001, audio.currentTime + 0.4);
  tone.connect(gain).connect(audio.destination);
  tone.start();
  tone.stop(audio.currentTime + 0.4);
  tone.onended = () => audio.close();
}

// The choices of this browser.
const choices = document.getElementById("alerts");
if (choices) {
  choices.hidden = false;
  for (const box of choices.querySelectorAll("input")) {
    box.checked = chosen(box.name) && (box.name !== "notify" || Notification.permission === "granted");
    box.addEventListener("change", async () => {
      if (box.checked && box.name === "notify") box.checked = (await Notification.requestPermission()) === "granted";
      if (box.checked && box.name === "sound") chime();
      localStorage.setItem("kickstand-" + box.name, box.checked ? "on" : "off");
    });
  }
}
