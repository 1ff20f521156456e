import { ConnectionError, ProblemError, TimeoutError } from "./errors.js";

/** The time, and a wait that ends early with the signal's reason. */
export interface Clock {
  /** Milliseconds since 1970. */
  now(): number;
  sleep(milliseconds: number, signal?: AbortSignal): Promise<void>;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  sleep: (milliseconds, signal) =>
    new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(signal.reason);
        return;
      }
      const abort = () => {
        clearTimeout(timer);
        reject(signal?.reason);
      };
      const timer = setTimeout(() => {
        signal?.removeEventListener("abort", abort);
        resolve();
      }, milliseconds);
      signal?.addEventListener("abort", abort, { once: true });
    }),
};

const retriedStatuses = new Set([408, 429, 500, 502, 503, 504]);

function isRetried(error: unknown): boolean {
  if (error instanceof ProblemError) {
    return retriedStatuses.has(error.status) || (error.status === 409 && error.code === "idempotency_in_progress");
  }
  return (error instanceof ConnectionError && !isCertificateError(error.cause)) || error instanceof TimeoutError;
}

/** Reports whether a certificate is not valid: another attempt would find the same one. */
function isCertificateError(cause: unknown): boolean {
  const { code, cause: inner } = (cause ?? {}) as { code?: unknown; cause?: { code?: unknown } };
  return [code, inner?.code].some((c) => typeof c === "string" && /CERT|VERIFY/.test(c));
}

/**
 * Returns the milliseconds to wait before retry n, counted from 0, or undefined if the error
 * is not retried. random is from 0 up to 1.
 */
export function retryWait(error: unknown, n: number, random: number, longest: number): number | undefined {
  if (!isRetried(error)) {
    return undefined;
  }
  const base = Math.min(8000, 500 * 2 ** n);
  if (error instanceof ProblemError && error.retryAfter !== null) {
    const wait = error.retryAfter * 1000;
    return wait > longest ? undefined : wait + random * Math.min(1000, base);
  }
  return base / 2 + (random * base) / 2;
}

/** Returns the seconds of a Retry-After header, or null if it has none. */
export function retryAfter(header: string | null, now: number): number | null {
  const value = header?.trim() ?? "";
  if (/^\d+$/.test(value)) {
    return Number(value);
  }
  if (/^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/.test(value)) {
    const date = Date.parse(value);
    return Number.isNaN(date) ? null : Math.max(0, Math.ceil((date - now) / 1000));
  }
  return null;
}
