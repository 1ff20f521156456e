// Code generated from internal/rpc. DO NOT EDIT.
import type { TRPCBuiltRouter, TRPCDefaultErrorShape, TRPCMutationProcedure, TRPCQueryProcedure } from "@trpc/server";

/** A wrong field of an input. */
export interface Issue {
  path: string;
  message: string;
}

/** The error of a call. */
export interface ErrorShape extends TRPCDefaultErrorShape {
  data: TRPCDefaultErrorShape["data"] & {
    reason?: "second_factor_required" | "second_factor_setup_required" | "fresh_proof_required";
    issues?: Issue[];
  };
}

interface Types<Input, Output> {
  meta: unknown;
  input: Input;
  output: Output;
  errorShape: ErrorShape;
}
type Query<Input, Output> = TRPCQueryProcedure<Types<Input, Output>>;
type Mutation<Input, Output> = TRPCMutationProcedure<Types<Input, Output>>;

export interface EnrolmentOutput {
  secret: string;
  uri: string;
  enrolment: string;
}

export interface PasswordChange {
  currentPassword: string;
  newPassword: string;
}

export interface SuccessOutput {
  success: boolean;
}

export interface SignupRequest {
  name: string;
  organizationName: string;
  planTier?: "free" | "pro" | "business" | null | undefined;
}

export interface SignupOutput {
  user: {
    id: string;
    email: string;
    name: string;
    organization_id: string;
    role: "admin" | "agent";
  };
  organization: {
    id: string;
    name: string;
    slug: string;
  };
  requiresPayment: boolean;
  checkoutUrl?: string;
}

export interface CodesOutput {
  success: boolean;
  recoveryCodes: string[];
}

export interface Deletion {
  email: string;
  revokeCredentials?: boolean | null | undefined;
}

export interface EnableTOTP {
  code: string;
  enrolment: string;
}

export interface PasskeyRecord {
  id: string;
  name: string;
  created_at: string;
  lastUsedAt: string | null;
}

export interface FactorsRecord {
  hasPassword: boolean;
  totpSince: string | null;
  passkeys: PasskeyRecord[];
  recoveryCodes: number;
  required: boolean;
}

export interface UserRecord {
  id: string;
  email: string;
  name: string;
  avatar_url: string | null;
  organization_id: string | null;
  role: "admin" | "agent" | null;
  preferences: unknown;
  created_at: string;
  updated_at: string;
}

export interface HasPasswordOutput {
  hasPassword: boolean;
}

export interface ProofInput {
  password?: string | null | undefined;
  totp?: string | null | undefined;
  recoveryCode?: string | null | undefined;
  mailedCode?: string | null | undefined;
}

export interface RecordID {
  id: string;
}

export interface PasswordReset {
  email: string;
}

export interface FirstPassword {
  password: string;
}

export interface EmailSignIn {
  email: string;
  redirectTo?: string | null | undefined;
}

export interface PasswordSignIn {
  email: string;
  password: string;
}

export interface PasswordSignInOutput {
  success: boolean;
  user: {
    id: string;
    email: string;
    created_at: string;
  };
}

export interface ProviderSignIn {
  redirectTo?: string | null | undefined;
}

export interface ProviderSignInOutput {
  url: string;
}

export interface Profile {
  name?: string | null | undefined;
  avatar_url?: string | null | undefined;
  preferences?: unknown;
}

export interface CodeInput {
  code: string;
}

export interface BillingRecord {
  planTier: "free" | "pro" | "business";
  pendingPlanTier: "free" | "pro" | "business" | null;
  pastDue: boolean;
  status: string | null;
  currentPeriodEnd: string | null;
  cancelAtPeriodEnd: boolean;
}

export interface StartCheckoutInput {
  planTier: "free" | "pro" | "business";
}

export interface StartCheckoutOutput {
  checkoutUrl: string;
}

export interface NewInvitation {
  email: string;
  role: "admin" | "agent";
}

export interface InvitationRecord {
  id: string;
  email: string;
  role: "admin" | "agent";
  invitedBy: string;
  created_at: string;
  expiresAt: string;
}

export interface MemberRecord {
  id: string;
  email: string;
  name: string;
  avatar_url: string | null;
  role: "admin" | "agent";
  created_at: string;
  updated_at: string;
}

export interface RemoveMember {
  id: string;
  revokeCredentials?: boolean | null | undefined;
}

export interface UpdateMember {
  id: string;
  role: "admin" | "agent";
}

