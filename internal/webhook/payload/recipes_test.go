package payload

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"go/format"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// recipes is the folder of the public recipes: a page per language, with the tested files as
// fenced blocks.
const recipes = "../../../docs/webhooks"

// recipe is how a language's page is run.
type recipe struct {
	page   string
	tools  []string // required executables
	blocks []string // the files that the page holds
	driver string   // of testdata/recipes, reads vectors and prints verdicts
	build  []string // if the language needs it
	run    []string // the driver
	serve  []string // the receiver; $PORT is its port
}

// languages returns the recipe of every page.
func languages() []recipe {
	return []recipe{
		{
			page: "go.md", tools: []string{"go"}, blocks: []string{"verify.go", "receiver.go"}, driver: "driver.go",
			build: []string{"go", "build", "-o", "receiver.exe", "."}, run: []string{"./receiver.exe", "vectors"}, serve: []string{"./receiver.exe"},
		},
		{
			page: "javascript.md", tools: []string{"node"}, blocks: []string{"verify.mjs", "receiver.mjs"}, driver: "driver.mjs",
			run: []string{"node", "driver.mjs"}, serve: []string{"node", "receiver.mjs"},
		},
		{
			page: "python.md", tools: []string{"python3"}, blocks: []string{"verify.py", "receiver.py"}, driver: "driver.py",
			run: []string{"python3", "driver.py"}, serve: []string{"python3", "receiver.py"},
		},
		{
			page: "php.md", tools: []string{"php"}, blocks: []string{"verify.php", "receiver.php"}, driver: "driver.php",
			run: []string{"php", "driver.php"}, serve: []string{"php", "-S", "127.0.0.1:$PORT", "receiver.php"},
		},
		{
			page: "java.md", tools: []string{"java", "javac"}, blocks: []string{"Verify.java", "Receiver.java"}, driver: "Driver.java",
			build: []string{"javac", "Verify.java", "Receiver.java", "Driver.java"},
			run:   []string{"java", "-XX:TieredStopAtLevel=1", "Driver"}, serve: []string{"java", "-XX:TieredStopAtLevel=1", "Receiver"},
		},
	}
}

// The code on the pages accepts signatures of sign and nothing else.
func TestRecipes(t *testing.T) {
	var tested []string
	for _, r := range languages() {
		tested = append(tested, r.page)
		t.Run(strings.TrimSuffix(r.page, ".md"), func(t *testing.T) {
			t.Parallel()
			blocks := fenced(t, r.page)
			if got := slices.Sorted(maps.Keys(blocks)); !slices.Equal(got, slices.Sorted(slices.Values(r.blocks))) {
				t.Fatalf("%s holds the files %q, want %q", r.page, got, r.blocks)
			}
			for _, tool := range r.tools {
				if _, err := exec.LookPath(tool); err != nil {
					t.Skipf("the code of docs/webhooks/%s was not run: %s is not installed", r.page, tool)
				}
			}
			dir := t.TempDir()
			for name, text := range blocks {
				write(t, filepath.Join(dir, name), text)
			}
			driver, err := os.ReadFile(filepath.Join("testdata", "recipes", r.driver))
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, r.driver), driver)
			if r.page == "go.md" {
				write(t, filepath.Join(dir, "go.mod"), []byte("module receiver\n\ngo 1.24\n"))
			}
			if r.build != nil {
				if out, err := r.command(t.Context(), dir, r.build).CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", strings.Join(r.build, " "), err, out)
				}
			}
			t.Run("vectors", func(t *testing.T) { t.Parallel(); r.verify(t, dir) })
			t.Run("receiver", func(t *testing.T) { t.Parallel(); r.receive(t, dir) })
			t.Run("no secret", func(t *testing.T) { t.Parallel(); r.refuseToStart(t, dir) })
		})
	}
	pages, err := filepath.Glob(filepath.Join(recipes, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if base := filepath.Base(page); base != "README.md" && !slices.Contains(tested, base) {
			t.Errorf("nothing runs the code of docs/webhooks/%s", base)
		}
	}
}

// blockName is the comment that begins a block which is a file.
var blockName = regexp.MustCompile(`^(?:<\?php\n)?(?://|#) ([A-Za-z]+\.[a-z]+)\n`)

