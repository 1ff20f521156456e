package connection_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

func newBox(t testing.TB) *seal.Box {
	t.Helper()
	keys, err := seal.LoadOrCreateKeys(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	return seal.New(keys[0])
}

// numbers accepts any address; mailboxes normalizes addresses.
type numbers struct{ channel.Adapter }

func (numbers) Info() channel.Info { return channel.Info{Name: "sms", TicketChannel: "sms"} }

type mailboxes struct{ channel.Adapter }

func (mailboxes) Info() channel.Info { return channel.Info{Name: "email-raw", TicketChannel: "email"} }

func (mailboxes) NormalizeAddress(raw string) (string, error) {
	local, domain, ok := strings.Cut(strings.ToLower(raw), "@")
	if !ok {
		return "", errors.New("is not a mail address")
	}
	local, _, _ = strings.Cut(local, "+")
	return local + "@" + domain, nil
}

// keyed is a channel with secrets that only the provider can generate.
type keyed struct{ channel.Adapter }

func (keyed) Info() channel.Info { return channel.Info{Name: "keyed", TicketChannel: "keyed"} }

func (keyed) CheckSecret(secret string) error {
	if !strings.HasPrefix(secret, "key of ") {
		return errors.New("must be a key")
	}
	return nil
}

func open(d *db.DB, box *seal.Box) *connection.Service {
	return connection.Open(d, box, []channel.Adapter{numbers{}, mailboxes{}, keyed{}})
}

func connect(t testing.TB, s *connection.Service, n connection.New) connection.Connection {
	t.Helper()
	n.ByOperator = true
	c, _, err := s.Connect(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// at returns the ids of the connections at addresses.
func at(t testing.TB, s *connection.Service, ticketChannel string, addresses ...string) []string {
	t.Helper()
	list, err := s.FindByAddresses(t.Context(), ticketChannel, addresses)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, c := range list {
		ids = append(ids, c.ID)
	}
	return ids
}

func TestConnect(t *testing.T) {
	d := dbtest.New(t)
	s := open(d, newBox(t))
	made, secrets, err := s.Connect(t.Context(), connection.New{
		OrganizationID: "org-1", Channel: "sms", Address: " +14155550100 ", Secrets: []string{"newer secret", "older secret"},
		Credentials: map[string]string{"auth_token": "of the provider"}, Settings: map[string]string{"auto_reply": "soon"},
	})
	if err != nil || !slices.Equal(secrets, []string{"newer secret", "older secret"}) {
		t.Fatalf("Connect() gives the secrets %q, %v", secrets, err)
	}
	found, err := s.Find(t.Context(), made.ID)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(found.Secrets(time.Now()), secrets) || found.CredentialValues()["auth_token"] != "of the provider" ||
		found.Settings["auto_reply"] != "soon" || found.Name != "+14155550100" || !found.Enabled || found.Address != "+14155550100" {
		t.Errorf("Find() = %+v", found)
	}
	if fmt.Sprintf("%+v", found) != fmt.Sprintf("%+v", made) {
		t.Errorf("Find() = %+v, want as made %+v", found, made)
	}
	if _, err := s.Find(t.Context(), "none"); !errors.Is(err, db.ErrNoRows) {
		t.Errorf("Find() of nothing: %v, want db.ErrNoRows", err)
	}

	// Without a secret, a new one is generated.
	_, first, err := s.Connect(t.Context(), connection.New{OrganizationID: "org-1", Channel: "email-raw", Address: "Help+x@Acme.example"})
	if err != nil {
		t.Fatal(err)
	}
	other, second, err := s.Connect(t.Context(), connection.New{OrganizationID: "org-2", Channel: "email-raw", Address: "sales@acme.example", Name: "Sales"})
	if err != nil {
		t.Fatal(err)
	}
	if len(first) != 1 || len(second) != 1 || len(first[0]) < 20 || first[0] == second[0] || other.Name != "Sales" {
		t.Errorf("secrets made: %q and %q", first, second)
	}

	list, err := s.List(t.Context(), "org-1")
	if err != nil || len(list) != 2 || list[0].ID != made.ID || list[1].Address != "help@acme.example" {
		t.Errorf("List() = %+v, %v", list, err)
	}
	for _, tt := range []struct {
		org, ticketChannel, address string
		want                        bool
	}{
		{"org-1", "sms", "+14155550100", true}, {"org-1", "email", "help@acme.example", true}, {"org-1", "email", "+14155550100", false},
		{"org-2", "email", "help@acme.example", false}, {"org-2", "email", "sales@acme.example", true}, {"org-2", "email", "x@acme.example", false},
	} {
		if got, err := s.Owns(t.Context(), d, tt.org, tt.ticketChannel, tt.address); got != tt.want || err != nil {
			t.Errorf("Owns(%s, %s, %s) = %t, %v; want %t", tt.org, tt.ticketChannel, tt.address, got, err, tt.want)
		}
	}
}

func TestConnectRefused(t *testing.T) {
	s := open(dbtest.New(t), newBox(t))
	connect(t, s, connection.New{OrganizationID: "org-1", Channel: "email-raw", Address: "help@acme.example"})
	for _, tt := range []struct {
		name string
		n    connection.New
		kind problem.Kind
		says string
	}{
		{"unknown channel", connection.New{Channel: "smoke", Address: "hill"}, problem.Invalid, "email-raw, keyed, sms"},
		{"no address", connection.New{Channel: "sms", Address: " "}, problem.Invalid, "address"},
		{"long address", connection.New{Channel: "sms", Address: strings.Repeat("1", 321)}, problem.Invalid, "address"},
		{"not of the form", connection.New{Channel: "email-raw", Address: "help"}, problem.Invalid, "is not a mail address"},
		{"short secret", connection.New{Channel: "sms", Address: "+14155550100", Secrets: []string{"short"}}, problem.Invalid, "secrets"},
		{"long name", connection.New{Channel: "sms", Address: "+14155550100", Name: strings.Repeat("n", 256)}, problem.Invalid, "name"},
		{"another's address", connection.New{OrganizationID: "org-2", Channel: "email-raw", Address: "HELP+1@acme.example", ByOperator: true}, problem.Conflict, "help@acme.example is connected already"},
	} {
		_, _, err := s.Connect(t.Context(), tt.n)
		if problem.Of(err) != tt.kind || !strings.Contains(fmt.Sprintf("%+v", shown(err)), tt.says) {
			t.Errorf("%s: %v, want %v that says %q", tt.name, err, tt.kind, tt.says)
		}
	}
}

// TestSecretForm: secrets must have the channel's form.
func TestSecretForm(t *testing.T) {
	d := dbtest.New(t)
	s := open(d, newBox(t))
	n := connection.New{OrganizationID: "org-1", Channel: "keyed", Address: "a", Secrets: []string{"key of one", "key of two"}}
	c := connect(t, s, n)
	n.Address = "b"
	with := func(secrets ...string) error {
		n.Secrets = secrets
		_, _, err := s.Connect(t.Context(), n)
		return err
	}
	rotate := func(value string) error {
		_, err := s.Rotate(t.Context(), "org-1", c.ID, value, time.Hour)
		return err
	}
	update := func(secrets ...string) error {
		return d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := s.UpdateTx(t.Context(), tx, "org-1", c.ID, connection.Change{Secrets: secrets})
			return err
		})
	}
	for _, tt := range []struct {
		name string
		err  error
		want []problem.Issue
	}{
		{"connect without", with(), []problem.Issue{{Path: "secrets", Code: "required", Message: "is required, because only the provider can generate it. It must be a key"}}},
		{"connect", with("key of one", "hunter2-hunter2"), []problem.Issue{{Path: "secrets.1", Code: "invalid_format", Message: "must be a key"}}},
		{"connect with a short one", with("key"), []problem.Issue{{Path: "secrets.0", Code: "too_short", Message: "must have at least 8 characters"}}},
		{"connect with a blank one", with("         "), []problem.Issue{{Path: "secrets.0", Code: "invalid_value", Message: "must not be blank"}}},
		{"update to a blank one", update("key of one", "         "), []problem.Issue{{Path: "secrets.1", Code: "invalid_value", Message: "must not be blank"}}},
		{"rotate to a blank one", rotate("         "), []problem.Issue{{Path: "secret", Code: "invalid_value", Message: "must not be blank"}}},
		{"rotate to one of ours", rotate(""), []problem.Issue{{Path: "secret", Code: "required", Message: "is required, because only the provider can generate it. It must be a key"}}},
		{"rotate", rotate("hunter2-hunter2"), []problem.Issue{{Path: "secret", Code: "invalid_format", Message: "must be a key"}}},
		{"rotate to a key", rotate("key of three"), nil},
		{"update", update("hunter2-hunter2"), []problem.Issue{{Path: "secrets.0", Code: "invalid_format", Message: "must be a key"}}},
		{"update to a key", update("key of four"), nil},
	} {
		var got []problem.Issue
		if p, ok := errors.AsType[*problem.Error](tt.err); ok {
			got = p.Issues
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v with issues %+v, want %+v", tt.name, tt.err, got, tt.want)
		}
	}
	found, err := s.Find(t.Context(), c.ID)
	if want := []string{"key of four", "key of three", "key of one", "key of two"}; err != nil || !slices.Equal(found.Secrets(time.Now()), want) {
		t.Errorf("its secrets are %q, %v; want %q", found.Secrets(time.Now()), err, want)
	}
}

// shown returns the parts of an error that a surface may show.
func shown(err error) any {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return struct {
			Message string
			Issues  []problem.Issue
		}{p.Message, p.Issues}
	}
	return nil
}

