// The preview of a reply, in a frame below its text instead of a tab of its own.
export function setup(composer, button) {
  const frame = Object.assign(document.createElement("iframe"), { name: "preview", className: "mail", title: "Preview" });
  composer.elements.reply.after(frame);
  button.formTarget = "preview";
  frame.addEventListener("load", () => {
    const page = frame.contentDocument;
    if (page?.URL === "about:blank") return;
    frame.style.height = Math.min(page.body.scrollHeight + 4, 400) + "px";
    frame.scrollIntoView({ block: "nearest" });
  });
  // A changed text is not the one that the preview shows.
  composer.elements.reply.addEventListener("input", () => (frame.hidden = true));
  button.addEventListener("click", () => (frame.hidden = false));
  composer.addEventListener("submit", (event) => {
    if (event.submitter === button) setTimeout(() => delete composer.dataset.sending); // nothing was sent
    else frame.hidden = true;
  });
}
