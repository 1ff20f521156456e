// The length of a reply on channels with a limit, and the number of messages of a text.
const gsm = /^[\n\r @£$¥èéùìòÇØøÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ!"#¤%&'()*+,\-./0-9:;<=>?¡A-ZÄÖÑÜ§¿a-zäöñüà^{}\\[~\]|€]*$/;

// parts returns the number of messages in which a text leaves.
function parts(text) {
  const plain = gsm.test(text);
  const length = plain ? text.length + (text.match(/[\^{}\\[~\]|€]/g)?.length ?? 0) : text.length;
  const [one, each] = plain ? [160, 153] : [70, 67];
  return length <= one ? 1 : Math.ceil(length / each);
}

let box;
export function count(composer, before) {
  if (!box) {
    box = Object.assign(document.createElement("span"), { className: "small muted" });
    box.setAttribute("role", "status");
    before.after(box);
  }
  const { reply, kind, conversation } = composer.elements;
  const chosen = [...composer.querySelectorAll("[name=conversation]")].find((option) => option.value === conversation.value);
  const most = Number(chosen?.dataset.most ?? 0);
  const length = [...reply.value].length;
  if (!most || !length || kind.value !== "reply") return (box.textContent = "");
  const n = "parts" in chosen.dataset ? parts(reply.value) : 1;
  box.textContent = `${length} of ${most} characters${n > 1 ? `, ${n} messages` : ""}${length > most ? ": too long" : ""}`;
}