export interface SignInPolicyRecord {
  providerOnly: string;
  hasProvider: boolean;
  secondFactorRequired: boolean;
}

export interface RequireSecondFactor {
  required: boolean;
}

export interface SetSignInPolicy {
  providerOnly: string;
}

export interface EndSessionsInput {
  includeCurrent?: boolean | null | undefined;
}

export interface EndSessionsOutput {
  success: boolean;
  ended: number;
}

export interface SessionRecord {
  id: string;
  device: string | null;
  ip: string | null;
  userAgent: string | null;
  current: boolean;
  created_at: string;
  lastUsedAt: string;
}

export interface DeleteSLAPolicy {
  priority: "low" | "normal" | "high" | "urgent";
}

export interface Interval {
  from: string;
  to: string;
}

export interface BusinessHours {
  timeZone: string;
  weekly: Record<string, Interval[]>;
  holidays?: string[];
}

export interface SlaPolicyRecord {
  priority: "low" | "normal" | "high" | "urgent";
  firstResponseMinutes: number | null;
  resolutionMinutes: number | null;
  businessHours: BusinessHours | null;
  created_at: string;
  updated_at: string;
}

export interface SetSLAPolicy {
  priority: "low" | "normal" | "high" | "urgent";
  firstResponseMinutes?: number | null | undefined;
  resolutionMinutes?: number | null | undefined;
  businessHours?: BusinessHours | null | undefined;
}

export interface CreateWebhook {
  url: string;
  source?: "helpdesk" | "fleet" | "sandbox" | null | undefined;
  events: string[];
  secret?: string | null | undefined;
  enabled?: boolean | null | undefined;
  payloadForm?: "a" | "b" | null | undefined;
  retrySchedule?: "one" | "two" | null | undefined;
  ordered?: boolean | null | undefined;
}

export interface WebhookRecord {
  id: string;
  url: string;
  source: "helpdesk" | "fleet" | "sandbox";
  events: string[];
  enabled: boolean;
  state: "enabled" | "disabled" | "failed";
  hasSecret: boolean;
  payloadForm: "a" | "b";
  retrySchedule: "one" | "two";
  ordered: boolean;
  drainRate: number | null;
  queuedEvents: number;
  droppedEvents: number;
  lastDeliveryAt: string | null;
  lastError: string | null;
  created_at: string;
  updated_at: string;
}

export interface FindDeliveries {
  webhookId?: string | null | undefined;
  event?: string | null | undefined;
  eventId?: string | null | undefined;
  ticketId?: string | null | undefined;
  ticketNumber?: number | null | undefined;
  states?: string[] | null | undefined;
  from?: Date | string | null | undefined;
  to?: Date | string | null | undefined;
  before?: string | null | undefined;
  limit?: number | null | undefined;
}

export interface AttemptRecord {
  number: number;
  at: string;
  statusCode: number | null;
  durationMs: number;
  error: string | null;
  response: string | null;
}

export interface DeliveryRecord {
  id: string;
  webhookId: string;
  eventId: string;
  event: string;
  state: string;
  test: boolean;
  attempts: number;
  lastAttempt: AttemptRecord | null;
  nextAttemptAt: string | null;
  created_at: string;
}

export interface DeliveriesOutput {
  deliveries: DeliveryRecord[];
  next: string | null;
}

export interface RequestRecord {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string | null;
}

export interface AttemptDetail {
  number: number;
  at: string;
  statusCode: number | null;
  durationMs: number;
  error: string | null;
  response: string | null;
  request: RequestRecord | null;
}

export interface DeliveryDetail {
  id: string;
  webhookId: string;
  eventId: string;
  event: string;
  state: string;
  test: boolean;
  lastAttempt: AttemptRecord | null;
  nextAttemptAt: string | null;
  created_at: string;
  attempts: AttemptDetail[];
}

export interface ReplayInput {
  deliveryIds?: string[] | null | undefined;
  eventId?: string | null | undefined;
  webhookId?: string | null | undefined;
  from?: Date | string | null | undefined;
  to?: Date | string | null | undefined;
  failedOnly?: boolean | null | undefined;
  event?: string | null | undefined;
}

export interface ReplayOutput {
  replayed: number;
  deliveryIds?: string[];
}

export interface TestOutput {
  success: boolean;
  deliveryId: string;
  statusCode: number | null;
  durationMs: number;
  error: string | null;
}

export interface UpcomingInput {
  webhookId: string;
  limit?: number | null | undefined;
}

