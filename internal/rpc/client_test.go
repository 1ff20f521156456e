package rpc_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/rpc"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// TestTypeScriptClient runs testdata/client/client.test.mjs, which points the
// public TypeScript client at the procedures as the program serves them.
func TestTypeScriptClient(t *testing.T) {
	modules := os.Getenv("KICKSTAND_TEST_NODE_MODULES")
	if modules == "" {
		t.Skip("set KICKSTAND_TEST_NODE_MODULES to a node_modules folder made by `npm ci` from testdata/client to run the TypeScript client (.ci/run client does)")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	modules, err = filepath.Abs(modules)
	if err != nil {
		t.Fatal(err)
	}

	// Imports are looked for beside the script.
	const script = "client.test.mjs"
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join("testdata", "client", script))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, script), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}

	f := newAccountFixture(t)
	if _, err := f.accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: "Acme"}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(newClientHandler(t, f))
	server.Config.MaxHeaderBytes = 2 * rpc.MaxQuery // as in package app
	server.Start()
	defer server.Close()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "--test", "--test-reporter=spec", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KICKSTAND_URL="+server.URL)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// newClientHandler is every procedure, kept from other sites as in package app,
// and below /test/ what a client cannot do itself.
func newClientHandler(t *testing.T, f *accountFixture) http.Handler {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	webhooks := webhook.Open(webhook.Config{
		DB: f.db, Queue: queue.Open(f.db, queue.Config{}), Events: new(event.Log), Box: seal.New(seal.NewKey()),
		Admins: noAdmins{}, Mailer: f.box, Transport: &answers{status: http.StatusOK}, Logger: log,
	})
	gate := &browser.Gate{Accounts: f.accounts}
	waiting, gone := make(chan struct{}, 1), make(chan struct{}, 1)
	router := rpc.New(rpc.Config{
		Procedures: slices.Concat(
			rpc.AccountProcedures(f.accounts, gate), rpc.PeopleProcedures(f.accounts, gate), rpc.WebhookProcedures(webhooks),
			[]rpc.Procedure{
				rpc.Query("test.fault", rpc.Session, func(context.Context, rpc.None) (string, error) { return "", errors.New("a fault") }),
				rpc.Query("test.wait", rpc.Session, func(ctx context.Context, _ rpc.None) (string, error) {
					waiting <- struct{}{}
					<-ctx.Done()
					gone <- struct{}{}
					return "", ctx.Err()
				}),
			}),
		Authenticate: gate.Authenticate,
		Authorize:    rpc.Authorize,
		Logger:       log,
	})
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		router.Refuse(w, r, problem.New(problem.Forbidden, "this request comes from another site"))
	}))

	mux := http.NewServeMux()
	mux.Handle(rpc.Prefix, sameOrigin.Handler(router))
	mux.HandleFunc("POST /test/user", func(w http.ResponseWriter, r *http.Request) {
		_, err := f.accounts.CreateUser(r.Context(), account.NewUser{
			Email: r.FormValue("email"), Password: r.FormValue("password"), Organization: "acme", Role: account.Role(r.FormValue("role")),
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /test/expire", func(w http.ResponseWriter, r *http.Request) {
		err := f.db.Write(r.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(r.Context(), "UPDATE session_tokens SET issued_at = issued_at - $1 WHERE kind = 0", time.Hour.Microseconds())
			return err
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	for name, happened := range map[string]chan struct{}{"waiting": waiting, "gone": gone} {
		mux.HandleFunc("POST /test/"+name, func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-happened:
				w.WriteHeader(http.StatusNoContent)
			case <-r.Context().Done():
			}
		})
	}
	return mux
}
