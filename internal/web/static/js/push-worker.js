// The service worker: shows notices, and opens their ticket. It is served below /.
self.addEventListener("push", (event) => {
  const { title, body, url, tag } = event.data.json();
  event.waitUntil(self.registration.showNotification(title, { body, tag, renotify: true, data: url }));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data));
});

async function open(url) {
  const pages = await clients.matchAll({ type: "window" });
  const page = pages.find((p) => p.url === url);
  await (page ? page.focus() : clients.openWindow(url));
}
