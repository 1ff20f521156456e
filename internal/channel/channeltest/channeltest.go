// Package channeltest is the conformance suite for channels.
//
// A channel provides fixtures (text archives of one request and the resulting events) and a
// function that signs a request like its provider. From these the suite checks that a request
// passes only with its own secret, unaltered and fresh; that the same request always gives the
// same keys and events; and that no body, however malformed, causes a panic, text that a
// database would refuse, or an undeclared error.
package channeltest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite the expected events in the fixtures")

// Received returns the time of receipt of the fixtures.
func Received() time.Time { return time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC) }

// Suite describes a channel to [Run].
type Suite struct {
	Adapter channel.Adapter

	// Dir holds the fixtures, one *.txtar file each:
	//
	//	POST https://help.example/api/webhooks/sms
	//	Content-Type: text/plain
	//	-- body --
	//	the body, without its last newline
	//	-- want.json --
	//	results of Addresses, Split and Parse, written by -update
	//
	// A file "body.quoted" holds the body as a Go string literal instead, a
	// file "body.crlf" gets CR LF line ends.
	Dir string

	// Sign signs r with secret at the time at, as the provider does.
	Sign func(r *channel.Request, secret string, at time.Time)

	// Key returns the configured key for requests signed with secret, if it differs, such as a
	// public key. Nil means that they are equal.
	Key func(secret string) string

	// Timed means that the signature carries a time and expires after Window, by default five
	// minutes.
	Timed  bool
	Window time.Duration

	// BodyUnsigned means that the signature does not cover the body.
	BodyUnsigned bool
}

// Run runs the suite.
func Run(t *testing.T, s Suite) {
	files, err := filepath.Glob(filepath.Join(s.Dir, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("no fixtures in %s", s.Dir)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			f := load(t, file)
			t.Run("events", func(t *testing.T) { s.events(t, f) })
			t.Run("verify", func(t *testing.T) { s.verify(t, f.request) })
			t.Run("repeat", func(t *testing.T) { s.repeat(t, f.request) })
			t.Run("broken", func(t *testing.T) { s.broken(t, f.request) })
		})
	}
	t.Run("answer", s.answer)
}

// Load returns the unsigned request of a fixture.
func Load(t testing.TB, file string) *channel.Request {
	t.Helper()
	return load(t, file).request
}

type fixture struct {
	file    string
	archive *txtar.Archive
	request *channel.Request
}

func load(t testing.TB, file string) fixture {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := &channel.Request{Header: http.Header{}, Received: Received()}
	first := true
	for line := range strings.Lines(string(a.Comment)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if first {
			r.Method, r.URL, _ = strings.Cut(line, " ")
			first = false
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			t.Fatalf("%s: %q is not a header", file, line)
		}
		r.Header.Add(name, strings.TrimSpace(value))
	}
	for _, f := range a.Files {
		data := bytes.TrimSuffix(f.Data, []byte("\n"))
		switch f.Name {
		case "body":
			r.Body = data
		case "body.crlf":
			r.Body = bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n"))
		case "body.quoted":
			text, err := strconv.Unquote(string(data))
			if err != nil {
				t.Fatalf("%s: body.quoted: %v", file, err)
			}
			r.Body = []byte(text)
		}
	}
	return fixture{file: file, archive: a, request: r}
}

const secret = "secret of this connection"

func clone(r *channel.Request) *channel.Request {
	c := *r
	c.Header = r.Header.Clone()
	c.Body = bytes.Clone(r.Body)
	return &c
}

func (s Suite) signed(r *channel.Request, secret string) *channel.Request {
	c := clone(r)
	s.Sign(c, secret, c.Received)
	return c
}

