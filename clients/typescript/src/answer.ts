import type { Deadline } from "./deadline.js";
import { type FieldError, ProblemError } from "./errors.js";
import { retryAfter } from "./retry.js";
import { readText } from "./stream.js";

/** The head of an answer. */
export interface AnswerInfo {
  readonly status: number;
  readonly headers: Headers;
  readonly etag: string | null;
  readonly requestId: string;
  /** Whether this is the stored answer of an earlier attempt. */
  readonly replayed: boolean;
  /** The key's window of a minute. */
  readonly rateLimit: { readonly limit: number; readonly remaining: number; readonly reset: Date } | null;
}

/** Returns the head of an answer. */
export function answerInfo({ status, headers }: Response): AnswerInfo {
  const [limit, remaining, reset] = ["limit", "remaining", "reset"].map((n) => headers.get(`x-ratelimit-${n}`));
  return {
    status,
    headers,
    etag: headers.get("etag"),
    requestId: headers.get("x-request-id") ?? "",
    replayed: headers.get("idempotent-replayed") === "true",
    rateLimit:
      limit && remaining && reset
        ? { limit: Number(limit), remaining: Number(remaining), reset: new Date(Number(reset) * 1000) }
        : null,
  };
}

/** Returns the JSON of an answer; null for 304, and undefined for no content. */
export async function readJSON<T>(response: Response, deadline: Deadline): Promise<T> {
  const text = await readText(response, deadline);
  if (response.status === 304) {
    return null as T;
  }
  if (response.status === 204) {
    return undefined as T;
  }
  const value = parseJSON(text);
  if (value === undefined) {
    throw plainProblem(response, "The answer is not JSON.", null);
  }
  return value as T;
}

/** The members that every problem has, or may have. */
const commonMembers = new Set(["type", "title", "status", "detail", "instance", "code", "request_id", "errors"]);

/** Returns the error of an answer. now is in milliseconds since 1970. */
export async function readProblem(response: Response, deadline: Deadline, now: number): Promise<ProblemError> {
  const wait = retryAfter(response.headers.get("retry-after"), now);
  const isProblem = /^application\/problem\+json\b/i.test(response.headers.get("content-type") ?? "");
  const value = parseJSON(await readText(response, deadline));
  if (!isProblem || typeof value !== "object" || value === null || Array.isArray(value)) {
    return plainProblem(response, `The server answered with status ${response.status}.`, wait);
  }
  const problem = value as Record<string, unknown>;
  return new ProblemError({
    status: response.status,
    code: string(problem["code"]),
    title: string(problem["title"]),
    detail: string(problem["detail"]) || `The server answered with status ${response.status}.`,
    type: string(problem["type"]),
    requestId: string(problem["request_id"]),
    errors: Array.isArray(problem["errors"]) ? (problem["errors"] as FieldError[]) : [],
    retryAfter: wait,
    members: Object.fromEntries(Object.entries(problem).filter(([name]) => !commonMembers.has(name))),
  });
}

function plainProblem(response: Response, detail: string, wait: number | null): ProblemError {
  const requestId = response.headers.get("x-request-id") ?? "";
  return new ProblemError({
    status: response.status,
    code: "",
    title: "",
    detail,
    type: "",
    requestId,
    errors: [],
    retryAfter: wait,
    members: {},
  });
}

function parseJSON(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function string(value: unknown): string {
  return typeof value === "string" ? value : "";
}
