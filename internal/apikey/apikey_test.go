package apikey

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

const org = "0190c0de-0000-7000-8000-000000000001"

// auditKey signs all audit logs.
var auditKey = seal.NewKey()

func auditLog(d *db.DB) *audit.Log {
	return audit.Open(audit.Config{DB: d, Box: seal.New(auditKey), Ledger: "helpdesk", Service: "helpdesk", Environment: "live"})
}

// list returns audit entries as a node lists them.
func list(t testing.TB, s *Service, organizationID string, q audit.Query) (audit.Page, error) {
	return audit.List(t.Context(), []*audit.Log{s.audit}, organizationID, q)
}

// open returns a node over d with a plan limit of 300 requests a minute.
func open(d *db.DB) *Service {
	return Open(Config{
		DB: d, Audit: auditLog(d),
		Catalogues: map[ServiceName]Catalogue{
			Fleet:    fleet(),
			Helpdesk: {Resources: []Resource{{Name: "tickets", Actions: []Action{Read, Create, Update, Delete}}}},
		},
		PlanLimit: func(context.Context, string) (int64, error) { return Professional.Limit(0), nil },
	})
}

// ada is the audit source of a user's changes.
var ada = audit.Source{
	Actor: audit.Actor{Type: audit.User, ID: "u1", Email: "ada@example.com"}, Address: netip.MustParseAddr("192.0.2.9"), UserAgent: "curl/8", RequestID: "r1",
}

// as returns a context with ada as the source.
func as(t testing.TB) context.Context { return audit.WithSource(t.Context(), ada) }

func fleetKey(name string) New {
	return New{OrganizationID: org, Service: Fleet, Environment: Live, Name: name, Permissions: Permissions{Level: ReadWrite}}
}

func mustCreate(t testing.TB, s *Service, n New) (Key, Token) {
	t.Helper()
	k, tok, err := s.Create(as(t), n)
	if err != nil {
		t.Fatal(err)
	}
	return k, tok
}

// try authenticates a request with a token to the live fleet API.
func try(t testing.TB, s *Service, tok Token) error {
	t.Helper()
	_, err := s.Authenticate(t.Context(), Request{tok.Reveal(), Fleet, tok.Environment(), netip.MustParseAddr("198.51.100.1")})
	return err
}

func wantRefusal(t testing.TB, what string, err error, want Refusal) {
	t.Helper()
	got, _ := errors.AsType[Refusal](err)
	if got != want || want == 0 && err != nil {
		t.Errorf("%s: got %v, want refusal %d", what, err, want)
	}
}

