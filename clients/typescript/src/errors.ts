import type { ProblemCode } from "./codes.js";

/** The base of all errors of this package, apart from a TypeError for wrong arguments. */
export class KickstandError extends Error {
  override name = "KickstandError";
}

/** No connection, a broken connection, or an answer that was cut short. */
export class ConnectionError extends KickstandError {
  override name = "ConnectionError";
}

/** An attempt took longer than the timeout. */
export class TimeoutError extends KickstandError {
  override name = "TimeoutError";
}

/** One wrong field, parameter or header of a request. */
export interface FieldError {
  readonly code: string;
  readonly detail: string;
  /** A JSON pointer into the body: `#/subject`. */
  readonly pointer?: string;
  readonly parameter?: string;
  readonly header?: string;
}

/** The values of a {@link ProblemError}. */
export interface ProblemInit {
  readonly status: number;
  readonly code: string;
  readonly title: string;
  readonly detail: string;
  readonly type: string;
  readonly requestId: string;
  readonly errors: readonly FieldError[];
  readonly retryAfter: number | null;
  readonly members: Readonly<Record<string, unknown>>;
}

/**
 * An answer other than success: a problem document (RFC 9457). An answer that is none, such as
 * a proxy's page, has the code `""`.
 */
export class ProblemError extends KickstandError {
  override name = "ProblemError";
  readonly status: number;
  readonly code: ProblemCode | "" | (string & {});
  readonly title: string;
  readonly detail: string;
  /** The address of a page that explains the code. */
  readonly type: string;
  /** The id of the request in the server's log, or `""`. */
  readonly requestId: string;
  readonly errors: readonly FieldError[];
  /** Seconds to wait before another attempt; null if the answer names none. */
  readonly retryAfter: number | null;
  /** The problem's own members, such as `required`, `member`, `policy` or `message`. */
  readonly members: Readonly<Record<string, unknown>>;

  constructor(p: ProblemInit) {
    const context = [p.code, p.requestId && `request ${p.requestId}`].filter((s) => s !== "").join(", ");
    super(context === "" ? p.detail : `${p.detail} (${context})`);
    this.status = p.status;
    this.code = p.code;
    this.title = p.title;
    this.detail = p.detail;
    this.type = p.type;
    this.requestId = p.requestId;
    this.errors = p.errors;
    this.retryAfter = p.retryAfter;
    this.members = p.members;
  }
}

/** A webhook delivery that is not signed, or not by one of the secrets, or too old or new. */
export class SignatureError extends KickstandError {
  override name = "SignatureError";
  readonly reason: "unsigned" | "signature" | "timestamp";

  constructor(reason: SignatureError["reason"]) {
    super(messages[reason]);
    this.reason = reason;
  }
}

const messages = {
  unsigned: "The delivery is not signed.",
  signature: "The signature does not match the body and the secrets.",
  timestamp: "The delivery's timestamp differs too much from the clock.",
};
