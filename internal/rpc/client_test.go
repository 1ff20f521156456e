package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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

// TestTypeScriptClient runs the tests in testdata/client: the public TypeScript client
// against the procedures as the program serves them, also with the types of the library in
// clients/typescript.
func TestTypeScriptClient(t *testing.T) {
	dir := clientFolder(t)
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	copyFile(t, filepath.Join("testdata", "client", "client.test.mjs"), dir)
	copyFile(t, filepath.Join("testdata", "client", "typed.test.mts"), dir)
	copyFile(t, appRouterTypes, dir)
	compileTypeScript(t, dir, "--target", "es2022", "--noUncheckedIndexedAccess", "typed.test.mts")

	f := newAccountFixture(t)
	if _, err := f.accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: "Acme"}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(newClientHandler(t, f))
	server.Config.MaxHeaderBytes = 2 * rpc.MaxQuery // as in package app
	server.Start()
	defer server.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "--test", "--test-reporter=spec", "client.test.mjs", "typed.test.mjs")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KICKSTAND_URL="+server.URL)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// clientFolder returns a folder with the modules of testdata/client, which Node resolves
// from the importing file.
func clientFolder(t *testing.T) string {
	t.Helper()
	modules := os.Getenv("KICKSTAND_TEST_NODE_MODULES")
	if modules == "" {
		t.Skip("set KICKSTAND_TEST_NODE_MODULES to a node_modules folder made by `npm ci` from testdata/client to use the TypeScript client (.ci/run client does)")
	}
	modules, err := filepath.Abs(modules)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// appRouterTypes has the types of the procedures; [TestAppRouter] writes it.
var appRouterTypes = filepath.Join("..", "..", "clients", "typescript", "src", "trpc.ts")

func copyFile(t *testing.T, name, dir string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// compileTypeScript compiles modules of a folder with the modules of testdata/client in
// strict mode.
func compileTypeScript(t *testing.T, dir string, args ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--strict", "--module", "nodenext", "--moduleResolution", "nodenext", "--types", "node"}, args...)
	compiler := exec.CommandContext(t.Context(), filepath.Join("node_modules", ".bin", "tsc"), args...)
	compiler.Dir = dir
	if out, err := compiler.CombinedOutput(); err != nil {
		t.Fatalf("tsc: %v\n%s", err, out)
	}
}

// TestTypeScriptInDocs compiles every TypeScript block of README.md and docs/ in strict
// mode.
func TestTypeScriptInDocs(t *testing.T) {
	dir := clientFolder(t)
	root := filepath.Join("..", "..")
	pages, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	if err := filepath.WalkDir(filepath.Join(root, "docs"), func(name string, _ fs.DirEntry, err error) error {
		if filepath.Ext(name) == ".md" {
			pages = append(pages, name)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	fence := regexp.MustCompile("(?ms)^```(?:ts|typescript)\n(.*?)^```")
	copyFile(t, appRouterTypes, dir)
	var blocks []string
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range fence.FindAllSubmatch(text, -1) {
			name := fmt.Sprintf("%s-%d.ts", strings.ReplaceAll(strings.TrimPrefix(page, root+"/"), "/", "-"), i+1)
			// The package is not in testdata/client.
			text := bytes.ReplaceAll(block[1], []byte("@kickstand/client/trpc"), []byte("./trpc.js"))
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
			blocks = append(blocks, name)
		}
	}
	if len(blocks) == 0 {
		t.Fatal("there is no TypeScript in the documentation: the pattern is wrong")
	}
	compileTypeScript(t, dir, append([]string{"--noEmit", "--target", "esnext"}, blocks...)...)
}

// newClientHandler serves all procedures with cross-site protection as in package app,
// and below /test/ actions that a client cannot perform.
func newClientHandler(t *testing.T, f *accountFixture) http.Handler {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	webhooks := webhook.Open(webhook.Config{
		DB: f.db, Queue: queue.Open(f.db, queue.Config{}), Events: new(event.Log), Box: seal.New(seal.NewKey()),
		Admins: noAdmins{}, Mailer: f.box, Transport: &receiverPool{status: http.StatusOK}, Logger: log,
	})
	gate := &browser.SessionAuth{Accounts: f.accounts}
	waiting, gone := make(chan struct{}, 1), make(chan struct{}, 1)
	router := rpc.New(rpc.Config{
		Procedures: slices.Concat(
			rpc.AccountProcedures(f.accounts, gate), rpc.MemberProcedures(f.accounts, gate), rpc.WebhookProcedures(webhooks),
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