// fenced returns the files of a page.
func fenced(t *testing.T, page string) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(recipes, page))
	if err != nil {
		t.Fatal(err)
	}
	blocks := make(map[string][]byte)
	var block []byte
	inside := false
	for line := range bytes.Lines(text) {
		fence := bytes.HasPrefix(line, []byte("```"))
		switch {
		case fence && !inside:
			inside, block = true, nil
		case fence:
			inside = false
			if m := blockName.FindSubmatch(block); m != nil {
				name := string(m[1])
				if blocks[name] != nil {
					t.Fatalf("%s holds %s twice", page, name)
				}
				blocks[name] = block
			}
		case inside:
			block = append(block, line...)
		}
	}
	if inside {
		t.Fatalf("%s ends inside a block", page)
	}
	return blocks
}

func write(t *testing.T, name string, text []byte) {
	t.Helper()
	if filepath.Ext(name) == ".go" {
		if formatted, err := format.Source(text); err != nil || !bytes.Equal(formatted, text) {
			t.Errorf("%s is not as gofmt has it: %v", filepath.Base(name), err)
		}
	}
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (r recipe) command(ctx context.Context, dir string, args []string, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOTOOLCHAIN=local", "CGO_ENABLED=0", "PHP_CLI_SERVER_WORKERS=")
	cmd.Env = append(cmd.Env, env...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// vector is a delivery, and whether one of the verifications accepts it.
type vector struct {
	name   string
	check  string // a, b, or standard
	secret string
	now    int64
	body   string
	header http.Header
	want   bool
}

// stamp is when the deliveries of the vectors are signed.
const stamp = 1764000000

// words is the secret of the examples.
const words = "a secret made of plain words"

// delivered returns the headers of a delivery, as the form signs it. old may be
// empty.
func delivered(form Form, secret, old, id string, when time.Time, body string) http.Header {
	var before *Signer
	if old != "" {
		before = NewSigner(old)
	}
	h := http.Header{"Content-Type": {"application/json"}, headerEvent: {"ticket.created"}, headerStandardID: {id}}
	Sign(h, NewSigner(secret), before, form, when, []byte(body))
	return h
}

// signed returns the headers of a vector, in the form that the check is for.
// Those of Standard Webhooks come with either form.
func signed(check, secret, old, body string) http.Header {
	form := Nested
	if check == "a" {
		form = Flat
	}
	return delivered(form, secret, old, "evt_known_answer", time.Unix(stamp, 0), body)
}

// changed returns a copy of h in which a header has another value.
func changed(h http.Header, name string, change func(string) string) http.Header {
	h = h.Clone()
	h.Set(name, change(h.Get(name)))
	return h
}

// without returns a copy of h that lacks a header.
func without(h http.Header, name string) http.Header {
	h = h.Clone()
	h.Del(name)
	return h
}

func vectors() []vector {
	const body = `{"event":"ticket.created","text":"Grüße 👋"}`
	var (
		whsec    = "whsec_" + base64.StdEncoding.EncodeToString([]byte(words))
		unpadded = strings.TrimRight(whsec, "=")
		unicode  = "Schlüssel 🔑"
		all      []vector
	)
	for _, check := range []string{"a", "b", "standard"} {
		header := headerSignature
		if check == "standard" {
			header = headerStandardSignature
		}
		good := signed(check, words, "", body)
		add := func(name, secret, body string, h http.Header, want bool) {
			all = append(all, vector{name, check, secret, stamp, body, h, want})
		}
		set := func(name string, change func(string) string) {
			add(name, words, body, changed(good, header, change), false)
		}

		add("good", words, body, good, true)
		for _, b := range []struct{ name, body string }{
			{"empty body", ""},
			{"body that is no UTF-8", "\xff\xfe\x80 {\x00}"},
			{"body with all ends of lines", "{\r\n\"a\": 1\n}\r\n"},
			{"long body", strings.Repeat("Fahrräder 🚲 ", 10_000)},
		} {
			add(b.name, words, b.body, signed(check, words, "", b.body), true)
			add(b.name+", altered", words, b.body+" ", signed(check, words, "", b.body), false)
		}
		add("secret beyond ASCII", unicode, body, signed(check, unicode, "", body), true)
		add("wrong secret", "another secret", body, good, false)
		add("secret with a space", words+" ", body, good, false)
		add("altered body", words, strings.Replace(body, "created", "deleted", 1), good, false)
		add("body written again", words, `{"event": "ticket.created", "text": "Grüße 👋"}`, good, false)
		add("body without its end", words, body[:len(body)-1], good, false)

		add("whsec", whsec, body, signed(check, whsec, "", body), true)
		add("whsec without padding", unpadded, body, signed(check, unpadded, "", body), true)
		add("whsec, signed with the words", whsec, body, good, check == "standard")

		add("no signature", words, body, without(good, header), false)
		add("no headers", words, body, http.Header{}, false)
		set("empty signature", func(string) string { return "" })
		set("signature cut", func(s string) string { return s[:len(s)-1] })
		set("signature cut to half", func(s string) string { return s[:len(s)/2] })
		set("signature with more behind", func(s string) string { return s + "0" })
		set("signature beyond ASCII", func(s string) string { return "ü" + s[1:] })
		set("signature that is a word", func(string) string { return "true" })
	}

	for _, check := range []string{"a", "b"} {
		good := signed(check, words, "", body)
		add := func(name, secret string, h http.Header, want bool) {
			all = append(all, vector{name, check, secret, stamp, body, h, want})
		}
		other := "b"
		if check == "b" {
			other = "a"
		}
		add("of the other form", words, signed(other, words, "", body), false)
		add("upper case", words, changed(good, headerSignature, func(s string) string {
			digits := strings.TrimPrefix(s, "sha256=")
			return strings.TrimSuffix(s, digits) + strings.ToUpper(digits)
		}), false)
		add("only the standard's", words, without(good, headerSignature), false)
		add("only the form's", words, http.Header{headerSignature: good[headerSignature]}, true)
		add("replaced, new", "new", signed(check, "new", "old", body), true)
		add("replaced, old", "old", signed(check, "new", "old", body), false)
	}

	good := signed("standard", words, "", body)
	standard := func(name, secret string, now int64, h http.Header, want bool) {
		all = append(all, vector{name, "standard", secret, now, body, h, want})
	}
	set := func(name, header string, want bool, change func(string) string) {
		standard(name, words, stamp, changed(good, header, change), want)
	}
	standard("of form a", words, stamp, signed("a", words, "", body), true)
	standard("five minutes old", words, stamp+300, good, true)
	standard("stale", words, stamp+301, good, false)
	standard("a day old", words, stamp+86400, good, false)
	standard("five minutes early", words, stamp-300, good, true)
	standard("of the future", words, stamp-301, good, false)
	standard("no id", words, stamp, without(good, headerStandardID), false)
	standard("no timestamp", words, stamp, without(good, headerStandardTimestamp), false)
	standard("only the form's", words, stamp, http.Header{headerSignature: good[headerSignature]}, false)
	standard("only the standard's", words, stamp, without(good, headerSignature), true)
	set("another id", headerStandardID, false, func(string) string { return "evt_another" })
	set("another time", headerStandardTimestamp, false, func(string) string { return strconv.Itoa(stamp + 1) })
	set("time written otherwise", headerStandardTimestamp, false, func(s string) string { return "0" + s })
	set("time that is no number", headerStandardTimestamp, false, func(string) string { return "now" })
	set("time beyond all numbers", headerStandardTimestamp, false, func(string) string { return strings.Repeat("9", 40) })
	for _, timestamp := range []string{"now", "-1764000000", "1764000000x", strings.Repeat("9", 40), ""} {
		h := without(good, headerStandardTimestamp)
		h.Set(headerStandardTimestamp, timestamp)
		mac := hmac.New(sha256.New, []byte(words))
		mac.Write([]byte("evt_known_answer." + timestamp + "." + body))
		h.Set(headerStandardSignature, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		standard("signed time "+strconv.Quote(timestamp), words, stamp, h, false)
	}
	set("of another version", headerStandardSignature, false, func(s string) string { return "v1a" + strings.TrimPrefix(s, "v1") })
	set("of no version", headerStandardSignature, false, func(s string) string { return strings.TrimPrefix(s, "v1,") })
	set("wrong case", headerStandardSignature, false, strings.ToUpper)
	set("hex", headerStandardSignature, false, func(string) string { return "v1," + strings.TrimPrefix(good.Get(headerSignature), "sha256=") })
	set("of a form", headerStandardSignature, false, func(string) string { return good.Get(headerSignature) })
	set("after one of another version", headerStandardSignature, true, func(s string) string { return "v1a,c2lnbmF0dXJl " + s })
	set("before one of another version", headerStandardSignature, true, func(s string) string { return s + " v1a,c2lnbmF0dXJl" })
	newFirst := signed("standard", "new", "old", body)
	oldFirst := changed(newFirst, headerStandardSignature, func(s string) string {
		first, second, _ := strings.Cut(s, " ")
		return second + " " + first
	})
	for _, v := range []struct {
		name string
		h    http.Header
	}{{"new first", newFirst}, {"old first", oldFirst}} {
		standard(v.name+", new", "new", stamp, v.h, true)
		standard(v.name+", old", "old", stamp, v.h, true)
		standard(v.name+", neither", "older", stamp, v.h, false)
	}
	for i, v := range slices.Clone(all) {
		v.name += ", names in lower case"
		v.header = make(http.Header, len(v.header))
		for name, values := range all[i].header {
			v.header[strings.ToLower(name)] = values
		}
		all = append(all, v)
	}
	return all
}

// verify gives the driver a line for each vector and reads a verdict for each:
// check, time, secret, body, and names and values of headers, between tabs. All
// but check, time and names are base64.
func (r recipe) verify(t *testing.T, dir string) {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	all := vectors()
	var in strings.Builder
	for _, v := range all {
		fmt.Fprintf(&in, "%s\t%d\t%s\t%s", v.check, v.now, b64(v.secret), b64(v.body))
		for _, name := range slices.Sorted(maps.Keys(v.header)) {
			fmt.Fprintf(&in, "\t%s\t%s", name, b64(v.header[name][0]))
		}
		in.WriteByte('\n')
	}
	cmd := r.command(t.Context(), dir, r.run)
	var out, failed bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in.String()), &out, &failed
	err := cmd.Run()
	verdicts := strings.Fields(out.String())
	for i, v := range all {
		if i >= len(verdicts) {
			t.Errorf("%s: %s: no verdict", v.check, v.name)
			break
		}
		if got, want := verdicts[i], strconv.FormatBool(v.want); got != want {
			t.Errorf("%s: %s: got %s, want %s", v.check, v.name, got, want)
		}
	}
	if err != nil || len(verdicts) != len(all) {
		t.Errorf("%s: %v, %d verdicts for %d vectors\n%s", strings.Join(r.run, " "), err, len(verdicts), len(all), failed.String())
	}
}

// receive starts the receiver and delivers to it.
func (r recipe) receive(t *testing.T, dir string) {
	var p *process
	for range 3 { // somebody else may take the port first
		if p = r.start(t, dir, words); p != nil {
			break
		}
	}
	if p == nil {
		t.Fatal("the receiver ended")
	}
	const body = `{"event":"ticket.created","text":"Grüße 👋"}`
	deliver := func(id, secret string, signedAt time.Time, change func(*http.Request)) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = delivered(Nested, secret, "", id, signedAt, body)
		if change != nil {
			change(req)
		}
		return p.status(t, req)
	}
	now := time.Now()
	same := func(*http.Request) {}
	lower := func(req *http.Request) {
		for name, values := range maps.Clone(req.Header) {
			delete(req.Header, name)
			req.Header[strings.ToLower(name)] = values
		}
	}
	altered := func(req *http.Request) {
		req.Body = io.NopCloser(strings.NewReader(strings.Replace(body, "created", "deleted", 1)))
	}
	unsigned := func(req *http.Request) {
		req.Header.Del(headerSignature)
		req.Header.Del(headerStandardSignature)
		req.Header.Del(headerStandardTimestamp)
	}
	get := func(req *http.Request) { req.Method, req.Body, req.ContentLength = http.MethodGet, nil, 0 }
	for _, d := range []struct {
		name, id, secret string
		at               time.Time
		change           func(*http.Request)
		want             int // the status, or 2 for 2xx, 4 for 4xx or 5xx
	}{
		{"good", "evt_first", words, now, same, 2},
		{"again", "evt_first", words, now, same, 2},
		{"signed anew", "evt_first", words, now.Add(time.Second), same, 2},
		{"wrong secret", "evt_wrong", "another secret", now, same, 401},
		{"altered", "evt_altered", words, now, altered, 401},
		{"stale", "evt_stale", words, now.Add(-10 * time.Minute), same, 401},
		{"of the future", "evt_future", words, now.Add(10 * time.Minute), same, 401},
		{"unsigned", "evt_unsigned", words, now, unsigned, 401},
		{"got", "evt_got", words, now, get, 4},
		{"names in lower case", "evt_second", words, now, lower, 2},
		{"last", "evt_third", words, now, same, 2},
	} {
		if got := deliver(d.id, d.secret, d.at, d.change); got != d.want && (d.want >= 100 || got/100 != d.want && (d.want != 4 || got/100 != 5)) {
			t.Errorf("%s: got status %d, want %d", d.name, got, d.want)
		}
	}
	var got []string
	for !slices.Contains(got, "evt_third") {
		select {
		case id := <-p.received:
			got = append(got, id)
		case <-time.After(10 * time.Second):
			t.Fatalf("of the events only %q were worked on", got)
		}
	}
	if want := []string{"evt_first", "evt_second", "evt_third"}; !slices.Equal(got, want) {
		t.Errorf("worked on %q, want %q", got, want)
	}
}

// refuseToStart checks that a receiver without a secret accepts nothing.
func (r recipe) refuseToStart(t *testing.T, dir string) {
	p := r.start(t, dir, "")
	if p == nil {
		return
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = delivered(Nested, "", "", "evt_first", time.Now(), "")
	if got := p.status(t, req); got < 500 {
		t.Errorf("signed with an empty secret: got status %d, want an error of the server's", got)
	}
}

// process is a running receiver.
type process struct {
	url      string
	received chan string // ids, as they are worked on
	client   *http.Client
}

// receivedLine finds what a receiver prints as it works on an event, in a line
// that a web server's own log may share.
var receivedLine = regexp.MustCompile(`received (evt_[a-z]+)`)

// start runs the receiver on a free port until it answers, and until the test
// ends. It returns nil if the receiver ends first.
func (r recipe) start(t *testing.T, dir, secret string) *process {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	listener.Close()

	args := slices.Clone(r.serve)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$PORT", port)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := r.command(ctx, dir, args, "PORT="+port, "WEBHOOK_SECRET="+secret)
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	p := &process{url: "http://127.0.0.1:" + port + "/hook", received: make(chan string, 100), client: &http.Client{
		Transport: new(http.Transport),
		Timeout:   10 * time.Second,
	}}
	ended, read := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait() // it is killed, or the caller asks how it fares
		in.Close()
	}()
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fmt.Fprintln(t.Output(), lines.Text())
			for _, m := range receivedLine.FindAllStringSubmatch(lines.Text(), -1) {
				p.received <- m[1]
			}
		}
	}()
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		cancel()
		<-ended
		<-read
	})

	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(30 * time.Second)
	for {
		if resp, err := p.client.Get(p.url); err == nil {
			resp.Body.Close()
			return p
		}
		select {
		case <-ended:
			return nil
		case <-deadline:
			t.Fatal("the receiver does not answer")
		case <-poll.C:
		}
	}
}

