import { encodeBase64 } from "./attachment.js";
import { KickstandError, SignatureError } from "./errors.js";
import type { FleetWebhookPayload } from "./fleet.js";
import type { WebhookPayload } from "./helpdesk.js";

/** The body of a delivery in form A, with the id of its header. */
export interface FlatPayload {
  id: string;
  event: string;
  timestamp: string;
  data: Record<string, unknown>;
}

/** The headers of a delivery: of a Request, or Node's `request.headers`. Case does not matter. */
export type DeliveryHeaders = Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

/** The raw body of a delivery, before parsing. */
export type DeliveryBody = string | Uint8Array;

/** One secret, or several while one is replaced. */
export type Secrets = string | readonly string[];

/** Options of {@link verify}. */
export interface VerifyOptions {
  /** The accepted difference between the timestamp and the clock, in seconds. Default: 300. */
  tolerance?: number | undefined;
  /** The clock. Default: now. */
  now?: Date | undefined;
}

/**
 * Verifies the signature of Standard Webhooks and the age of a delivery, and returns its
 * event. It throws a {@link SignatureError} otherwise. For a webhook in form A the type is
 * `verify<FlatPayload>`, and for one with the source `fleet` or `sandbox` it is
 * `verify<FleetWebhookPayload>`: the helpdesk and the fleet both have an event `customer.created`.
 */
export async function verify<T extends WebhookPayload | FleetWebhookPayload | FlatPayload = WebhookPayload>(
  body: DeliveryBody,
  headers: DeliveryHeaders,
  secrets: Secrets,
  { tolerance = 300, now = new Date() }: VerifyOptions = {},
): Promise<T> {
  const id = header(headers, "webhook-id");
  const timestamp = header(headers, "webhook-timestamp");
  const signatures = header(headers, "webhook-signature");
  if (!id || !timestamp || !signatures) {
    throw new SignatureError("unsigned");
  }
  const got = signatures.split(/\s+/);
  const signed =
    /^\d{1,15}$/.test(timestamp) &&
    (await someSecret(secrets, async (secret) => {
      const want = await standardSignature(secret, id, timestamp, body);
      return got.some((signature) => equal(signature, want));
    }));
  if (!signed) {
    throw new SignatureError("signature");
  }
  if (Math.abs(Math.floor(now.getTime() / 1000) - Number(timestamp)) > tolerance) {
    throw new SignatureError("timestamp");
  }
  return readEvent(body, id);
}

/**
 * Verifies the header `X-Service-Signature` of a delivery in form A or B, and returns its
 * event. It throws a {@link SignatureError} otherwise. This header has no timestamp, so a
 * recorded delivery can be sent again later: prefer {@link verify}. For a webhook of the fleet the
 * type is `verifyBody<"b", FleetWebhookPayload>`.
 */
export async function verifyBody<
  Form extends "a" | "b",
  T extends WebhookPayload | FleetWebhookPayload = WebhookPayload,
>(
  body: DeliveryBody,
  headers: DeliveryHeaders,
  secrets: Secrets,
  form: Form,
): Promise<Form extends "a" ? FlatPayload : T> {
  const got = header(headers, "x-service-signature");
  if (!got) {
    throw new SignatureError("unsigned");
  }
  if (!(await someSecret(secrets, async (secret) => equal(got, await bodySignature(secret, body, form))))) {
    throw new SignatureError("signature");
  }
  return readEvent(body, header(headers, "webhook-id") ?? "");
}

/** Returns one signature of `Webhook-Signature`. */
export async function standardSignature(
  secret: string,
  id: string,
  timestamp: string,
  body: DeliveryBody,
): Promise<string> {
  const mac = await hmac(standardKey(secret), concat(encode(`${id}.${timestamp}.`), encode(body)));
  return `v1,${encodeBase64(mac)}`;
}

/** Returns the value of `X-Service-Signature`. */
export async function bodySignature(secret: string, body: DeliveryBody, form: "a" | "b"): Promise<string> {
  const mac = await hmac(encode(secret), encode(body));
  const hex = Array.from(mac, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return form === "b" ? `sha256=${hex}` : hex;
}

async function someSecret(secrets: Secrets, matches: (secret: string) => Promise<boolean>): Promise<boolean> {
  const list = typeof secrets === "string" ? [secrets] : secrets;
  if (list.length === 0 || list.includes("")) {
    throw new TypeError("A secret must not be empty.");
  }
  for (const secret of list) {
    if (await matches(secret)) {
      return true;
    }
  }
  return false;
}

/** Returns the bytes after `whsec_`, or of any other secret as written. */
function standardKey(secret: string): Uint8Array {
  const encoded = /^whsec_([A-Za-z0-9+/]*)=*$/.exec(secret)?.[1];
  if (!encoded || encoded.length % 4 === 1) {
    return encode(secret);
  }
  return Uint8Array.from(atob(encoded), (c) => c.charCodeAt(0));
}

async function hmac(key: Uint8Array, data: Uint8Array): Promise<Uint8Array> {
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const imported = await crypto.subtle.importKey("raw", new Uint8Array(key), algorithm, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", imported, new Uint8Array(data)));
}

/** Compares in a time that depends on the lengths only. */
function equal(a: string, b: string): boolean {
  let difference = a.length ^ b.length;
  for (let i = 0; i < b.length; i++) {
    difference |= a.charCodeAt(i) ^ b.charCodeAt(i);
  }
  return difference === 0;
}

function header(headers: DeliveryHeaders, name: string): string | undefined {
  if (headers instanceof Headers) {
    return headers.get(name) ?? undefined;
  }
  const value = Object.entries(headers).find(([key]) => key.toLowerCase() === name)?.[1];
  return typeof value === "string" ? value : value?.[0];
}

function encode(text: DeliveryBody): Uint8Array {
  return typeof text === "string" ? new TextEncoder().encode(text) : text;
}

function concat(a: Uint8Array, b: Uint8Array): Uint8Array {
  const all = new Uint8Array(a.length + b.length);
  all.set(a);
  all.set(b, a.length);
  return all;
}

/** Form A has its id in the header only. */
function readEvent<T>(body: DeliveryBody, id: string): T {
  const text = typeof body === "string" ? body : new TextDecoder().decode(body);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    value = undefined;
  }
  if (typeof value !== "object" || value === null || !("event" in value) || typeof value.event !== "string") {
    throw new KickstandError("The delivery is signed, but is not an event.");
  }
  return { id, ...value } as T;
}
