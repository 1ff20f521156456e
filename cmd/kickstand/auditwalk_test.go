package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"

	"github.com/alecthomas/kong"
)

// auditedCommands run in this order; each must leave an entry of its action by the
// operator. KEY stands for the id of the newest key.
var auditedCommands = []struct {
	command, args string
	action        audit.Action
}{
	{"org create", "--name=Acme", "organization.created"},
	{"org create", "--name=Other", "organization.created"},
	{"org default", "other", "organization.default_set"},
	{"user create", "--email=ada@example.com --org=acme --role=admin --password=correct-horse-battery", "user.created"},
	{"user create", "--email=ben@example.com --org=acme --role=agent", "user.created"},
	{"user link", "ada@example.com", "sign_in_link.created"},
	{"user delete", "ben@example.com", "user.deleted"},
	{"org quota", "acme --messages=500 --recount", "quota.updated"},
	{"channel connect", "sms --org=acme --address=+14155550100", "channel.connected"},
	{"key create", "--org=acme --service=helpdesk --environment=live --name=One --level=read_only", "api_key.created"},
	{"key rotate", "KEY", "api_key.rotated"},
	{"key revoke", "KEY", "api_key.revoked"},
	{"key delete", "KEY", "api_key.deleted"},
	{"sla set", "--org=acme --priority=high --first-response=30m", "sla_policy.updated"},
	{"sla delete", "--org=acme --priority=high", "sla_policy.deleted"},
	{"fleet seed", "--org=acme --environment=live", "fleet.seeded"},
	{"fleet export", "--org=acme --environment=live --what=vehicles", "fleet.exported"},
	{"fleet tracker", "--org=acme --environment=live B-0101", "tracker.created"},
	{"fleet tracker", "--org=acme --environment=live B-0101 --delete", "tracker.deleted"},
	{"audit export", "--org=acme", "audit.exported"},
	{"hold", "", "outgoing.held"},
	{"release", "--discard=mails", "outgoing.discarded"},
	{"release", "--send", "outgoing.released"},
}

// otherCommands leave no entry, or are tested elsewhere, with the reason.
var otherCommands = map[string]string{
	"serve": "runs the server", "demo": "fills a folder of its own", "trigger": "asks a running server", "listen": "changes nothing",
	"doctor": "changes nothing", "mcp": "asks a running server", "openapi": "changes nothing", "config": "changes nothing", "version": "changes nothing", "migrate": "the schema alone; in the server's log",
	"ready": "asks a running server", "verify": "reads", "backup": "reads what the operator can copy without the program",
	"restore": "deployment.restored, by package app, in the database that it fills", "move": "deployment.moved, by package app, in the database that it fills",
	"org list": "reads", "channel list": "reads", "channel show": "reads", "key list": "reads", "sla list": "reads", "privacy list": "reads",
	"audit list": "reads", "audit verify": "reads", "inbound list": "reads", "webhook list": "reads", "webhook deliveries": "reads", "webhook show": "reads",
	"org sign-in":        "organization.updated, by package account; needs an identity provider",
	"user reset-factors": "factors.reset, by package account/factor; needs a factor",
	"user unlink":        "identity.unlinked, by package account; needs an identity provider",
	"channel prove":      "channel.proven, by package connection; needs an address without a proof",
	"fleet trigger":      "changes records of the sandbox, as its API does",
	"fleet import":       "fleet.imported, by package fleet, when something is imported",
	"import mbox":        "import.started and import.finished, by package importer",
	"import csv":         "as import mbox",
	"import zendesk":     "as import mbox",
	"import list":        "reads",
	"import show":        "reads",
	"import undo":        "import.undone, by package importer",
	"inbound show":       "inbound_event.viewed, as getRawInboundEvent of the REST API",
	"inbound replay":     "inbound_event.replayed, as replayInboundEvent of the REST API",
	"inbound route":      "inbound_event.routed, by package inbound",
	"webhook replay":     "webhook.replayed, as replayDelivery of the REST API",
	"webhook enable":     "webhook.updated, as updateWebhook of the REST API",
	"webhook disable":    "webhook.updated, as updateWebhook of the REST API",
}

// TestRestoreAndMoveAreAudited: the database that they fill has an entry by the operator, and its
// chains verify.
func TestRestoreAndMoveAreAudited(t *testing.T) {
	backups, data, restored, moved := someBackup(t), "--data="+t.TempDir(), "--database-url="+dbtest.EmptyURL(t), dbtest.EmptyURL(t)
	try := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		if err := run(t.Context(), append(args, data, "--json"), noEnvironment, nil, &out, t.Output()); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return out.String()
	}
	try("restore", backups, restored)
	try("move", restored, "--to="+moved)
	moved = "--database-url=" + moved
	try("audit", "verify", moved)
	for _, action := range []audit.Action{"deployment.restored", "deployment.moved"} {
		var list []audit.Record
		if err := json.Unmarshal([]byte(try("audit", "list", "--action="+action, moved)), &list); err != nil {
			t.Fatal(err)
		}
		if len(list) != 1 || list[0].Actor.Type != audit.Operator || list[0].Surface != audit.CLI {
			t.Errorf("%s: got %+v", action, list)
		}
	}
}

// TestEveryCommandIsAudited runs every command that changes records, and fails for an
// unlisted one.
func TestEveryCommandIsAudited(t *testing.T) {
	known := map[string]bool{}
	common := []string{"--data=" + t.TempDir(), "--database-url=" + dbtest.URL(t), "--json"}
	try := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := run(t.Context(), append(args, common...), noEnvironment, strings.NewReader(""), &out, t.Output())
		return out.String(), err
	}
	entries := func(a audit.Action) (n int) {
		t.Helper()
		for _, of := range []string{"", "--org=acme", "--org=other"} {
			args := append([]string{"audit", "list", "--limit=500", "--action=" + a}, strings.Fields(of)...)
			out, err := try(args...)
			if err != nil {
				continue // no such organization yet
			}
			var list []audit.Record
			if err := json.Unmarshal([]byte(out), &list); err != nil {
				t.Fatal(out, err)
			}
			for _, e := range list {
				if e.Actor.Type == audit.Operator && e.Surface == audit.CLI {
					n++
				}
			}
		}
		return n
	}
	key := ""
	for _, c := range auditedCommands {
		known[c.command] = true
		before := entries(c.action)
		out, err := try(strings.Fields(c.command + " " + strings.ReplaceAll(c.args, "KEY", key))...)
		if err != nil {
			t.Fatalf("kickstand %s %s: %v", c.command, c.args, err)
		}
		var made struct{ ID string }
		if strings.HasPrefix(c.command, "key ") && json.Unmarshal([]byte(out), &made) == nil && made.ID != "" {
			key = made.ID
		}
		if n := entries(c.action); n <= before {
			t.Errorf("kickstand %s left no entry of %s by the operator", c.command, c.action)
		}
	}
	parser, err := kong.New(new(commands))
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(true) {
		name := strings.TrimPrefix(leaf.Path(), "kickstand ")
		name, _, _ = strings.Cut(name, " <")
		_, known1 := otherCommands[name]
		_, group := otherCommands[strings.Fields(name)[0]]
		if !known[name] && !known1 && !group {
			t.Errorf("%s: add what it records, or the reason for nothing", name)
		}
	}
}
