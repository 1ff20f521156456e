import { bodySignature, type DeliveryBody, standardSignature } from "./webhooks.js";

/** The signed headers of a delivery. */
export interface SignedHeaders {
  "content-type": string;
  "webhook-id": string;
  "webhook-timestamp": string;
  "webhook-signature": string;
  "x-service-signature": string;
  [name: string]: string;
}

/** Returns the headers of a delivery as the server signs it, to test a receiver. */
export async function sign(
  body: DeliveryBody,
  secret: string,
  { id = crypto.randomUUID(), at = new Date(), form = "b" }: { id?: string; at?: Date; form?: "a" | "b" } = {},
): Promise<SignedHeaders> {
  const timestamp = String(Math.floor(at.getTime() / 1000));
  return {
    "content-type": "application/json",
    "webhook-id": id,
    "webhook-timestamp": timestamp,
    "webhook-signature": await standardSignature(secret, id, timestamp, body),
    "x-service-signature": await bodySignature(secret, body, form),
  };
}
