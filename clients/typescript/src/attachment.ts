/** A file of a new message. */
export interface Attachment {
  name: string;
  content_type?: string;
  /** Base64. */
  content: string;
}

/** Returns the member of `attachments` for a file. */
export function attachment(content: Uint8Array | ArrayBuffer, name: string, contentType?: string): Attachment {
  const bytes = content instanceof Uint8Array ? content : new Uint8Array(content);
  return { name, ...(contentType !== undefined && { content_type: contentType }), content: encodeBase64(bytes) };
}

/** Returns bytes in base64. */
export function encodeBase64(bytes: Uint8Array): string {
  const step = 0x8000; // more arguments could overflow the stack
  let binary = "";
  for (let at = 0; at < bytes.length; at += step) {
    binary += String.fromCharCode(...bytes.subarray(at, at + step));
  }
  return btoa(binary);
}
