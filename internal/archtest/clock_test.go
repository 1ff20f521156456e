package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// processClock lists the functions that may read the process's clock, by what for: in none does
// it decide anything that other processes share, or that outlives the process.
var processClock = map[string][]string{
	"durations, pauses and deadlines within the process": {
		"cmd/kickstand.env.copyProgress",
		"cmd/kickstand.env.progress",
		"internal/account.hashers.acquire",
		"internal/app.limitUnreadBody",
		"internal/app.measuredStore.Delete",
		"internal/app.measuredStore.Open",
		"internal/app.measuredStore.Put",
		"internal/app.measuredStore.done",
		"internal/app.readiness.report",
		"internal/bodypool.Pool.Read",
		"internal/bodypool.Pool.advance",
		"internal/bodypool.Pool.reserve",
		"internal/bodypool.Pool.victim",
		"internal/connection.Service.ListByChannels",
		"internal/fleet.Service.applyDue",
		"internal/fleet.Service.runRollups",
		"internal/inbound.Service.enrich",
		"internal/inbound.Service.locate",
		"internal/mail.SMTP.session",
		"internal/mds.partWriter.Write",
		"internal/outbound.routes.acquire",
		"internal/outbound.routes.pause",
		"internal/outbound.routes.release",
		"internal/queue.Queue.observed",
		"internal/live.Stream.Send",
		"internal/rest.API.begin",
		"internal/rest.API.logRequest",
		"internal/rest.pieceWriter.Write",
		"internal/smtpd.Service.ServeConn",
		"internal/smtpd.newSession",
		"internal/smtpd.session.data",
		"internal/smtpd.session.linger",
		"internal/smtpd.session.startTLS",
		"internal/smtpd.session.turn",
		"internal/smtpd.wire.Read",
		"internal/smtpd.wire.Write",
		"internal/tiles.newOrigin",
		"internal/tiles.origin.elapsed",
		"internal/webhook.Service.pace",
		"internal/webhook.Service.post",
		"internal/webhook.backlogOrder.done",
		"internal/webhook.backlogOrder.enter",
		"internal/webhook.backlogOrder.state",
	},
	"ages of values that the process caches": {
		"internal/account/oidc.Provider.metadata",
		"internal/app.figures.stored",
		"internal/cache.Cache.GetOrPut",
		"internal/cache.Cache.Start",
		"internal/cache.Cache.get",
		"internal/fleet.recentStamp",
		"internal/gbfs.Feed.cached",
		"internal/mailauth.Resolver.cached",
		"internal/mailauth.Resolver.store",
	},
	"limits and windows that one process counts on its own": {
		"internal/ratelimit.Limiter.Allow",
		"internal/ratelimit.Limiter.Wait",
		"internal/ratelimit.Memory.AcquireUpTo",
		"internal/ratelimit.Memory.Peek",
		"internal/ratelimit.New",
		"internal/ratelimit.breaker.enter",
		"internal/ratelimit.breaker.leave",
		"internal/ratelimit.server.pool",
		"internal/ratelimit.state",
		"internal/rest.API.allowRequest",
		"internal/rest.API.peek",
		"internal/rest.API.refuse",
		"internal/rest.Budget.OverBudget",
		"internal/rest.Request.limits",
		"internal/rest/osmand.Handler.count",
		"internal/rest/visitorapi.Handler.count",
	},
	"the process's view of its leases and submissions": {
		"internal/outbound.attempt.checkSubmission",
		"internal/outbound.attempt.recordSubmission",
		"internal/queue.Job.CheckLease",
		"internal/queue.runner.claim",
		"internal/queue.runner.heartbeatWhileBusy",
		"internal/queue.runner.waitForStore",
	},
	"how often a line is logged": {
		"internal/inbound.Service.logUnrouted",
		"internal/loop.Trouble.Failed",
		"internal/loop.Trouble.Succeeded",
		"internal/queue.Queue.pollKinds",
		"internal/queue.runner.loop",
		"internal/queue.runner.run",
	},
	"a stand-in for a provider or a receiver, which has a clock of its own": {
		"cmd/kickstand.demoLetter",
		"cmd/kickstand.demoMessages",
		"cmd/kickstand.demoProviders.accept",
		"cmd/kickstand.demoProviders.postChat",
		"cmd/kickstand.env.newProviders",
		"cmd/kickstand.listenCmd.check",
		"cmd/kickstand.triggerCmd.api",
		"cmd/kickstand.triggerCmd.business",
		"cmd/kickstand.triggerCmd.chat",
		"cmd/kickstand.triggerCmd.compose",
		"cmd/kickstand.triggerCmd.connect",
		"cmd/kickstand.triggerCmd.emailDelivery",
		"cmd/kickstand.triggerCmd.emailForm",
		"cmd/kickstand.triggerCmd.emailJSON",
		"cmd/kickstand.triggerCmd.emailParse",
		"cmd/kickstand.triggerCmd.emailRaw",
		"cmd/kickstand.triggerCmd.marketplace",
		"cmd/kickstand.triggerCmd.messenger",
		"cmd/kickstand.triggerCmd.payments",
		"cmd/kickstand.triggerCmd.storefront",
		"cmd/kickstand.triggerCmd.voice",
		"internal/mail.store",
	},
	"files and certificates of this machine, compared with its own clock, or corrected by the skew": {
		"cmd/kickstand.moment.UnmarshalText",
		"internal/app.Config.forwarded",
		"internal/app.proxyMonitor.count",
		"internal/app/doctor.Clock",
		"internal/app/doctor.MailCertificate",
		"internal/app/doctor.checkURL",
		"internal/blob.Dir.prepare",
	},
}