func (p *process) status(t *testing.T, req *http.Request) int {
	t.Helper()
	resp, err := p.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// The answers that a reader checks against are those of sign, and of the shell
// commands beside them.
func TestRecipeAnswers(t *testing.T) {
	const body = `{"event":"ticket.created","text":"Grüße 👋"}`
	text, err := os.ReadFile(filepath.Join(recipes, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, row := range []string{
		"| secret | `" + words + "` |",
		"| body | `" + body + "` |",
		"| `Webhook-Id` | `evt_known_answer` |",
		"| `Webhook-Timestamp` | `" + strconv.Itoa(stamp) + "` |",
	} {
		if !strings.Contains(page, row+"\n") {
			t.Errorf("README.md has no row %s", row)
		}
	}
	var answers []string
	for _, secret := range []string{words, "whsec_" + base64.StdEncoding.EncodeToString([]byte(words))} {
		a, b := signed("a", secret, "", body), signed("b", secret, "", body)
		answers = append(answers, a.Get(headerSignature), b.Get(headerSignature), b.Get(headerStandardSignature))
	}
	row := regexp.MustCompile("(?m)^\\| (?:form A|form B|Standard Webhooks) \\| `(.*)` \\|$")
	var got []string
	for _, m := range row.FindAllStringSubmatch(page, -1) {
		got = append(got, m[1])
	}
	if !slices.Equal(got, answers) {
		t.Errorf("README.md gives the answers\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(answers, "\n"))
	}

	t.Run("shell", func(t *testing.T) {
		_, script, ok := strings.Cut(page, "```sh\n")
		script, _, ended := strings.Cut(script, "```")
		if !ok || !ended {
			t.Fatal("README.md has no shell commands")
		}
		for _, tool := range []string{"sh", "openssl", "base64"} {
			if _, err := exec.LookPath(tool); err != nil {
				t.Skipf("the shell commands of docs/webhooks/README.md were not run: %s is not installed", tool)
			}
		}
		out, err := exec.CommandContext(t.Context(), "sh", "-c", script).Output()
		if want := strings.Join(answers[:3], "\n") + "\n"; err != nil || string(out) != want {
			t.Errorf("the shell commands print %v\n%s\nwant\n%s", err, out, want)
		}
	})
}