func wantKind(t testing.TB, what string, err error, want problem.Kind) {
	t.Helper()
	if err == nil || problem.Of(err) != want {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

func TestCreate(t *testing.T) {
	s := open(dbtest.New(t))
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	k, tok := mustCreate(t, s, New{
		OrganizationID: org, Service: Fleet, Environment: Test, Name: "  Export ",
		Permissions: Permissions{Level: ReadOnly, Resources: Grants{Named: map[string][]Action{"rides": {Create, Read}}}},
		Scope:       ScopeOf([]string{"sub1", "sub2"}), AllowedIPs: []string{"192.0.2.1/24"}, RateLimit: new(int64(300)), ExpiresAt: expires,
	})
	if tok.Environment() != Test || k.PartialKey != tok.Reveal()[38:] || k.Name != "Export" || k.Status(time.Now()) != Active {
		t.Errorf("made %+v", k)
	}
	again, err := s.Find(t.Context(), org, k.ID)
	if err != nil || !reflect.DeepEqual(again, k) {
		t.Errorf("found %+v, %v, want %+v", again, err, k)
	}
	if again.CreatedBy != ada.Actor || !again.ExpiresAt.Equal(expires) || again.RateLimit != 300 || again.Scope.Mode != SelectedSubaccounts ||
		!slices.Equal(again.Resources.Named["rides"], []Action{Read, Create}) || again.AllowedIPs.Strings()[0] != "192.0.2.0/24" {
		t.Errorf("found %+v", again)
	}
	for own, want := range map[int64]int64{0: 300, 7: 7, 500: 300} {
		if got, err := s.Limit(t.Context(), &Key{OrganizationID: org, RateLimit: own}); err != nil || got != want {
			t.Errorf("limit of a key with %d: got %d, %v, want %d", own, got, err, want)
		}
	}
	// The same name is free in another environment, service or organization.
	live, _ := mustCreate(t, s, fleetKey("Export"))
	desk, _ := mustCreate(t, s, New{OrganizationID: org, Service: Helpdesk, Environment: Live, Name: "Export", Permissions: Permissions{Resources: Grants{All: true}}})
	other := fleetKey("Export")
	other.OrganizationID = "elsewhere"
	mustCreate(t, s, other)
	_, _, err = s.Create(as(t), fleetKey("Export "))
	wantKind(t, "a name twice", err, problem.Conflict)

	for _, test := range []struct {
		service     ServiceName
		environment Environment
		want        []string
	}{{"", "", []string{k.ID, live.ID, desk.ID}}, {Fleet, "", []string{k.ID, live.ID}}, {Fleet, Live, []string{live.ID}}, {Helpdesk, Test, nil}} {
		list, err := s.List(t.Context(), org, test.service, test.environment)
		var got []string
		for _, k := range list {
			got = append(got, k.ID)
		}
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("list of %q, %q: got %q, %v, want %q", test.service, test.environment, got, err, test.want)
		}
	}
	_, err = s.Find(t.Context(), "elsewhere", k.ID)
	wantKind(t, "another organization's", err, problem.NotFound)
}

func TestCreateRefuses(t *testing.T) {
	s := open(dbtest.New(t))
	for _, test := range []struct {
		change func(n *New)
		want   string // path of the issue
	}{
		{func(n *New) { n.Service = "car-wash" }, "service"},
		{func(n *New) { n.Environment = "prod" }, "environment"},
		{func(n *New) { n.Service, n.Environment = Helpdesk, Test }, "environment"},
		{func(n *New) { n.Name = " " }, "name"},
		{func(n *New) { n.Name = strings.Repeat("ä", 101) }, "name"},
		{func(n *New) { n.Name = "a\nb" }, "name"},
		{func(n *New) { n.Permissions = Permissions{} }, "level"},
		{func(n *New) { n.Resources.Named = map[string][]Action{"zones": {Read}} }, "resources"},
		{func(n *New) { n.Scope = Scope{Mode: SelectedSubaccounts} }, "subaccount_scope"},
		{func(n *New) { n.Service, n.Scope = Helpdesk, ScopeOf([]string{"sub1"}) }, "subaccount_scope"},
		{func(n *New) { n.AllowedIPs = []string{"0.0.0.0/0"} }, "allowed_ips"},
		{func(n *New) { n.RateLimit = new(int64(301)) }, "rate_limit_per_minute"},
		{func(n *New) { n.RateLimit = new(int64(0)) }, "rate_limit_per_minute"},
		{func(n *New) { n.RateLimit = new(int64(-1)) }, "rate_limit_per_minute"},
		{func(n *New) { n.ExpiresAt = time.Now() }, "expires_at"},
	} {
		n := fleetKey("Name")
		test.change(&n)
		_, _, err := s.Create(as(t), n)
		p, ok := errors.AsType[*problem.Error](err)
		if !ok || p.Kind != problem.Invalid || len(p.Issues) != 1 || p.Issues[0].Path != test.want {
			t.Errorf("%s: got %v", test.want, err)
		}
	}
	if list, err := s.List(t.Context(), org, "", ""); err != nil || len(list) != 0 {
		t.Errorf("there are %d keys, %v", len(list), err)
	}
	page, err := list(t, s, org, audit.Query{})
	if err != nil || len(page.Entries) != 0 {
		t.Errorf("refusals were logged: %+v, %v", page, err)
	}
}

func TestAuthenticate(t *testing.T) {
	d := dbtest.New(t)
	s := open(d)
	n := fleetKey("A")
	n.AllowedIPs = []string{"192.0.2.0/24"}
	k, tok := mustCreate(t, s, n)
	_, testTok := mustCreate(t, s, New{OrganizationID: org, Service: Fleet, Environment: Test, Name: "T", Permissions: Permissions{Level: Admin}})
	inside := netip.MustParseAddr("::ffff:192.0.2.200")
	for _, test := range []struct {
		name string
		r    Request
		want Refusal
		kind problem.Kind
	}{
		{"good", Request{tok.Reveal(), Fleet, Live, inside}, 0, 0},
		{"good, from memory", Request{tok.Reveal(), Fleet, Live, inside}, 0, 0},
		{"good test key", Request{testTok.Reveal(), Fleet, Test, netip.Addr{}}, 0, 0},
		{"missing", Request{"", Fleet, Live, inside}, Missing, problem.Unauthorized},
		{"mistyped", Request{tok.Reveal()[:45] + "-", Fleet, Live, inside}, Malformed, problem.Unauthorized},
		{"prefix changed", Request{secretPrefix(Test) + tok.Reveal()[8:], Fleet, Live, inside}, Malformed, problem.Unauthorized},
		{"live in the sandbox", Request{tok.Reveal(), Fleet, Test, inside}, WrongEnvironment, problem.Unauthorized},
		{"test in production", Request{testTok.Reveal(), Fleet, Live, inside}, WrongEnvironment, problem.Unauthorized},
		{"unknown test key in production", Request{NewToken(Test).Reveal(), Fleet, Live, inside}, WrongEnvironment, problem.Unauthorized},
		{"unknown", Request{NewToken(Live).Reveal(), Fleet, Live, inside}, Unknown, problem.Unauthorized},
		{"the other service's", Request{tok.Reveal(), Helpdesk, Live, inside}, Unknown, problem.Unauthorized},
		{"elsewhere", Request{tok.Reveal(), Fleet, Live, netip.MustParseAddr("198.51.100.1")}, IPNotAllowed, problem.Forbidden},
		{"nobody knows where", Request{tok.Reveal(), Fleet, Live, netip.Addr{}}, IPNotAllowed, problem.Forbidden},
	} {
		got, err := s.Authenticate(t.Context(), test.r)
		wantRefusal(t, test.name, err, test.want)
		if test.want == 0 {
			if got == nil || got.OrganizationID != org || got.Level == "" {
				t.Errorf("%s: got %+v", test.name, got)
			}
		} else if problem.Of(err) != test.kind || got != nil {
			t.Errorf("%s: got %v, %v, want %v", test.name, got, err, test.kind)
		} else if test.r.Token != "" && strings.Contains(err.Error(), test.r.Token) {
			t.Errorf("%s: the error shows the token", test.name)
		}
	}
	// A revoked key from a disallowed address: the revocation is reported first.
	if _, err := s.Revoke(as(t), org, k.ID); err != nil {
		t.Fatal(err)
	}
	_, err := s.Authenticate(t.Context(), Request{tok.Reveal(), Fleet, Live, netip.Addr{}})
	wantRefusal(t, "revoked, from elsewhere", err, KeyIsRevoked)

	// An unavailable database is not the caller's error.
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = s.Authenticate(t.Context(), Request{testTok.Reveal(), Fleet, Test, inside})
	wantKind(t, "without a database", err, problem.Unavailable)
}

func TestLife(t *testing.T) {
	d := dbtest.New(t)
	here, there := open(d), open(d) // two nodes
	k, tok := mustCreate(t, here, fleetKey("A"))
	for _, s := range []*Service{here, there} {
		wantRefusal(t, "active", try(t, s, tok), 0)
	}
	// An edit takes effect with the next request on either node.
	if _, err := here.Edit(as(t), org, k.ID, Edit{AllowedIPs: &[]string{"10.0.0.1"}}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Service{here, there} {
		wantRefusal(t, "kept out", try(t, s, tok), IPNotAllowed)
	}
	edited, err := there.Edit(as(t), org, k.ID, Edit{
		Name: new("B"), Level: new(Level("")), Resources: &Grants{All: true}, AllowedIPs: &[]string{}, RateLimit: new(int64(20)),
	})
	if err != nil || edited.Name != "B" || edited.Level != "" || !edited.Resources.All || len(edited.AllowedIPs) != 0 || edited.RateLimit != 20 {
		t.Errorf("edited: %+v, %v", edited, err)
	}
	got, err := here.Authenticate(t.Context(), Request{tok.Reveal(), Fleet, Live, netip.Addr{}})
	if err != nil || got.Name != "B" || got.RateLimit != 20 {
		t.Errorf("the other node: %+v, %v", got, err)
	}
	_, err = here.Edit(as(t), org, k.ID, Edit{Resources: &Grants{}})
	wantKind(t, "no permissions left", err, problem.Invalid)
	_, err = here.Edit(as(t), org, k.ID, Edit{RateLimit: new(int64(301))})
	wantKind(t, "above the plan", err, problem.Invalid)
	_, err = here.Edit(as(t), "elsewhere", k.ID, Edit{Name: new("C")})
	wantKind(t, "another organization's", err, problem.NotFound)
	mustCreate(t, here, fleetKey("Taken"))
	_, err = here.Edit(as(t), org, k.ID, Edit{Name: new("Taken")})
	wantKind(t, "a taken name", err, problem.Conflict)
	unlimited, err := here.Edit(as(t), org, k.ID, Edit{RateLimit: new(int64(0))})
	if err != nil || unlimited.RateLimit != 0 || unlimited.Name != "B" {
		t.Errorf("without a limit: %+v, %v", unlimited, err)
	}

	// Revoking.
	_, err = here.Revoke(as(t), "elsewhere", k.ID)
	wantKind(t, "revoke another organization's", err, problem.NotFound)
	revoked, err := here.Revoke(as(t), org, k.ID)
	if err != nil || revoked.Status(time.Now()) != Revoked || revoked.RevokedBy != ada.Actor {
		t.Errorf("revoked: %+v, %v", revoked, err)
	}
	for _, s := range []*Service{here, there} {
		wantRefusal(t, "revoked", try(t, s, tok), KeyIsRevoked)
	}
	for what, fn := range map[string]func() error{
		"revoke": func() error { _, err := there.Revoke(as(t), org, k.ID); return err },
		"edit":   func() error { _, err := there.Edit(as(t), org, k.ID, Edit{Name: new("D")}); return err },
		"rotate": func() error { _, _, err := there.Rotate(as(t), org, k.ID); return err },
	} {
		wantKind(t, what+" a revoked key", fn(), problem.Conflict)
	}
	if list, err := here.List(t.Context(), org, "", ""); err != nil || len(list) != 2 {
		t.Errorf("a revoked key stays in the list: got %d, %v", len(list), err)
	}

	// Deleting.
	wantKind(t, "delete another organization's", here.Delete(as(t), "elsewhere", k.ID), problem.NotFound)
	if err := here.Delete(as(t), org, k.ID); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Service{here, there} {
		wantRefusal(t, "deleted", try(t, s, tok), Unknown)
	}
	wantKind(t, "delete again", there.Delete(as(t), org, k.ID), problem.NotFound)
	if list, err := here.List(t.Context(), org, "", ""); err != nil || len(list) != 1 {
		t.Errorf("a deleted key leaves the list: got %d, %v", len(list), err)
	}
	mustCreate(t, here, fleetKey("B")) // its name is free

	// An active key is deleted at once, too.
	k2, tok2 := mustCreate(t, here, fleetKey("E"))
	wantRefusal(t, "active", try(t, there, tok2), 0)
	if err := here.Delete(as(t), org, k2.ID); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, "deleted", try(t, there, tok2), Unknown)
}

func TestRotate(t *testing.T) {
	s := open(dbtest.New(t))
	n := fleetKey("Export")
	n.Scope, n.AllowedIPs, n.RateLimit, n.ExpiresAt = ScopeOf([]string{"sub1"}), []string{"198.51.100.1"}, new(int64(7)), time.Now().Add(time.Hour)
	old, oldTok := mustCreate(t, s, n)
	next, tok, err := s.Rotate(as(t), org, old.ID)
	if err != nil {
		t.Fatal(err)
	}
	if next.Name != "Export (2)" || next.RotatedFrom != old.ID || !reflect.DeepEqual(next.Permissions, old.Permissions) ||
		!reflect.DeepEqual(next.Scope, old.Scope) || !slices.Equal(next.AllowedIPs, old.AllowedIPs) || next.RateLimit != 7 || !next.ExpiresAt.Equal(old.ExpiresAt) {
		t.Errorf("made %+v of %+v", next, old)
	}
	for _, tok := range []Token{tok, oldTok} {
		wantRefusal(t, "both work", try(t, s, tok), 0)
	}
	if again, err := s.Find(t.Context(), org, old.ID); err != nil || again.ReplacedBy != next.ID {
		t.Errorf("the old one: %+v, %v", again, err)
	}
	_, _, err = s.Rotate(as(t), org, old.ID)
	wantKind(t, "rotate again", err, problem.Conflict)
	third, _, err := s.Rotate(as(t), org, next.ID)
	if err != nil || third.Name != "Export (3)" {
		t.Errorf("made %+v, %v", third, err)
	}
	// After the deletion of the replacement there may be another.
	if err := s.Delete(as(t), org, next.ID); err != nil {
		t.Fatal(err)
	}
	another, _, err := s.Rotate(as(t), org, old.ID)
	if err != nil || another.Name != "Export (2)" || another.RotatedFrom != old.ID {
		t.Errorf("made %+v, %v", another, err)
	}
}

func TestNextName(t *testing.T) {
	long := strings.Repeat("ä", 100)
	for _, test := range []struct {
		name   string
		others []string
		want   string
	}{
		{"Export", []string{"Export"}, "Export (2)"},
		{"Export", []string{"Export", "Export (2)", "Export (3)"}, "Export (4)"},
		{"Export (2)", nil, "Export (3)"},
		{"Export (1)", nil, "Export (1) (2)"},
		{"Export (x)", nil, "Export (x) (2)"},
		{"Export (2) b", nil, "Export (2) b (2)"},
		{long, nil, long[:2*96] + " (2)"},
	} {
		if got := nextName(test.name, test.others); got != test.want {
			t.Errorf("after %q beside %q: got %q, want %q", test.name, test.others, got, test.want)
		}
	}
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(dbtest.NewSQLite(t))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		n := fleetKey("A")
		n.ExpiresAt = time.Now().Add(90 * time.Second)
		k, tok := mustCreate(t, s, n)
		n.Name = "revoked"
		r, _ := mustCreate(t, s, n)
		if _, err := s.Revoke(as(t), org, r.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(90*time.Second - time.Microsecond)
		wantRefusal(t, "just before", try(t, s, tok), 0)
		time.Sleep(time.Microsecond)
		wantRefusal(t, "at that moment", try(t, s, tok), KeyIsExpired)
		if got := k.Status(time.Now()); got != Expired {
			t.Errorf("status: got %s", got)
		}
		_, err := s.Revoke(as(t), org, k.ID)
		wantKind(t, "revoke an expired key", err, problem.Conflict)
		_, err = s.Edit(as(t), org, k.ID, Edit{Name: new("B")})
		wantKind(t, "edit an expired key", err, problem.Conflict)
		_, _, err = s.Rotate(as(t), org, k.ID)
		wantKind(t, "rotate an expired key", err, problem.Conflict)
		time.Sleep(5 * time.Minute)
		page, err := list(t, s, org, audit.Query{Action: KeyExpired})
		if err != nil || len(page.Entries) != 1 || page.Entries[0].Target.ID != k.ID || page.Entries[0].Source != (audit.Source{Actor: audit.Actor{Type: audit.System}}) {
			t.Errorf("logged as expired: %+v, %v, want one", page.Entries, err)
		}
		if list, err := s.List(t.Context(), org, "", ""); err != nil || len(list) != 2 {
			t.Errorf("an expired key stays in the list: got %d, %v", len(list), err)
		}
		if err := s.Delete(as(t), org, k.ID); err != nil {
			t.Errorf("delete an expired key: %v", err)
		}
		stop()
		running.Wait()
	})
}

func TestLastUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(dbtest.NewSQLite(t))
		k, tok := mustCreate(t, s, fleetKey("A"))
		idle, _ := mustCreate(t, s, fleetKey("idle"))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		want := func(what string, id string, at time.Time, ip string) {
			t.Helper()
			synctest.Wait()
			got, err := s.Find(t.Context(), org, id)
			if err != nil || !got.LastUsedAt.Equal(at) || got.LastUsedIP != ip {
				t.Errorf("%s: got %v from %q, %v, want %v from %q", what, got.LastUsedAt, got.LastUsedIP, err, at, ip)
			}
		}
		use := func(ip string) {
			t.Helper()
			if _, err := s.Authenticate(t.Context(), Request{tok.Reveal(), Fleet, Live, netip.MustParseAddr(ip)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		use("192.0.2.1")
		time.Sleep(10 * time.Second)
		use("::ffff:192.0.2.2")
		first := time.Now()
		want("at first", k.ID, time.Time{}, "")
		time.Sleep(time.Minute)
		want("written", k.ID, first.Truncate(time.Minute), "192.0.2.2")
		want("not used", idle.ID, time.Time{}, "")
		use("2001:db8::1")
		last := time.Now()
		stop()
		running.Wait()
		want("at the end", k.ID, last.Truncate(time.Minute), "2001:db8::1")
		wantRefusal(t, "used again", try(t, s, tok), 0)
	})
}

