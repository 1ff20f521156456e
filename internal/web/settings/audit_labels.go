package settings

import "github.com/kickstand-dev/kickstand/internal/audit"

// groupTexts are the labels of action groups, the part before the dot.
var groupTexts = [][2]string{
	{"sign_in", "Sign-ins"}, {"sign_out", "Sign-outs"}, {"session", "Sessions"}, {"password", "Passwords"}, {"second_factor", "Second factors"},
	{"passkey", "Passkeys"}, {"totp", "Authenticator apps"}, {"user", "Users"}, {"member", "Members"}, {"invitation", "Invitations"},
	{"organization", "Organization"}, {"quota", "Quotas"}, {"api_key", "API keys"}, {"webhook", "Webhooks"}, {"channel", "Channels"}, {"inbound_event", "Inbound events"},
	{"sla_policy", "Service levels"}, {"macro", "Macros"}, {"ticket", "Tickets"}, {"customer", "Customers"}, {"view", "Views"}, {"privacy_request", "Privacy requests"},
	{"import", "Imports of history"}, {"records", "Exports and imports"}, {"tool", "MCP clients"}, {"settings", "Fleet settings"}, {"subaccount", "Subaccounts"}, {"pricing", "Pricing"}, {"zone", "Zones"},
	{"vehicle", "Vehicles"}, {"ride", "Rides"}, {"fleet", "Fleet"}, {"sandbox", "Sandbox"}, {"audit", "Audit log"}, {"server_setting", "Server settings"},
}