// ownClock lists packages that may read it anywhere.
var ownClock = map[string]string{
	"internal/db":        "its clock is behind DB.Now and Tx.Now",
	"bench":              "it measures durations",
	"internal/telemetry": "it measures durations, and log lines have the process's time",
}

const useDatabaseClock = "the process's clock may be wrong, and differs between processes (docs/adr/0040-clock.md). " +
	"In a transaction use tx.Now, elsewhere DB.Now, or take the time as an argument. " +
	"If the value only measures a duration within this process, list the function in processClock (internal/archtest/clock_test.go)"

// TestClock refuses the process's clock, except where it is listed.
func TestClock(t *testing.T) {
	for _, p := range repository(t) {
		for _, w := range checkClock(p) {
			t.Error(w)
		}
	}
}

// checkClock reports functions that read the process's clock unlisted.
func checkClock(p *pkg) []string {
	if _, ok := ownClock[p.path]; ok || strings.HasSuffix(path.Base(p.path), "test") {
		return nil
	}
	var wrong []string
	for _, f := range p.files {
		if f.test {
			continue
		}
		for _, d := range f.syntax.Decls {
			name := p.path
			if fn, ok := d.(*ast.FuncDecl); ok {
				if fn.Recv != nil {
					name += "." + receiver(fn.Recv.List[0].Type)
				}
				name += "." + fn.Name.Name
			}
			ast.Inspect(d, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				x, ok := s.X.(*ast.Ident)
				if !ok || x.Name != "time" || !slices.Contains([]string{"Now", "Since", "Until"}, s.Sel.Name) {
					return true
				}
				if !listed(name) {
					wrong = append(wrong, fmt.Sprintf("%s: time.%s in %s: %s", f.at(n), s.Sel.Name, name, useDatabaseClock))
				}
				return true
			})
		}
	}
	return wrong
}

func listed(name string) bool {
	for _, names := range processClock {
		if slices.Contains(names, name) {
			return true
		}
	}
	return false
}

// TestClockRuleCatches checks the rule itself, so that a broken one cannot pass.
func TestClockRuleCatches(t *testing.T) {
	for _, c := range []struct {
		file, text string
		wrong      int
	}{
		{"internal/p/p.go", `package p; import "time"; func f() { g(time.Now()) }`, 1},
		{"internal/p/p.go", `package p; import "time"; var now = time.Now`, 1},
		{"internal/p/p.go", `package p; import "time"; func (t *T) f() { g(time.Since(t.at), time.Until(t.end)) }`, 2},
		{"internal/p/p.go", `package p; func f(tx Tx, d DB) { g(tx.Now, d.Now()) }`, 0},
		{"internal/p/p_test.go", `package p; import "time"; func f() { g(time.Now()) }`, 0},
		{"internal/p/ptest/p.go", `package ptest; import "time"; func f() { g(time.Now()) }`, 0},
		{"internal/db/p.go", `package db; import "time"; func f() { g(time.Now()) }`, 0},
		{"internal/loop/p.go", `package loop; import "time"; func (t *Trouble) Failed() { g(time.Now()) }`, 0},
	} {
		f, err := parse(token.NewFileSet(), c.file, c.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := checkClock(&pkg{path: path.Dir(c.file), files: []*file{f}}); len(got) != c.wrong {
			t.Errorf("%s:\n%s\ngot %q, want %d complaints", c.file, c.text, got, c.wrong)
		}
	}
}