func TestFlush(t *testing.T) {
	d := dbtest.New(t)
	nodes := []*Service{open(d), open(d)}
	var ids []string
	for i := range 20 {
		k, _ := mustCreate(t, nodes[0], fleetKey(fmt.Sprint(i)))
		ids = append(ids, k.ID)
	}
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for i, s := range nodes {
		for _, id := range ids {
			s.recordUse(id, at.Add(time.Duration(i)*time.Hour), netip.MustParseAddr("192.0.2.1"))
			s.recordUse(id, at, netip.MustParseAddr("192.0.2.2")) // later, with an older time, or the same
		}
	}
	var wg sync.WaitGroup
	for _, s := range nodes {
		wg.Go(func() {
			if err := s.flush(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	list, err := nodes[0].List(t.Context(), org, "", "")
	if err != nil || len(list) != len(ids) {
		t.Fatalf("got %d keys, %v", len(list), err)
	}
	for _, k := range list {
		if want := time.Date(2030, 1, 2, 4, 4, 0, 0, time.UTC); !k.LastUsedAt.Equal(want) || k.LastUsedIP != "192.0.2.1" {
			t.Errorf("%s was used at %v from %s, want %v", k.Name, k.LastUsedAt, k.LastUsedIP, want)
		}
	}
}

func TestNoteExpiredOnce(t *testing.T) {
	d := dbtest.New(t)
	s := open(d)
	for i := range 10 {
		mustCreate(t, s, fleetKey(fmt.Sprint(i)))
	}
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE api_keys SET expires_at = $1", tx.Now.UnixMicro())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := open(d).recordExpired(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	page, err := list(t, s, org, audit.Query{Action: KeyExpired})
	if err != nil || len(page.Entries) != 10 {
		t.Errorf("logged %d, %v, want 10", len(page.Entries), err)
	}
}

func TestAudit(t *testing.T) {
	d := dbtest.New(t)
	s := open(d)
	n := fleetKey("A")
	n.AllowedIPs = []string{"198.51.100.1"}
	k, tok := mustCreate(t, s, n)
	if _, err := s.Edit(as(t), org, k.ID, Edit{Name: new("B"), Level: new(ReadWrite), AllowedIPs: &[]string{}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Edit(as(t), org, k.ID, Edit{Name: new("B")}); err != nil { // no change
		t.Fatal(err)
	}
	next, nextTok, err := s.Rotate(as(t), org, k.ID)
	if err != nil {
		t.Fatal(err)
	}
	strange := ada
	strange.UserAgent = strings.Repeat("x", 499) + "ä\x00\x1b[31m"
	if _, err := s.Revoke(audit.WithSource(t.Context(), strange), org, k.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), org, k.ID); err != nil {
		t.Fatal(err)
	}
	page, err := list(t, s, org, audit.Query{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range page.Entries {
		changes, _ := json.Marshal(e.Changes)
		got = append(got, fmt.Sprintf("%s %s %s %s", e.Action, e.Target.Name, e.Source.Actor.Email, changes))
		if e.OrganizationID != org || e.Service != string(Fleet) || e.Environment != string(Live) || time.Since(e.At) > time.Minute || e.Target.Type != "api_key" {
			t.Errorf("entry %+v", e)
		}
	}
	want := []string{
		`api_key.deleted B  {"status":{"from":"revoked","to":"deleted"}}`,
		`api_key.revoked B ada@example.com {"status":{"from":"active","to":"revoked"}}`,
		`api_key.rotated B ada@example.com {"replaced_by":{"from":null,"to":"` + next.ID + `"}}`,
		`api_key.created B (2) ada@example.com {"allowed_ips":{"from":null,"to":[]},"expires_at":{"from":null,"to":null},"level":{"from":null,"to":"read_write"},"name":{"from":null,"to":"B (2)"},"rate_limit_per_minute":{"from":null,"to":null},"resources":{"from":null,"to":null},"rotated_from":{"from":null,"to":"` + k.ID + `"},"subaccount_scope":{"from":null,"to":{"mode":"all"}}}`,
		`api_key.updated B ada@example.com {"allowed_ips":{"from":["198.51.100.1"],"to":[]},"name":{"from":"A","to":"B"}}`,
		`api_key.created A ada@example.com {"allowed_ips":{"from":null,"to":["198.51.100.1"]},"expires_at":{"from":null,"to":null},"level":{"from":null,"to":"read_write"},"name":{"from":null,"to":"A"},"rate_limit_per_minute":{"from":null,"to":null},"resources":{"from":null,"to":null},"subaccount_scope":{"from":null,"to":{"mode":"all"}}}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if e := page.Entries[1]; e.Source.Address != ada.Address || e.Source.RequestID != "r1" || e.Source.UserAgent != strings.Repeat("x", 499) {
		t.Errorf("the request: %+v", e)
	}

	// Page by page the result is the same.
	var walked []audit.Entry
	for q := (audit.Query{Limit: 4}); ; {
		p, err := list(t, s, org, q)
		if err != nil {
			t.Fatal(err)
		}
		walked = append(walked, p.Entries...)
		if q.Before = p.Next; p.Next == "" {
			break
		}
	}
	if !reflect.DeepEqual(walked, page.Entries) {
		t.Errorf("page by page: got %d entries, want %d", len(walked), len(page.Entries))
	}
	for what, test := range map[string]struct {
		q    audit.Query
		want int
	}{
		"of the new key":             {audit.Query{TargetID: next.ID}, 1},
		"created":                    {audit.Query{Action: KeyCreated, Service: string(Fleet), Environment: string(Live)}, 2},
		"of the helpdesk":            {audit.Query{Service: string(Helpdesk)}, 0},
		"of the sandbox":             {audit.Query{Environment: string(Test)}, 0},
		"exactly one page":           {audit.Query{Limit: 6}, 6},
		"of a person":                {audit.Query{ActorID: ada.Actor.ID}, 5},
		"of nobody":                  {audit.Query{ActorID: "%"}, 0},
		"of the system":              {audit.Query{ActorType: audit.System}, 1},
		"of the system, by a person": {audit.Query{ActorType: audit.System, ActorID: ada.Actor.ID}, 0},
		"since":                      {audit.Query{From: page.Entries[1].At}, 2},
		"until":                      {audit.Query{To: page.Entries[1].At}, 4},
		"between":                    {audit.Query{From: page.Entries[3].At, To: page.Entries[1].At}, 2},
	} {
		p, err := list(t, s, org, test.q)
		if err != nil || len(p.Entries) != test.want || p.Next != "" {
			t.Errorf("%s: got %d and %q, %v, want %d", what, len(p.Entries), p.Next, err, test.want)
		}
	}
	if p, err := list(t, s, "elsewhere", audit.Query{}); err != nil || len(p.Entries) != 0 {
		t.Errorf("another organization sees %d, %v", len(p.Entries), err)
	}
	for _, q := range []audit.Query{{Limit: 501}, {Limit: -1}, {Before: "x"}} {
		_, err := list(t, s, org, q)
		wantKind(t, fmt.Sprintf("%+v", q), err, problem.Invalid)
	}

	// No stored row reveals a token or, of a deleted key, its digest.
	for _, table := range []string{"api_keys", "audit_entries"} {
		rows := dump(t, d, table)
		for _, tok := range []Token{tok, nextTok} {
			if strings.Contains(rows, tok.Reveal()[8:38]) {
				t.Errorf("%s has a token", table)
			}
			digest := tok.digest()
			known := table == "api_keys" && tok == nextTok
			if strings.Contains(rows, string(digest[:])) != known || strings.Contains(rows, fmt.Sprintf("%x", digest)) {
				t.Errorf("%s has a digest: want %t", table, known)
			}
		}
	}
}

// dump returns all rows of a table as text.
func dump(t *testing.T, d *db.DB, table string) string {
	t.Helper()
	rows, err := d.Query(t.Context(), "SELECT * FROM "+table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	names := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for rows.Next() {
		values := make([]any, len(names))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			if v := *v.(*any); v != nil {
				if b, ok := v.([]byte); ok {
					v = string(b)
				}
				fmt.Fprintln(&out, v)
			}
		}
	}
	if out.Len() == 0 {
		t.Fatalf("%s is empty", table)
	}
	return out.String()
}

// TestNeverAfterTheCommit revokes a key while two nodes with separate connection pools
// use it: no request that began after the commit succeeds.
func TestNeverAfterTheCommit(t *testing.T) {
	url := dbtest.URL(t)
	nodes := []*Service{open(dbtest.Open(t, url)), open(dbtest.Open(t, url))}
	for round := range 10 {
		k, tok := mustCreate(t, nodes[0], fleetKey(fmt.Sprint(round)))
		committed := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				for {
					over := false
					select {
					case <-committed:
						over = true
					default:
					}
					err := try(t, nodes[i%2], tok)
					if refusal, _ := errors.AsType[Refusal](err); err != nil && refusal == 0 {
						t.Error(err)
						return
					}
					if over && err == nil {
						t.Error("a success after the commit")
					}
					if over {
						return
					}
				}
			})
		}
		var err error
		if round%2 == 0 {
			_, err = nodes[1].Revoke(as(t), org, k.ID)
		} else {
			err = nodes[1].Delete(as(t), org, k.ID)
		}
		if err != nil {
			t.Error(err)
		}
		close(committed)
		wg.Wait()
	}
}

// TestParallelChanges runs the same change concurrently: it succeeds once.
func TestParallelChanges(t *testing.T) {
	d := dbtest.New(t)
	s := open(d)
	k, _ := mustCreate(t, s, fleetKey("A"))
	for what, fn := range map[string]func() error{
		"create": func() error { _, _, err := s.Create(as(t), fleetKey("B")); return err },
		"rotate": func() error { _, _, err := s.Rotate(as(t), org, k.ID); return err },
	} {
		wantOne(t, what, fn)
	}
	wantOne(t, "revoke", func() error { _, err := s.Revoke(as(t), org, k.ID); return err })
}

func wantOne(t *testing.T, what string, fn func() error) {
	t.Helper()
	errs := make(chan error, 64)
	for range cap(errs) {
		go func() { errs <- fn() }()
	}
	done := 0
	for range cap(errs) {
		if err := <-errs; err == nil {
			done++
		} else {
			wantKind(t, what, err, problem.Conflict)
		}
	}
	if done != 1 {
		t.Errorf("%s: %d did, want 1", what, done)
	}
}

// BenchmarkAuthenticate compares a query of the version per request with a read of the
// whole row.
func BenchmarkAuthenticate(b *testing.B) {
	s := open(dbtest.New(b))
	n := fleetKey("A")
	n.Resources.Named = map[string][]Action{"rides": {Read, Create}, "vehicles": {Read}}
	n.AllowedIPs = []string{"198.51.100.0/24"}
	_, tok := mustCreate(b, s, n)
	b.Run("version", func(b *testing.B) {
		for b.Loop() {
			if err := try(b, s, tok); err != nil {
				b.Fatal(err)
			}
		}
	})
	digest := tok.digest()
	b.Run("row", func(b *testing.B) {
		for b.Loop() {
			if _, err := scan(s.db.Lookup(b.Context(), "SELECT "+columns+" FROM api_keys WHERE digest = $1", digest[:])); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestMadeTwice creates a key with a given id twice: the second is refused, also under
// another name and after the key's deletion.
func TestMadeTwice(t *testing.T) {
	s := open(dbtest.New(t))
	n := fleetKey("Export")
	n.ID = "01985ec5-8a60-7000-8000-5a7e1c0d2b3f"
	k, tok := mustCreate(t, s, n)
	if k.ID != n.ID {
		t.Errorf("got id %s", k.ID)
	}
	wantRefusal(t, "its token", try(t, s, tok), 0)
	n.Name = "Other"
	_, _, err := s.Create(as(t), n)
	wantKind(t, "again", err, problem.Conflict)
	if err := s.Delete(as(t), org, k.ID); err != nil {
		t.Fatal(err)
	}
	_, _, err = s.Create(as(t), n)
	wantKind(t, "once it is deleted", err, problem.Conflict)
	n.ID = "x"
	_, _, err = s.Create(as(t), n)
	wantKind(t, "no UUID", err, problem.Invalid)
}

func TestCatalogue(t *testing.T) {
	s := open(dbtest.New(t))
	if c, ok := s.Catalogue(Fleet); !ok || !reflect.DeepEqual(c, fleet()) {
		t.Errorf("got %+v, %v", c, ok)
	}
	if _, ok := s.Catalogue("bakery"); ok {
		t.Error("there is a bakery")
	}
	if got, err := s.PlanLimit(t.Context(), org); err != nil || got != 300 {
		t.Errorf("got limit %d, %v", got, err)
	}
}