// events compares the parsed events with the fixture.
func (s Suite) events(t *testing.T, f fixture) {
	r := s.signed(f.request, secret)
	if rec, ok := s.Adapter.(channel.Recognizer); ok && !rec.Recognizes(r) {
		t.Errorf("Recognizes() = false for a fixture of this channel")
	}
	got, err := json.MarshalIndent(s.outcome(t, r), "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	i := slices.IndexFunc(f.archive.Files, func(f txtar.File) bool { return f.Name == "want.json" })
	if *update {
		if i < 0 {
			f.archive.Files = append(f.archive.Files, txtar.File{Name: "want.json"})
			i = len(f.archive.Files) - 1
		}
		f.archive.Files[i].Data = got
		if err := os.WriteFile(f.file, txtar.Format(f.archive), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if i < 0 {
		t.Fatalf("%s has no want.json; run with -update and read it", f.file)
	}
	if want := f.archive.Files[i].Data; !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", f.file, got, want)
	}
}

// outcome returns the adapter's results for a request as plain values.
func (s Suite) outcome(t *testing.T, r *channel.Request) map[string]any {
	t.Helper()
	out := map[string]any{}
	body := bytes.Clone(r.Body)
	addresses, err := s.Adapter.Addresses(r)
	if err != nil {
		out["addressesError"] = verdict(err)
	}
	if len(addresses) > 0 {
		out["addresses"] = plain(t, "addresses", reflect.ValueOf(addresses))
	}
	parts, err := s.Adapter.Split(r)
	if err != nil {
		if !errors.Is(err, channel.ErrUnreadable) {
			t.Errorf("Split() error %v does not wrap ErrUnreadable", err)
		}
		out["splitError"] = verdict(err)
	}
	keys := map[string]bool{}
	var list []any
	for _, p := range parts {
		if p.Key == "" && !p.Skip {
			t.Errorf("part %+v has no key", p)
		}
		if keys[p.Key] && !p.Skip {
			t.Errorf("two parts have the key %q", p.Key)
		}
		keys[p.Key] = true
		for name, v := range map[string]string{"key": p.Key, "sender": p.Sender, "address": p.Address, "kind": p.Kind} {
			if len(v) > 512 {
				t.Errorf("%s has %d bytes, more than an index takes: %.40q…", name, len(v), v)
			}
		}
		one := plain(t, "part", reflect.ValueOf(p)).(map[string]any)
		if !p.Skip {
			e, err := s.Adapter.Parse(r, p)
			switch {
			case err != nil:
				if !errors.Is(err, channel.ErrUnreadable) {
					t.Errorf("Parse() error %v does not wrap ErrUnreadable", err)
				}
				one["parseError"] = verdict(err)
			case members(e) != 1:
				t.Errorf("Parse(%q) = %+v, want exactly one member", p.Key, e)
			default:
				one["event"] = plain(t, "event", reflect.ValueOf(e))
			}
		}
		list = append(list, one)
	}
	if list != nil {
		out["parts"] = list
	}
	if !bytes.Equal(body, r.Body) {
		t.Errorf("the adapter changed the body of the request")
	}
	return out
}

// members returns the number of set fields of an event.
func members(e channel.Event) int {
	n := 0
	for _, member := range reflect.ValueOf(e).Fields() {
		if !member.IsNil() {
			n++
		}
	}
	return n
}

func verdict(err error) string {
	switch {
	case errors.Is(err, channel.ErrContentType):
		return "content type"
	case errors.Is(err, channel.ErrUnreadable):
		return "unreadable"
	}
	return "malformed"
}

// verify tries every way in which a signature can be missing or wrong.
func (s Suite) verify(t *testing.T, r *channel.Request) {
	good := s.signed(r, secret)
	check := func(what string, r *channel.Request, secret string, want bool) {
		t.Helper()
		if s.Key != nil && secret != "" {
			secret = s.Key(secret)
		}
		if got := s.Adapter.Verify(r, secret); got != want {
			t.Errorf("Verify(%s) = %t, want %t", what, got, want)
		}
		s.headerProof(t, what, r, secret)
	}
	check("own secret", good, secret, true)
	check("own secret, a second time", good, secret, true)
	check("unsigned", r, secret, false)
	check("another connection's secret", good, "secret of another connection", false)
	check("signed with another secret", s.signed(r, "secret of another connection"), secret, false)
	check("empty secret configured", good, "", false)
	check("signed with the empty secret", s.signed(r, ""), "", false)
	check("signed with the empty secret, another configured", s.signed(r, ""), secret, false)

	if !s.BodyUnsigned {
		altered := clone(good)
		altered.Body = append(altered.Body, 'x')
		check("altered body", altered, secret, false)
	}
	if s.Timed {
		window := cmp.Or(s.Window, 5*time.Minute)
		stale := clone(good)
		stale.Received = good.Received.Add(window + time.Second)
		check("stale", stale, secret, false)
		early := clone(good)
		early.Received = good.Received.Add(-window - time.Second)
		check("from the future", early, secret, false)
		late := clone(good)
		late.Received = good.Received.Add(window - time.Second)
		check("almost stale", late, secret, true)
	}
	for name, values := range good.Header {
		if slices.Equal(values, r.Header[name]) {
			continue
		}
		for _, v := range []string{"", "x", "0", "====", "\x00\xff", strings.Repeat("a", 5000), values[0] + "0", values[0][1:], " " + strings.ToUpper(values[0])[:1]} {
			bad := clone(good)
			bad.Header.Set(name, v)
			check(name+": "+strconv.Quote(v[:min(len(v), 20)]), bad, secret, false)
		}
	}
}

// headerProof checks that HeaderProof agrees with Verify.
func (s Suite) headerProof(t *testing.T, what string, r *channel.Request, secret string) {
	t.Helper()
	p, ok := s.Adapter.(channel.HeaderProver)
	if !ok {
		t.Fatal("the adapter does not judge by headers")
	}
	bare := clone(r)
	bare.Body = nil
	verified := s.Adapter.Verify(r, secret)
	switch p.HeaderProof(bare) {
	case channel.HeadersRefuse:
		if verified {
			t.Errorf("%s: the headers refuse what Verify accepts", what)
		}
	case channel.HeadersDecide:
		if s.Adapter.Verify(bare, secret) != verified {
			t.Errorf("%s: the headers decide, and Verify looks at the body", what)
		}
	}
}

// repeat sends the same request again, as a provider does after a time-out.
func (s Suite) repeat(t *testing.T, r *channel.Request) {
	first, second := s.signed(r, secret), s.signed(r, secret)
	second.Received = second.Received.Add(time.Minute)
	a, errA := s.Adapter.Split(first)
	b, errB := s.Adapter.Split(second)
	if (errA == nil) != (errB == nil) || len(a) != len(b) {
		t.Fatalf("Split() = %d parts, %v and then %d parts, %v", len(a), errA, len(b), errB)
	}
	for i := range a {
		if a[i].Key != b[i].Key {
			t.Errorf("the key of part %d was %q, then %q", i, a[i].Key, b[i].Key)
		}
		if a[i].Skip {
			continue
		}
		x, errX := s.Adapter.Parse(first, a[i])
		y, errY := s.Adapter.Parse(first, a[i])
		if !reflect.DeepEqual(x, y) || (errX == nil) != (errY == nil) {
			t.Errorf("part %d parsed twice gives %+v, %v and %+v, %v", i, x, errX, y, errY)
		}
	}
}

// broken sends malformed variants of a request, each signed, so that verification does not stop
// them.
func (s Suite) broken(t *testing.T, r *channel.Request) {
	n := len(r.Body)
	bodies := [][]byte{nil, {0}, []byte("\xff\xfe"), []byte("{"), []byte("null"), []byte("[]"), []byte("%"), bytes.Repeat([]byte("a"), 1<<16)}
	for _, at := range []int{1, n / 4, n / 2, 3 * n / 4, n - 1} {
		if at <= 0 || at >= n {
			continue
		}
		bodies = append(bodies,
			bytes.Clone(r.Body[:at]),
			slices.Concat(r.Body[:at], []byte("\xff\xc3\x28\x00%00%ff"), r.Body[at:]))
	}
	for _, body := range bodies {
		c := clone(r)
		c.Body = body
		s.outcome(t, s.signed(c, secret))
		c.Header.Del("Content-Type")
		s.outcome(t, s.signed(c, secret))
	}
	bare := clone(r)
	bare.Header = http.Header{}
	bare.URL = "://"
	s.outcome(t, bare)
	s.Adapter.Verify(bare, secret)
}

func (s Suite) answer(t *testing.T) {
	a, ok := s.Adapter.(channel.Acknowledger)
	if !ok {
		t.Skip("this channel takes the plain answer")
	}
	_, silent := a.Acknowledgement(channel.Accepted, "")
	for _, o := range []channel.Outcome{channel.Duplicate, channel.Ignored} {
		contentType, body := a.Acknowledgement(o, "must not be sent again")
		if contentType == "" || !bytes.Equal(body, silent) {
			t.Errorf("Answer(%s) with a reply = %q %q, want the silent answer %q", o, contentType, body, silent)
		}
	}
}

// plain converts a value to maps, slices and strings without zero values, and checks that a
// database can store every string.
func plain(t *testing.T, path string, v reflect.Value) any {
	t.Helper()
	switch v.Kind() {
	case reflect.Pointer:
		return plain(t, path, v.Elem())
	case reflect.Struct:
		if at, ok := v.Interface().(time.Time); ok {
			return at.UTC().Format(time.RFC3339)
		}
		m := map[string]any{}
		for field, value := range v.Fields() {
			if value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0 {
				continue
			}
			m[field.Name] = plain(t, path+"."+field.Name, value)
		}
		return m
	case reflect.Slice:
		if data, ok := v.Interface().([]byte); ok {
			return preview(data)
		}
		var list []any
		for i := range v.Len() {
			list = append(list, plain(t, path+"["+strconv.Itoa(i)+"]", v.Index(i)))
		}
		return list
	case reflect.String:
		text := v.String()
		if err := Storable(text); err != nil {
			t.Errorf("%s: %v: %.80q", path, err, text)
		}
		if strings.Count(text, "\n") > 1 {
			return slices.Collect(strings.SplitSeq(text, "\n"))
		}
		return text
	}
	return v.Interface()
}

// preview returns short text unchanged, and the size of other content.
func preview(data []byte) string {
	text := string(data)
	if len(text) <= 400 && strconv.CanBackquote(strings.NewReplacer("\r", "", "\n", "").Replace(text)) {
		return text
	}
	return strconv.Itoa(len(data)) + " bytes"
}

// Storable returns the reason why a database would refuse text, or nil.
func Storable(text string) error {
	if strings.ContainsRune(text, 0) {
		return errors.New("text holds a NUL")
	}
	if strings.ToValidUTF8(text, "") != text {
		return errors.New("text is not UTF-8")
	}
	return nil
}
