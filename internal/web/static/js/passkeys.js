// Passkeys. An element with data-passkey="get" or "create" has the argument of
// navigator.credentials in data-options, a button, an error element, and a hidden
// field for the result, in a form inside or around it.
import "./passwords.js";

const supported = !!(window.PublicKeyCredential && navigator.credentials?.create);
let waiting = null; // ends the request that shows passkeys while one types

const decode = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
const encode = (buffer) => {
  let text = "";
  for (const byte of new Uint8Array(buffer)) text += String.fromCharCode(byte);
  return btoa(text).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
};

// options decodes the argument's base64url fields.
function options(box) {
  const all = JSON.parse(box.dataset.options);
  const key = all.publicKey;
  key.challenge = decode(key.challenge);
  if (key.user) key.user.id = decode(key.user.id);
  for (const list of [key.allowCredentials, key.excludeCredentials]) list?.forEach((c) => (c.id = decode(c.id)));
  return all;
}

// result returns a credential as the JSON that WebAuthn writes (section 5.1).
function result(credential) {
  const response = {};
  for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"]) {
    if (credential.response[name]) response[name] = encode(credential.response[name]);
  }
  if (credential.response.getTransports) response.transports = credential.response.getTransports();
  return JSON.stringify({
    id: credential.id,
    rawId: encode(credential.rawId),
    type: credential.type,
    authenticatorAttachment: credential.authenticatorAttachment ?? undefined,
    clientExtensionResults: credential.getClientExtensionResults(),
    response,
  });
}

const words = {
  NotAllowedError: "The request was cancelled or timed out. Try again.",
  InvalidStateError: "This device already has a passkey for your account.",
  SecurityError: "Passkeys don’t work at this address. Open the server by its public address.",
  NotSupportedError: "This device doesn’t support the required type of passkey.",
};

function say(box, text) {
  const place = box.querySelector("[data-passkey-error]");
  place.textContent = text;
  place.hidden = !text;
}

async function ask(box, more = {}) {
  const credential = await navigator.credentials[box.dataset.passkey]({ ...options(box), ...more });
  if (!credential) return;
  const form = box.closest("form");
  form.elements["proof-passkey"].value = result(credential);
  form.requestSubmit();
}

async function press(box) {
  waiting?.abort();
  waiting = null;
  say(box, "");
  try {
    await ask(box);
  } catch (error) {
    if (error.name !== "AbortError") say(box, words[error.name] ?? "The browser could not use a passkey. Try again, or use another method.");
    if (box.hasAttribute("data-conditional")) offer(box);
  }
}

// offer enables the browser's autofill of passkeys.
async function offer(box) {
  if (!(await PublicKeyCredential.isConditionalMediationAvailable?.())) return;
  waiting = new AbortController();
  try {
    await ask(box, { mediation: "conditional", signal: waiting.signal });
  } catch (error) {
    if (error.name !== "AbortError") waiting = null; // whoever wants one presses the button
  }
}

// setup reveals the buttons in root.
export function setup(root) {
  if (!supported) return;
  for (const box of root.querySelectorAll("[data-passkey]")) {
    const button = box.querySelector("[data-passkey-button]");
    if (!button?.hidden) continue;
    button.hidden = false;
    box.querySelector("[data-passkey-missing]")?.remove();
    button.addEventListener("click", () => press(box));
    if (box.hasAttribute("data-conditional")) offer(box);
  }
}
setup(document);
