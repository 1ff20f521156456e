// Subscribes this browser to Web Push. On the page of preferences.
const section = document.getElementById("push");
const form = section.querySelector("form[hidden]");
const state = section.querySelector("[role=status]");
const { key, here } = section.dataset; // here: this browser is in the list

if (navigator.serviceWorker && "PushManager" in window) {
  state.textContent = Notification.permission === "denied" ? "This browser blocks notifications of this site." : "";
  form.hidden = !!here;
  // Removed on the server, or the session has ended.
  if (!here) leave();
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button");
    button.disabled = true;
    try {
      if ((await Notification.requestPermission()) !== "granted") throw new Error("This browser blocks notifications of this site.");
      await subscribe();
    } catch (error) {
      state.textContent = error.message;
      button.disabled = false;
    }
  });
}

async function leave() {
  const worker = await navigator.serviceWorker.getRegistration("/");
  await (await worker?.pushManager.getSubscription())?.unsubscribe();
}

async function subscribe() {
  await navigator.serviceWorker.register("/push-worker.js");
  const worker = await navigator.serviceWorker.ready;
  await leave(); // one with another key
  const { endpoint, keys } = (await worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key })).toJSON();
  for (const [name, value] of Object.entries({ endpoint, ...keys })) {
    form.append(Object.assign(document.createElement("input"), { type: "hidden", name, value }));
  }
  form.submit();
}