// TestSealed looks for secrets in the database.
func TestSealed(t *testing.T) {
	d := dbtest.New(t)
	box := newBox(t)
	s := open(d, box)
	c := connect(t, s, connection.New{
		OrganizationID: "org-1", Channel: "sms", Address: "+14155550100", Secrets: []string{"hunter2-hunter2"}, Credentials: map[string]string{"k": "hunter2"},
	})
	var secrets, credentials []byte
	if err := d.QueryRow(t.Context(), "SELECT secrets, credentials FROM connections").Scan(&secrets, &credentials); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(secrets)+string(credentials), "hunter2") {
		t.Errorf("stored as %q and %q", secrets, credentials)
	}
	// Encrypted values are bound to their row and key.
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE connections SET id = 'another'")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Find(t.Context(), "another"); err == nil {
		t.Error("secrets can be moved to another connection")
	}
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE connections SET id = $1", c.ID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := open(d, newBox(t)).Find(t.Context(), c.ID); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("another key opens the secrets: %v", err)
	}
	if _, err := open(d, box).Find(t.Context(), c.ID); err != nil {
		t.Error(err)
	}
}

func TestAt(t *testing.T) {
	s := open(dbtest.New(t), newBox(t))
	a := connect(t, s, connection.New{OrganizationID: "org-1", Channel: "email-raw", Address: "a@acme.example"})
	b := connect(t, s, connection.New{OrganizationID: "org-2", Channel: "email-raw", Address: "b@acme.example"})
	n := connect(t, s, connection.New{OrganizationID: "org-1", Channel: "sms", Address: "+14155550100"})
	for range 2 { // first from the database, then cached
		for _, tt := range []struct {
			ticketChannel string
			addresses     []string
			want          []string
		}{
			{"email", nil, nil},
			{"email", []string{"a@acme.example"}, []string{a.ID}},
			{"email", []string{"b@acme.example", "c@acme.example", "a@acme.example"}, []string{b.ID, a.ID}},
			{"email", []string{"c@acme.example"}, nil},
			{"email", []string{"+14155550100"}, nil},
			{"sms", []string{"+14155550100"}, []string{n.ID}},
		} {
			if got := at(t, s, tt.ticketChannel, tt.addresses...); !slices.Equal(got, tt.want) {
				t.Errorf("At(%s, %v) = %v, want %v", tt.ticketChannel, tt.addresses, got, tt.want)
			}
		}
	}
}

