export type { AnswerInfo } from "./answer.js";
export { attachment, type Attachment } from "./attachment.js";
export type { CallOptions, ClientOptions, ConditionalOptions, ModifyOptions } from "./client.js";
export * from "./codes.js";
export {
  ConnectionError,
  type FieldError,
  KickstandError,
  ProblemError,
  type ProblemInit,
  SignatureError,
  TimeoutError,
} from "./errors.js";
export * from "./fleet.js";
export * from "./helpdesk.js";
export { Import, type ImportLine, type ImportProblem, type ImportSummary } from "./import.js";
export { Page, type PagePromise } from "./page.js";
export type { Clock } from "./retry.js";
export type { OrUnknown } from "./types.js";
export { version } from "./version.js";
export * as webhooks from "./webhooks.js";