export interface UpcomingRecord {
  id: string;
  eventId: string;
  event: string;
  attempt: number;
  waitsFor: "now" | "time" | "turn" | "enabled";
  dueAt: string;
  further: string[];
  created_at: string;
}

export interface UpdateWebhook {
  id: string;
  url?: string | null | undefined;
  events?: string[] | null | undefined;
  secret?: string | null | undefined;
  unsigned?: boolean | null | undefined;
  enabled?: boolean | null | undefined;
  payloadForm?: "a" | "b" | null | undefined;
  retrySchedule?: "one" | "two" | null | undefined;
  ordered?: boolean | null | undefined;
  drainRate?: number | null | undefined;
}

/** The procedures by group. */
export type Procedures = {
  auth: {
    beginTotp: Mutation<void, EnrolmentOutput>;
    changePassword: Mutation<PasswordChange, SuccessOutput>;
    completeSignup: Mutation<SignupRequest, SignupOutput>;
    createRecoveryCodes: Mutation<void, CodesOutput>;
    deleteAccount: Mutation<Deletion, SuccessOutput>;
    disableTotp: Mutation<void, SuccessOutput>;
    enableTotp: Mutation<EnableTOTP, CodesOutput>;
    getFactors: Query<void, FactorsRecord>;
    getUser: Query<void, UserRecord>;
    hasPassword: Query<void, HasPasswordOutput>;
    mailProofCode: Mutation<void, SuccessOutput>;
    proveIdentity: Mutation<ProofInput | void, SuccessOutput>;
    removePasskey: Mutation<RecordID, SuccessOutput>;
    sendPasswordReset: Mutation<PasswordReset, SuccessOutput>;
    setPassword: Mutation<FirstPassword, SuccessOutput>;
    signInWithEmail: Mutation<EmailSignIn, SuccessOutput>;
    signInWithPassword: Mutation<PasswordSignIn, PasswordSignInOutput>;
    signInWithProvider: Mutation<ProviderSignIn | void, ProviderSignInOutput>;
    signOut: Mutation<void, SuccessOutput>;
    updateProfile: Mutation<Profile | void, UserRecord>;
    verifyRecoveryCode: Mutation<CodeInput, PasswordSignInOutput>;
    verifyTotp: Mutation<CodeInput, PasswordSignInOutput>;
  };
  billing: {
    get: Query<void, BillingRecord>;
    startCheckout: Mutation<StartCheckoutInput, StartCheckoutOutput>;
  };
  invitations: {
    create: Mutation<NewInvitation, InvitationRecord>;
    list: Query<void, InvitationRecord[]>;
    revoke: Mutation<RecordID, SuccessOutput>;
  };
  members: {
    list: Query<void, MemberRecord[]>;
    remove: Mutation<RemoveMember, SuccessOutput>;
    resetFactors: Mutation<RecordID, SuccessOutput>;
    update: Mutation<UpdateMember, MemberRecord>;
  };
  organization: {
    getSignIn: Query<void, SignInPolicyRecord>;
    requireSecondFactor: Mutation<RequireSecondFactor, SignInPolicyRecord>;
    setSignIn: Mutation<SetSignInPolicy, SignInPolicyRecord>;
  };
  sessions: {
    end: Mutation<RecordID, SuccessOutput>;
    endAll: Mutation<EndSessionsInput | void, EndSessionsOutput>;
    list: Query<void, SessionRecord[]>;
  };
  slaPolicies: {
    delete: Mutation<DeleteSLAPolicy, SuccessOutput>;
    list: Query<void, SlaPolicyRecord[]>;
    set: Mutation<SetSLAPolicy, SlaPolicyRecord>;
  };
  webhooks: {
    create: Mutation<CreateWebhook, WebhookRecord>;
    delete: Mutation<RecordID, SuccessOutput>;
    deliveries: Query<FindDeliveries | void, DeliveriesOutput>;
    delivery: Query<RecordID, DeliveryDetail>;
    list: Query<void, WebhookRecord[]>;
    replay: Mutation<ReplayInput | void, ReplayOutput>;
    test: Mutation<RecordID, TestOutput>;
    upcoming: Query<UpcomingInput, UpcomingRecord[]>;
    update: Mutation<UpdateWebhook, WebhookRecord>;
  };
};

/** The server's router, for `createTRPCClient<AppRouter>` with the transformer superjson. */
export type AppRouter = TRPCBuiltRouter<
  { ctx: object; meta: object; errorShape: ErrorShape; transformer: true },
  Procedures
>;
