import { KickstandError } from "./errors.js";

/** Throws an error in a browser. */
export function refuseBrowsers(): void {
  const { window, document } = globalThis as { window?: unknown; document?: unknown };
  if (window !== undefined && document !== undefined) {
    throw new KickstandError(
      "This client does not run in a browser: it would show your API key to every visitor. Call the API from your server.",
    );
  }
}

/** Returns an environment variable, or an empty text. */
export function environment(name: string): string {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  try {
    return process?.env?.[name] ?? "";
  } catch {
    return ""; // Deno without permission to read the environment
  }
}

/** Returns the key, or throws a TypeError for one that cannot be sent. */
export function checkKey(key: string): string {
  if (key === "") {
    throw new TypeError("There is no API key: set the option key, or the environment variable KICKSTAND_KEY.");
  }
  if (!/^[\x21-\x7e]+$/.test(key)) {
    throw new TypeError("The API key has characters that no key has, such as a blank or a line break.");
  }
  return key;
}

/** Returns the origin of an address, or throws a TypeError. */
export function checkOrigin(text: string, allowHttp = false): string {
  const form = "The option baseUrl must be the server's origin, such as https://help.example.com.";
  if (text === "") {
    throw new TypeError("There is no address: set the option baseUrl, or the environment variable KICKSTAND_URL.");
  }
  if (!URL.canParse(text)) {
    throw new TypeError(form);
  }
  const url = new URL(text);
  const path = url.pathname + url.search + url.hash;
  if (!["https:", "http:"].includes(url.protocol) || path !== "/" || url.username !== "" || url.password !== "") {
    throw new TypeError(form);
  }
  const local = ["localhost", "[::1]"].includes(url.hostname) || /^127\.[\d.]+$/.test(url.hostname);
  if (url.protocol === "http:" && !local && !allowHttp) {
    throw new TypeError("The option baseUrl must begin with https: over http the network can read the API key.");
  }
  return url.origin;
}