// TestCache: a process sees its own changes at once, other processes' within
// [connection.CacheTTL].
func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, box := dbtest.NewSQLite(t), newBox(t)
		here, there := open(d, box), open(d, box)
		const address = "+14155550100"
		look := func(s *connection.Service) string {
			t.Helper()
			list, err := s.FindByAddresses(t.Context(), "sms", []string{address})
			if err != nil {
				t.Fatal(err)
			}
			if len(list) == 0 {
				return "nothing"
			}
			return fmt.Sprint(list[0].Enabled, " ", strings.Join(list[0].Secrets(time.Now()), " "))
		}
		want := func(s *connection.Service, want string) {
			t.Helper()
			if got := look(s); got != want {
				t.Errorf("At() = %s, want %s", got, want)
			}
		}
		want(here, "nothing")
		want(there, "nothing")
		c := connect(t, here, connection.New{OrganizationID: "org-1", Channel: "sms", Address: address, Secrets: []string{"the first"}})
		// A missing address is not cached.
		want(here, "true the first")
		want(there, "true the first")
		if err := here.SetEnabled(t.Context(), "org-1", c.ID, false); err != nil {
			t.Fatal(err)
		}
		want(here, "false the first")
		want(there, "true the first")
		time.Sleep(connection.CacheTTL)
		want(there, "false the first")
		if _, err := there.Rotate(t.Context(), "org-1", c.ID, "the second", time.Hour); err != nil {
			t.Fatal(err)
		}
		want(there, "false the second the first")
		time.Sleep(connection.CacheTTL)
		want(here, "false the second the first")
		time.Sleep(time.Hour)
		want(here, "false the second")

		// The cache serves without the database until its entries expire.
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		want(here, "false the second")
		time.Sleep(connection.CacheTTL)
		if _, err := here.FindByAddresses(t.Context(), "sms", []string{address}); err == nil {
			t.Error("At() without a database succeeds")
		}
	})
}

