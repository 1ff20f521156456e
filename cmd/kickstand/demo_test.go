package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
)

// TestSecondDemo: starting a demo next to a running one, at the same or another address,
// does not affect the running one.
func TestSecondDemo(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"demo", "--still", "--listen=127.0.0.1:0"}, noEnvironment, nil, t.Output(), t.Output())
	}()
	var file demoFile
	for range poll(t, 30*time.Second) {
		if _, err := toml.DecodeFile(filepath.Join(demoFolder, "kickstand.toml"), &file); err == nil && file.Listen != "" {
			break
		}
	}
	if file.Listen == "" {
		t.Fatal("the demo did not start")
	}
	before, err := os.ReadFile(filepath.Join(demoFolder, "secret.key"))
	if err != nil {
		t.Fatal(err)
	}

	for address, want := range map[string]string{file.Listen: "--listen", "127.0.0.1:0": "runs already, at " + file.BaseURL} {
		err := run(t.Context(), []string{"demo", "--listen=" + address}, noEnvironment, nil, io.Discard, t.Output())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("second demo at %s: %v, want an error with %q", address, err, want)
		}
	}
	if after, err := os.ReadFile(filepath.Join(demoFolder, "secret.key")); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the second demo replaced the first one's key (%v)", err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"trigger", "sms", "--json"}, noEnvironment, nil, &out, t.Output()); err != nil || !strings.Contains(out.String(), `"status": 200`) {
		t.Errorf("the first demo answers %v, %s", err, out.String())
	}

	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the demo ended with %v", err)
	}
	// A stopped demo does not block the next.
	ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if at, runs := runningDemo(ctx, demoFolder); runs {
		t.Errorf("a demo that ended counts as running at %s", at)
	}
}

// TestDemoFleet: each printed key opens a seeded fleet in its environment only.
func TestDemoFleet(t *testing.T) {
	t.Chdir(t.TempDir())
	record := startDemo(t)
	for _, tt := range []struct {
		path, key string
		status    int
		want      string
	}{
		{"/v1/vehicles?code=B-0101", record.FleetLiveKey, http.StatusOK, `"livemode":true`},
		{"/sandbox/v1/vehicles?code=B-0101", record.FleetTestKey, http.StatusOK, `"livemode":false`},
		{"/v1/vehicles", record.FleetTestKey, http.StatusUnauthorized, "wrong_environment"},
		{"/v1/vehicles", record.LiveKey, http.StatusUnauthorized, "invalid_api_key"},
		{"/gbfs/v3/manifest.json", "", http.StatusOK, "_fukuoka"},
	} {
		req, err := http.NewRequest(http.MethodGet, record.URL+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tt.key != "" {
			req.Header.Set("Authorization", "Bearer "+tt.key)
		}
		if status, body := send(t, http.DefaultClient, req); status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s answered %d %s, want %d and %s", tt.path, status, body, tt.status, tt.want)
		}
	}
}

// demoServer is a demo under test with its output.
type demoServer struct {
	URL          string `json:"url"`
	Email        string `json:"email"`
	Password     string `json:"password"`
	LiveKey      string `json:"live_key"` // of the helpdesk
	FleetLiveKey string `json:"fleet_live_key"`
	FleetTestKey string `json:"fleet_test_key"`
	stop         func()
}

// startDemo runs the demo in the working directory, in process, until it is stopped or
// the test ends.
func startDemo(t *testing.T) *demoServer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, printed := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"demo", "--still", "--listen=127.0.0.1:0", "--json"}, noEnvironment, nil, printed, t.Output())
		printed.CloseWithError(err)
		ended <- err
	}()
	d := new(demoServer)
	if err := json.NewDecoder(out).Decode(d); err != nil {
		cancel()
		t.Fatal(err)
	}
	go io.Copy(io.Discard, out)
	d.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the demo ended with %v", err)
		}
	})
	t.Cleanup(d.stop)
	return d
}

// TestEndWhileStarting: a cancellation during the start is not an error.
func TestEndWhileStarting(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, command := range []string{"serve", "demo"} {
		for wait := time.Duration(0); wait < 100*time.Millisecond; wait += 10 * time.Millisecond {
			ctx, cancel := context.WithTimeoutCause(t.Context(), wait, errors.New("enough"))
			if err := run(ctx, []string{command, "--listen=127.0.0.1:0"}, noEnvironment, nil, io.Discard, io.Discard); err != nil {
				t.Errorf("%s, ended after %v: %v", command, wait, err)
			}
			cancel()
		}
	}
}

// TestCrossOrigin: a page of another site cannot call a procedure, and gets an error in
// the tRPC envelope.
func TestCrossOrigin(t *testing.T) {
	s := start(t, "--data="+t.TempDir())
	req, err := http.NewRequest(http.MethodPost, s.url+"/api/trpc/auth.signInWithEmail", strings.NewReader(`{"json":{"email":"ana@client.example"}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	const want = `{"error":{"json":{"message":"this request comes from another site","code":-32003,"data":{"code":"FORBIDDEN","httpStatus":403,"path":"auth.signInWithEmail"}}}}`
	if status, body := send(t, browser(t), req); status != http.StatusForbidden || body != want {
		t.Errorf("answered %d %s, want 403 %s", status, body, want)
	}
}

func TestLocalURL(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:8080":    "http://127.0.0.1:8080",
		"help.example:8080": "http://help.example:8080",
		":8080":             "http://localhost:8080",
		"0.0.0.0:8080":      "http://localhost:8080",
		"[::]:8080":         "http://localhost:8080",
		"[::1]:8080":        "http://[::1]:8080",
	} {
		if got := localURL(addr); got != want {
			t.Errorf("localURL(%q) = %s, want %s", addr, got, want)
		}
	}
}

// TestWrongUse: wrong use is exit status 2, other errors are 1.
func TestWrongUse(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tt := range []struct {
		args  string
		wrong bool
	}{
		{"serve --nonsense", true},
		{"serve --base-url=nonsense", true},
		{"serve --config=absent.toml", true},
		{"org create --name=", true},
		{"user create --email=robin --org=acme --role=agent", true},
		{"user create --email=robin@example.com --org=nowhere --role=agent", false},
		{"channel list --org=nowhere", false},
		{"serve --listen=127.0.0.1:0 --database-url=sqlite:absent/kickstand.db", false},
		{"trigger sms --sms-secret=x --base-url=http://127.0.0.1:1", false},
	} {
		err := run(t.Context(), strings.Fields(tt.args), noEnvironment, nil, io.Discard, io.Discard)
		if _, wrong := errors.AsType[usageError](err); err == nil || wrong != tt.wrong {
			t.Errorf("%s: %v, wrong use: %t, want %t", tt.args, err, wrong, tt.wrong)
		}
	}
}
