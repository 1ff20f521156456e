package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// demo is a running `kickstand demo`, as its output describes it.
type demo struct {
	URL     string `json:"url"`
	Email   string `json:"email"`
	LiveKey string `json:"live_key"`
	program string // the executable; its folder is the demo's
}

// startDemo builds the program and runs its demo until the test ends.
func startDemo(t *testing.T) demo {
	t.Helper()
	folder := t.TempDir()
	program := filepath.Join(folder, "kickstand")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../cmd/kickstand").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	cmd := exec.Command(program, "demo", "--still", "--map-tiles=none", "--listen=127.0.0.1:0", "--json")
	cmd.Dir, cmd.Stderr = folder, t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt) // fails if it has ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("the demo ended with %v", err)
		}
	})
	d := demo{program: program}
	if err := json.NewDecoder(out).Decode(&d); err != nil {
		t.Fatalf("the demo did not start: %v", err)
	}
	go io.Copy(io.Discard, out)
	return d
}

// ticket returns the path of the newest ticket that a search finds.
func (d demo) ticket(t *testing.T, search string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.URL+"/api/v1/tickets?limit=1&q="+url.QueryEscape(search), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+d.LiveKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			Number int64 `json:"number"`
		} `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || len(list.Data) == 0 {
		t.Fatalf("no ticket for %q: %s, %v", search, resp.Status, err)
	}
	return "/tickets/" + strconv.FormatInt(list.Data[0].Number, 10)
}

// pages are the pages of the demo in the documentation, by the names of their pictures.
func (d demo) pages(t *testing.T) []pageCase {
	list := []pageCase{
		{name: "inbox", path: at("/inbox")}, {name: "reports", path: at("/reports")}, {name: "customers", path: at("/customers")},
		{name: "fleet", path: at("/fleet")}, {name: "fleet-map", path: at("/fleet/map")}, {name: "fleet-rides", path: at("/fleet/rides")},
		{name: "settings-channels", path: at("/settings/channels")},
	}
	return append(list, pageCase{name: "ticket", path: at(d.ticket(t, "tag:billing tag:lock status:closed"))})
}

// visit opens a browser in which the demo's admin is signed in.
func (d demo) visit(t *testing.T) *visitor {
	t.Helper()
	link := exec.CommandContext(t.Context(), d.program, "user", "link", d.Email)
	link.Dir = filepath.Dir(d.program)
	out, err := link.Output()
	if err != nil {
		t.Fatal(err)
	}
	address, _, _ := strings.Cut(string(out), "\n")
	v := newTab(t, needChromium(t), d.URL, chromedp.WithNewBrowserContext())
	v.open(strings.TrimPrefix(address, d.URL))
	v.click("main form button")
	v.at("/inbox*")
	return v
}