// TestCacheOfMissingAddress: a lookup that found one address and not another is cached, and a new
// connection works at once.
func TestCacheOfMissingAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, box := dbtest.NewSQLite(t), newBox(t)
		here, there := open(d, box), open(d, box)
		a := connect(t, here, connection.New{OrganizationID: "org-1", Channel: "sms", Address: "+14155550100"})
		both := func(want ...string) {
			t.Helper()
			if got := at(t, here, "sms", "MG1", "+14155550100"); !slices.Equal(got, want) {
				t.Errorf("At() = %v, want %v", got, want)
			}
		}
		both(a.ID)
		b := connect(t, there, connection.New{OrganizationID: "org-1", Channel: "sms", Address: "MG1"})
		both(a.ID) // cached
		if got := at(t, here, "sms", "MG1"); !slices.Equal(got, []string{b.ID}) {
			t.Errorf("At() of the new one alone = %v, want it", got)
		}
		both(b.ID, a.ID) // cached meanwhile
		time.Sleep(connection.CacheTTL)
		both(b.ID, a.ID)
	})
}

// TestCacheUnderChange: with concurrent readers and a writer, no read after a commit returns
// older data.
func TestCacheUnderChange(t *testing.T) {
	s := open(dbtest.New(t), newBox(t))
	c := connect(t, s, connection.New{OrganizationID: "org-1", Channel: "sms", Address: "+14155550100"})
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					if _, err := s.FindByAddresses(t.Context(), "sms", []string{"+14155550100"}); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for i := range 200 {
		enabled := i%2 == 0
		if err := s.SetEnabled(t.Context(), "org-1", c.ID, enabled); err != nil {
			t.Fatal(err)
		}
		list, err := s.FindByAddresses(t.Context(), "sms", []string{"+14155550100"})
		if err != nil || list[0].Enabled != enabled {
			t.Fatalf("change %d: At() gives what was before it", i)
		}
	}
	close(done)
	wg.Wait()
}

func TestUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		s := open(d, newBox(t))
		c := connect(t, s, connection.New{OrganizationID: "org-1", Channel: "sms", Address: "+14155550100", Secrets: []string{"secret 1"},
			Credentials: map[string]string{"account_sid": "AC1"}, Settings: map[string]string{"greeting": "Hi"}})
		update := func(organizationID string, change connection.Change) (got connection.Connection, err error) {
			err = d.Write(t.Context(), func(tx *db.Tx) error {
				got, err = s.UpdateTx(t.Context(), tx, organizationID, c.ID, change)
				return err
			})
			return got, err
		}
		time.Sleep(time.Second)
		got, err := update("org-1", connection.Change{Name: new("Front desk"), Enabled: new(false), Settings: map[string]string{"greeting": "Hello"}})
		if err != nil {
			t.Fatal(err)
		}
		found, err := s.FindOf(t.Context(), d, "org-1", c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if found.Name != "Front desk" || found.Enabled || found.Settings["greeting"] != "Hello" || found.CredentialValues()["account_sid"] != "AC1" ||
			!found.UpdatedAt.Equal(c.UpdatedAt.Add(time.Second)) || !found.UpdatedAt.Equal(got.UpdatedAt) {
			t.Errorf("after the change: %+v, %v", found, found.CredentialValues())
		}
		if _, err := update("org-1", connection.Change{Name: new(""), Secrets: []string{"secret 3", "secret 2"}, Credentials: map[string]string{}}); err != nil {
			t.Fatal(err)
		}
		found, err = s.FindOf(t.Context(), d, "org-1", c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got := found.Secrets(time.Now()); found.Name != "+14155550100" || len(found.CredentialValues()) != 0 || !slices.Equal(got, []string{"secret 3", "secret 2", "secret 1"}) {
			t.Errorf("after the second change: %+v, secrets %q", found, got)
		}
		if got := found.Secrets(time.Now().Add(connection.Overlap)); !slices.Equal(got, []string{"secret 3", "secret 2"}) {
			t.Errorf("a day later: secrets %q", got)
		}
		for _, tt := range []struct {
			name         string
			organization string
			change       connection.Change
			want         problem.Kind
		}{
			{"another organization's", "org-2", connection.Change{Enabled: new(true)}, problem.NotFound},
			{"without a secret", "org-1", connection.Change{Secrets: []string{}}, problem.Invalid},
			{"with a short one", "org-1", connection.Change{Secrets: []string{"long enough", "short"}}, problem.Invalid},
			{"a line too many", "org-1", connection.Change{Name: new("two\nlines")}, problem.Invalid},
			{"no name of a setting", "org-1", connection.Change{Settings: map[string]string{"": "x"}}, problem.Invalid},
		} {
			if _, err := update(tt.organization, tt.change); problem.Of(err) != tt.want {
				t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
			}
		}
	})
}

func TestDelete(t *testing.T) {
	d := dbtest.New(t)
	s := open(d, newBox(t))
	c := connect(t, s, connection.New{OrganizationID: "org-1", Channel: "sms", Address: "+14155550100"})
	remove := func(organizationID string) error {
		return d.Write(t.Context(), func(tx *db.Tx) error { return s.DeleteTx(t.Context(), tx, organizationID, c.ID) })
	}
	at(t, s, "sms", "+14155550100") // fill the cache
	if err := remove("org-2"); problem.Of(err) != problem.NotFound {
		t.Errorf("another organization's: got %v, want not found", err)
	}
	if err := remove("org-1"); err != nil {
		t.Fatal(err)
	}
	if got := at(t, s, "sms", "+14155550100"); len(got) != 0 {
		t.Errorf("deleted, and still found: %q", got)
	}
	if err := remove("org-1"); problem.Of(err) != problem.NotFound {
		t.Errorf("a second time: got %v, want not found", err)
	}
	connect(t, s, connection.New{OrganizationID: "org-2", Channel: "sms", Address: "+14155550100"})
}

func TestRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(dbtest.NewSQLite(t), newBox(t))
		c := connect(t, s, connection.New{OrganizationID: "org-1", Channel: "sms", Address: "+14155550100", Secrets: []string{"secret 1"}})
		want := func(want ...string) {
			t.Helper()
			c, err := s.Find(t.Context(), c.ID)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.Secrets(time.Now()); !slices.Equal(got, want) {
				t.Errorf("secrets %q, want %q", got, want)
			}
		}
		rotate := func(value string, overlap time.Duration) string {
			t.Helper()
			made, err := s.Rotate(t.Context(), "org-1", c.ID, value, overlap)
			if err != nil {
				t.Fatal(err)
			}
			return made
		}
		rotate("secret 2", 2*time.Hour)
		want("secret 2", "secret 1")
		time.Sleep(time.Hour)
		// An earlier expiry stays, a later one is shortened.
		rotate("secret 3", 2*time.Hour)
		want("secret 3", "secret 2", "secret 1")
		time.Sleep(time.Hour)
		want("secret 3", "secret 2")
		rotate("secret 4", 30*time.Minute)
		time.Sleep(30 * time.Minute)
		want("secret 4")
		// A repeated secret is listed once, and all previous ones expire.
		rotate("secret 4", time.Hour)
		want("secret 4")
		rotate("secret 5", 0)
		want("secret 5")
		made := rotate("", 0)
		want(made)
		if len(made) < 20 {
			t.Errorf("Rotate() makes the secret %q", made)
		}

		if _, err := s.Rotate(t.Context(), "org-1", c.ID, "short", 0); problem.Of(err) != problem.Invalid {
			t.Errorf("Rotate() to a short secret: %v, want it invalid", err)
		}
		if _, err := s.Rotate(t.Context(), "org-2", c.ID, "", 0); problem.Of(err) != problem.NotFound {
			t.Errorf("Rotate() by another organization: %v, want it not found", err)
		}
		if err := s.SetEnabled(t.Context(), "org-2", c.ID, false); problem.Of(err) != problem.NotFound {
			t.Errorf("SetEnabled() by another organization: %v, want it not found", err)
		}
		want(made)
	})
}

// TestOnChange: observers are notified of changes and can refuse them.
func TestOnChange(t *testing.T) {
	d := dbtest.New(t)
	s := open(d, newBox(t))
	var told []string
	refuse := false
	s.OnChange(func(_ context.Context, _ *db.Tx, c *connection.Connection, gone bool) error {
		if refuse {
			return errors.New("refused")
		}
		told = append(told, fmt.Sprintf("%s enabled=%t gone=%t %s", c.Address, c.Enabled, gone, c.CredentialValues()["auth_token"]))
		return nil
	})
	c, _, err := s.Connect(t.Context(), connection.New{OrganizationID: "org-1", Channel: "sms", Address: "+14155550100", Credentials: map[string]string{"auth_token": "a"}})
	if err != nil {
		t.Fatal(err)
	}
	refuse = true
	if err := s.SetEnabled(t.Context(), "org-1", c.ID, false); err == nil {
		t.Error("a change that a watcher refused was made")
	}
	refuse = false
	if err := s.SetEnabled(t.Context(), "org-1", c.ID, false); err != nil {
		t.Fatal(err)
	}
	drop := func(organizationID string) error {
		return d.Write(t.Context(), func(tx *db.Tx) error { return s.DeleteTx(t.Context(), tx, organizationID, c.ID) })
	}
	if err := drop("org-2"); problem.Of(err) != problem.NotFound {
		t.Errorf("DeleteIn() by another organization: %v, want not found", err)
	}
	if err := drop("org-1"); err != nil {
		t.Fatal(err)
	}
	want := []string{"+14155550100 enabled=true gone=false a", "+14155550100 enabled=false gone=false a", "+14155550100 enabled=false gone=true a"}
	if !slices.Equal(told, want) {
		t.Errorf("watchers were told %q, want %q", told, want)
	}
}