// actions are the labels of the actions, in the filter's order.
var actions = [][2]string{
	{"sign_in.completed", "Signed in"}, {"sign_in.refused", "Sign-in refused"}, {"sign_in.limited", "Too many sign-in attempts"},
	{"sign_in_link.created", "Sign-in link created by the operator"}, {"sign_up.refused", "Sign-up refused"}, {"sign_out.completed", "Signed out"},
	{"session.ended", "Session ended"}, {"session.token_reused", "Session ended: its token was used twice"},
	{"second_factor.refused", "Second factor refused"}, {"passkey.added", "Passkey added"}, {"passkey.removed", "Passkey removed"}, {"passkey.renamed", "Passkey renamed"},
	{"totp.enabled", "Authenticator app added"}, {"totp.disabled", "Authenticator app removed"},
	{"recovery_code.used", "Recovery code used"}, {"recovery_codes.created", "Recovery codes created"}, {"factors.reset", "Second factors reset"},
	{"password.set", "Password set"}, {"password.changed", "Password changed"}, {"password.reset", "Password reset"}, {"password.change_refused", "Password change refused"},
	{"identity.linked", "Identity provider linked"}, {"identity.unlinked", "Identity provider unlinked"}, {"identity.refused", "Identity refused"},
	{"user.created", "User created"}, {"user.deleted", "User deleted"}, {"user.profile_updated", "Profile changed"},
	{"member.joined", "Member joined"}, {"member.role_changed", "Role changed"}, {"member.removed", "Member removed"}, {"members.exported", "Members exported"},
	{"invitation.created", "Invitation sent"}, {"invitation.revoked", "Invitation revoked"},
	{"organization.created", "Organization created"}, {"organization.updated", "Organization changed"}, {"organization.plan_changed", "Plan changed"}, {"organization.default_set", "Default organization set"},
	{"quota.updated", "Quotas changed by the operator"}, {"quota.reached", "Quota used up"}, {"quota.recounted", "Storage counted anew"},
	{"api_key.created", "API key created"}, {"api_key.updated", "API key changed"}, {"api_key.rotated", "API key rotated"}, {"api_key.revoked", "API key revoked"},
	{"api_key.expired", "API key expired"}, {"api_key.deleted", "API key deleted"}, {"api_key.refused", "API key refused"},
	{"webhook.created", "Webhook created"}, {"webhook.updated", "Webhook changed"}, {"webhook.deleted", "Webhook deleted"}, {"webhook.failed", "Webhook disabled after failures"},
	{"webhook.replayed", "Deliveries replayed"}, {"webhook.discarded", "Deliveries discarded by the operator"}, {"webhook.tested", "Webhook tested"},
	{"channel.connected", "Channel connected"}, {"channel.updated", "Channel changed"}, {"channel.secret_rotated", "Channel secret rotated"}, {"channel.disconnected", "Channel disconnected"},
	{"channel.proof_started", "Proof of address started"}, {"channel.proven", "Address proven"}, {"channel.proof_lost", "Proof of address lost"},
	{"inbound_event.viewed", "Raw request viewed"}, {"inbound_event.replayed", "Inbound event replayed"}, {"inbound_event.routed", "Inbound event routed"}, {"inbound.refused", "Unsigned request refused"},
	{"sla_policy.updated", "Service level changed"}, {"sla_policy.deleted", "Service level deleted"},
	{"macro.created", "Macro created"}, {"macro.updated", "Macro changed"}, {"macro.deleted", "Macro deleted"},
	{"ticket.merged", "Ticket merged"}, {"ticket.unmerged", "Merge undone"}, {"ticket.split", "Ticket split"}, {"ticket.deleted", "Ticket deleted"},
	{"customer.deleted", "Customer deleted"}, {"customer.redacted", "Customer redacted"}, {"customer.merged", "Customer merged"}, {"customer.unmerged", "Merge of customers undone"}, {"customer.blocked", "Rider blocked"}, {"customer.unblocked", "Rider unblocked"}, {"customer.anonymized", "Rider anonymized"},
	{"view.created", "Shared view created"}, {"view.updated", "Shared view changed"}, {"view.deleted", "Shared view deleted"},
	{"privacy_request.received", "Privacy request received"}, {"privacy_request.completed", "Privacy request completed"}, {"privacy_request.archive_fetched", "Privacy archive downloaded"},
	{"import.started", "Import of history started"}, {"import.finished", "Import of history finished"}, {"import.undone", "Import of history undone"},
	{"records.exported", "Records exported"}, {"records.imported", "Records imported"}, {"tool.called", "Tool called by an MCP client"},
	{"settings.updated", "Fleet settings changed"}, {"subaccount.created", "Subaccount created"}, {"subaccount.updated", "Subaccount changed"},
	{"pricing.created", "Pricing created"}, {"pricing.updated", "Pricing changed"}, {"zone.created", "Zone created"}, {"zone.updated", "Zone changed"}, {"zone.deleted", "Zone deleted"},
	{"alert_rule.created", "Alert rule created"}, {"alert_rule.updated", "Alert rule changed"}, {"alert_rule.deleted", "Alert rule deleted"}, {"alert.acknowledged", "Alert acknowledged"},
	{"vehicle.updated", "Vehicle changed from a ticket"}, {"vehicle.deleted", "Vehicle deleted"},
	{"task.created", "Task created"}, {"task.updated", "Task changed"},
	{"tracker.created", "Address of a tracker created"}, {"tracker.deleted", "Address of a tracker deleted"},
	{"ride.ended_by_operator", "Ride ended by an operator"}, {"ride.updated", "Ride changed from a ticket"},
	{"fleet.imported", "Fleet imported"}, {"fleet.exported", "Fleet exported"}, {"fleet.seeded", "Fleet filled with sample data"},
	{"sandbox.reset", "Sandbox reset"}, {"sandbox.clock_advanced", "Sandbox clock advanced"},
	{"audit.exported", "Audit log exported"}, {"audit.verified", "Audit log verified"}, {"audit.verification_failed", "Audit log failed verification"},
	{"server_setting.updated", "Setting of the server changed"}, {"deployment.restored", "Restored from a backup"}, {"deployment.moved", "Moved to another database"},
	{"outgoing.held", "Outgoing work held"}, {"outgoing.released", "Outgoing work released"}, {"outgoing.discarded", "Outgoing work discarded"},
	{"audit.chain_started", "Audit log started"}, {"refusals.merged", "Further refusals"}, {"request.foreign_host", "Request for another host refused"}, {"tenant.refused", "Request for a foreign record refused"},
}

// actionText returns the label of an action, or its name if it has none.
func actionText(a audit.Action) string {
	for _, known := range actions {
		if known[0] == a {
			return known[1]
		}
	}
	return a
}
