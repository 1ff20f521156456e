// Package archtest enforces the rules of this repository as tests: the imports of each package,
// and some conventions that reviews should not have to request.
//
// Packages are arranged in layers. A package imports only packages on lower layers, so its
// layer bounds its dependencies, and no lower package can depend on an API or a page. The table
// below assigns the layers; docs/architecture.md explains them and docs/adr/0005-layers.md
// gives the reasons.
//
// The tests parse the source files instead of using the build, so that packages that do not
// compile are checked too, and test results are not cached across changes of a file.
package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/kickstand-dev/kickstand/"

// layers lists the packages by layer, from the lowest. A last element "*" matches any folder.
// Packages need not exist.
var layers = [][]string{
	0: {
		"internal/fairqueue", "internal/bodypool", "internal/problem", "internal/db", "internal/mail", "internal/blob", "internal/seal", "internal/netguard",
		"internal/phone", "internal/period", "internal/safehtml", "internal/markdown", "internal/optional", "internal/rfc3339", "internal/mailauth",
		"internal/bitpack", "internal/cache", "internal/textwords", "internal/geo", "internal/loop", "internal/tariff", "internal/telemetry",
		"internal/clientgen", "internal/desk/query",
	},
	1: {"internal/clientgen/generate", "internal/businesshours", "internal/keyset", "internal/mailparse", "internal/mailquote", "internal/rest/schema", "internal/webhook/payload", "internal/queue", "internal/event", "internal/channel", "internal/ratelimit", "internal/live", "internal/audit", "internal/requestlog", "internal/quota", "internal/tiles", "internal/tiles/generate", "internal/fleet/track"},
	2: {
		"internal/fleet/rideindex", "internal/desk", "internal/account", "internal/webhook", "internal/connection", "internal/fleet",
		"internal/apikey", "internal/call", "internal/shop", "internal/push", "internal/setting",
	},
	3: {"internal/channel/*", "internal/account/browser", "internal/account/oidc", "internal/account/factor", "internal/billing", "internal/gbfs", "internal/mds", "internal/remoteimage", "internal/search"},
	4: {"internal/web/chart", "internal/web/mapview", "internal/rpc", "internal/importer", "internal/inbound", "internal/mailbox", "internal/smtpd", "internal/outbound", "internal/web", "internal/rest"},
	5: {"internal/demo", "internal/ops", "internal/rest/*", "internal/mcp", "internal/web/*", "internal/app/doctor"},
	6: {"internal/app"},
	7: {"cmd/kickstand", "bench", "e2e", "clients/conformance", "internal/archtest", "internal/sim"},
}

// neighbours lists the imports between packages of one layer, with reasons. An unused entry is
// an error.
var neighbours = map[[2]string]string{
	{"internal/db", "internal/problem"}:            "a full disk or a lost server is the kind Unavailable wherever it shows",
	{"internal/blob", "internal/problem"}:          "so is a store of files that fails",
	{"internal/db", "internal/loop"}:               "it waits for locks and retries like everybody else",
	{"internal/mail", "internal/db"}:               "a mail is enqueued in the transaction of the change that it reports",
	{"internal/webhook/payload", "internal/event"}: "a payload is an event in the form of receivers",
	{"internal/mailauth", "internal/cache"}:        "answers of the DNS are cached; a cache has no dependencies",
	{"internal/event", "internal/keyset"}:          "events are a list with pages and exports",
	{"internal/audit", "internal/keyset"}:          "so are audit entries",
	{"internal/quota", "internal/audit"}:           "a limit that the operator sets and a quota that is used up are audit entries",
	{"internal/quota", "internal/queue"}:           "admins are notified by a job, not while the row of use is locked",
	{"internal/telemetry", "internal/loop"}:        "a collector of traces that is away is logged once",
	{"internal/geo", "internal/problem"}:           "a position or an area that is not valid is an issue at its field",
	{"internal/tariff", "internal/problem"}:        "so is an amount of a tariff",
	{"internal/fleet", "internal/fleet/rideindex"}: "the index of rides by place is the fleet's, with a narrow border",
}

// never lists imports that the layers allow but the design does not. A name may end with "*".
var never = []struct{ who, what, why string }{
	{"internal/channel*", "internal/db", "an adapter is data in, data out: it never touches the database"},
	{"internal/channel*", "internal/queue", "an adapter is data in, data out: what happens later is decided elsewhere"},
	{"internal/channel*", "internal/event", "an adapter is data in, data out: it makes no events"},
	{"internal/channel*", "database/sql", "an adapter is data in, data out: it never touches the database"},
	{"internal/rpc", "internal/db", "the envelope encodes answers; rows are for the domains"},
	{"internal/web*", "database/sql", "pages show what a service returns and run its changes in a transaction; rows are for the domains"},
	{"internal/rest/schema", "net/http", "a record is described alike for every route"},
	{"internal/rest*", "database/sql", "routes run a service's change in a transaction and encode what it returns; rows are for the domains"},
	{"internal/desk", "net/http", "a domain does not know how it was asked"},
	{"internal/account", "net/http", "a domain does not know how it was asked; package browser is its HTTP side"},
	{"internal/account/factor", "net/http", "a domain does not know how it was asked"},
	{"internal/fleet", "net/http", "a domain does not know how it was asked"},
	{"internal/apikey", "net/http", "a domain does not know how it was asked"},
	{"internal/queue", "net/http", "the queue knows kinds, lanes and bytes"},
	{"internal/event", "net/http", "an event does not know who listens"},
}

// only restricts libraries to the listed packages. Other libraries may be imported anywhere.
var only = []struct {
	what string
	who  []string
	why  string
}{
	{"zombiezen.com/go/sqlite", []string{"internal/db", "internal/tiles"}, "the engines differ below db and nowhere else; a file of map tiles is SQLite on both"},
	{"modernc.org/sqlite", []string{"bench"}, "only ceilings are measured with another driver"},
	{"github.com/jackc/pgx", []string{"internal/db", "bench"}, "the engines differ below db and nowhere else; ceilings are of drivers alone"},
	{"github.com/alecthomas/kong", []string{"cmd/kickstand"}, "configuration comes down as values"},
	{"github.com/BurntSushi/toml", []string{"cmd/kickstand"}, "configuration comes down as values"},
	{"github.com/minio/minio-go", []string{"internal/blob"}, "where files are kept is blob's business"},
	{"github.com/wneessen/go-mail", []string{"internal/mail"}, "how mail leaves is mail's business"},
	{"github.com/jhillyerd/enmime", []string{"internal/mailparse"}, "how mail is read is one package's business"},
	{"github.com/emersion/go-imap", []string{"internal/mailbox"}, "how mailboxes are read is one package's business"},
	{"blitiri.com.ar/go/spf", []string{"internal/smtpd"}, "SPF is evaluated where the client's address is known"},
	{"github.com/emersion/go-msgauth", []string{"internal/mailauth"}, "what proves a sender is decided in one place"},
	{"github.com/microcosm-cc/bluemonday", []string{"internal/safehtml"}, "HTML is cleaned in one place, with one policy"},
	{"github.com/yuin/goldmark", []string{"internal/markdown"}, "agents write one dialect"},
	{"github.com/coreos/go-oidc", []string{"internal/account/oidc"}, "how a provider is spoken to is one package's business"},
	{"golang.org/x/oauth2", []string{"internal/account/oidc", "internal/mailbox"}, "how a provider is spoken to is one package's business"},
	{"github.com/go-webauthn/webauthn", []string{"internal/account/factor"}, "how passkeys and codes are verified is one package's business"},
	{"github.com/pquerna/otp", []string{"internal/account/factor"}, "how passkeys and codes are verified is one package's business"},
	{"github.com/SherClockHolmes/webpush-go", []string{"internal/push"}, "how a browser is reached is one package's business"},
	{"github.com/gomodule/redigo", []string{"internal/ratelimit"}, "where limits are counted is one package's business"},
	{"github.com/chromedp", []string{"e2e"}, "only tests look at pages in a browser"},
	{"github.com/prometheus", []string{"internal/telemetry", "internal/app"}, "instruments are constructed in one place and passed in"},
	{"go.opentelemetry.io/otel/sdk", []string{"internal/telemetry"}, "spans are begun by the context's, and exported in one place"},
	{"os/exec", []string{"bench"}, "the program runs no others; only tests do"},
	{"github.com/hashicorp/golang-lru", []string{"internal/cache"}, "values in memory are bounded and invalidated in one place"},
	{"github.com/nyaruka/phonenumbers", []string{"internal/phone"}, "a number has one canonical form, made in one place"},
}

// forbidden lists libraries that this repository does not use, by prefix of the import path.
var forbidden = map[string]string{
	"github.com/mattn/go-sqlite3":   "needs cgo; the engine is zombiezen.com/go/sqlite",
	"github.com/lib/pq":             "the driver is pgx",
	"gorm.io/":                      "statements are written by hand, once",
	"entgo.io/":                     "statements are written by hand, once",
	"github.com/jmoiron/sqlx":       "db.One and db.All scan rows",
	"github.com/gin-gonic/":         "net/http routes",
	"github.com/labstack/echo":      "net/http routes",
	"github.com/go-chi/":            "net/http routes",
	"github.com/gofiber/":           "net/http routes",
	"github.com/gorilla/mux":        "net/http routes",
	"github.com/sirupsen/logrus":    "log/slog, handed down",
	"github.com/rs/zerolog":         "log/slog, handed down",
	"go.uber.org/zap":               "log/slog, handed down",
	"go.uber.org/fx":                "package app wires in straight lines",
	"go.uber.org/dig":               "package app wires in straight lines",
	"github.com/google/wire":        "package app wires in straight lines",
	"github.com/spf13/":             "kong reads flags, environment and file from one struct",
	"github.com/stretchr/testify":   "package testing says what was got and what was wanted",
	"github.com/golang/mock":        "tests use real databases and hand-written far sides",
	"go.uber.org/mock":              "tests use real databases and hand-written far sides",
	"github.com/pkg/errors":         "fmt.Errorf and errors.AsType",
	"github.com/twilio/":            "sixty lines of HMAC",
	"github.com/stripe/":            "sixty lines of HMAC",
	"github.com/slack-go/":          "sixty lines of HMAC",
	"github.com/sendgrid/":          "sixty lines of ECDSA",
	"github.com/aws/":               "the checks that are needed are in the standard library",
	"github.com/standard-webhooks/": "sixty lines of HMAC",
	"github.com/svix/":              "sixty lines of HMAC",
	"golang.org/x/exp/":             "no experiments",
	"io/ioutil":                     "os and io have it",
	"log":                           "log/slog, handed down",
	"encoding/gob":                  "stored forms are JSON, which a person can read",
	"math/rand":                     "math/rand/v2, or crypto/rand for whatever must not be guessed",
	"golang.org/x/net/context":      "context",
	"text/template":                 "html/template, or plain code: nothing forgets to escape",
	"unsafe":                        "memory is the compiler's business",
	"plugin":                        "no code comes in from outside",
}

// file is a Go source file.
type file struct {
	name   string // relative to the root, with slashes
	test   bool   // _test.go
	syntax *ast.File
	fset   *token.FileSet
}

// pkg is a folder with Go files.
type pkg struct {
	path  string // relative to the root
	files []*file
}

// at returns the position of n, relative to the root.
func (f *file) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.name, f.fset.Position(n.Pos()).Line)
}

// imports returns the paths that the file imports.
func (f *file) imports() []string {
	var out []string
	for _, spec := range f.syntax.Imports {
		p, _ := strconv.Unquote(spec.Path.Value) // valid, because the file parsed
		out = append(out, p)
	}
	return out
}

// root is the top of the repository.
const root = "../.."

// repository returns every package of the module.
func repository(t *testing.T) []*pkg {
	t.Helper()
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("found only %d packages under %s: the walk is wrong", len(all), root)
	}
	return all
}

// load parses every Go file of the module, once for all tests.
var load = sync.OnceValues(func() ([]*pkg, error) {
	var all []*pkg
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != root && (base[0] == '.' || base == "testdata" || base == "node_modules") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && name != root {
				return fs.SkipDir // a separate module
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f, err := parse(fset, filepath.ToSlash(rel), string(text))
		if err != nil {
			return err
		}
		dir := path.Dir(f.name)
		if len(all) == 0 || all[len(all)-1].path != dir {
			// WalkDir may return to a folder after its subfolders.
			i := slices.IndexFunc(all, func(p *pkg) bool { return p.path == dir })
			if i >= 0 {
				all[i].files = append(all[i].files, f)
				return nil
			}
			all = append(all, &pkg{path: dir})
		}
		p := all[len(all)-1]
		p.files = append(p.files, f)
		return nil
	})
	return all, err
})

func parse(fset *token.FileSet, name, text string) (*file, error) {
	syntax, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &file{name: name, test: strings.HasSuffix(name, "_test.go"), syntax: syntax, fset: fset}, nil
}

// helper reports whether the package is a test helper of its parent: db/dbtest, blob/blobtest.
func helper(pkgPath string) bool {
	return path.Base(pkgPath) == path.Base(path.Dir(pkgPath))+"test"
}

// home returns the package, or for a test helper its parent: the two share a layer and imports.
func home(pkgPath string) string {
	if helper(pkgPath) {
		return path.Dir(pkgPath)
	}
	return pkgPath
}

// layer returns the layer of a package.
func layer(pkgPath string) (int, bool) {
	pkgPath = home(pkgPath)
	for n, pkgs := range layers {
		if slices.Contains(pkgs, pkgPath) {
			return n, true
		}
	}
	for n, pkgs := range layers {
		for _, p := range pkgs {
			if dir, ok := strings.CutSuffix(p, "/*"); ok && path.Dir(pkgPath) == dir {
				return n, true
			}
		}
	}
	return 0, false
}

// checkImports returns the violations of a file's imports of other packages, and records the
// used neighbours.
func checkImports(pkgPath string, f *file, used map[[2]string]bool) []string {
	at, ok := layer(pkgPath)
	if !ok {
		return nil // reported by TestEveryPackageHasAFloor
	}
	var wrong []string
	for _, imported := range f.imports() {
		p, ours := strings.CutPrefix(imported, module)
		if !ours || p == pkgPath || p == home(pkgPath) {
			continue
		}
		below, known := layer(p)
		pair := [2]string{home(pkgPath), p}
		switch {
		case !known:
			wrong = append(wrong, fmt.Sprintf("%s: imports %s, which has no layer", f.name, p))
		case helper(p):
			if !f.test && !helper(pkgPath) {
				wrong = append(wrong, fmt.Sprintf("%s: imports %s, which is for tests", f.name, p))
			} else if below > at {
				wrong = append(wrong, fmt.Sprintf("%s: in layer %d, its tests reach up to %s in layer %d", f.name, at, p, below))
			}
		case below < at:
		case neighbours[pair] != "":
			used[pair] = true
		case below == at:
			wrong = append(wrong, fmt.Sprintf("%s: %s and %s are neighbours in layer %d and may not know each other; pass a value or a small interface through internal/app, or move one of them", f.name, pkgPath, p, at))
		default:
			wrong = append(wrong, fmt.Sprintf("%s: %s in layer %d imports %s in layer %d; imports go down", f.name, pkgPath, at, p, below))
		}
	}
	return wrong
}

// checkLibraries returns the violations of the tables never, only and forbidden.
func checkLibraries(pkgPath string, f *file) []string {
	forTests := f.test || helper(pkgPath)
	var wrong []string
	for _, imported := range f.imports() {
		short := strings.TrimPrefix(imported, module)
		for _, n := range never {
			if !forTests && matches(n.who, pkgPath) && n.what == short {
				wrong = append(wrong, fmt.Sprintf("%s: imports %s: %s", f.name, short, n.why))
			}
		}
		for _, o := range only {
			if !forTests && under(o.what, imported) && !slices.Contains(o.who, pkgPath) {
				wrong = append(wrong, fmt.Sprintf("%s: imports %s: %s", f.name, imported, o.why))
			}
		}
		for what, why := range forbidden {
			if what == "log" && forTests {
				continue // servers in tests may use it
			}
			if what == "unsafe" && forTests && pkgPath == "internal/sim" {
				continue // it names a variable of another package: the clock of UUIDs
			}
			if imported == what || strings.Contains(what, ".") && strings.HasPrefix(imported, what) {
				wrong = append(wrong, fmt.Sprintf("%s: imports %s: %s", f.name, imported, why))
			}
		}
	}
	return wrong
}

// matches reports whether a name equals the pattern or, for a pattern ending in "*", starts
// with it.
func matches(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return name == prefix || strings.HasPrefix(name, prefix+"/")
	}
	return name == pattern
}

// under reports whether an import path is the library or below it.
func under(library, imported string) bool {
	return imported == library || strings.HasPrefix(imported, library+"/")
}

func TestEveryPackageHasAFloor(t *testing.T) {
	for _, p := range repository(t) {
		if _, ok := layer(p.path); !ok {
			t.Errorf("package %s has no layer. Decide where it lives by what it needs to import, "+
				"add it to the table in internal/archtest and to docs/architecture.md", p.path)
		}
	}
}

func TestImportsGoDown(t *testing.T) {
	used := map[[2]string]bool{}
	for _, p := range repository(t) {
		for _, f := range p.files {
			for _, w := range checkImports(p.path, f, used) {
				t.Error(w)
			}
		}
	}
	for pair := range neighbours {
		if !used[pair] {
			t.Errorf("nothing makes use of the permission for %s to import %s; remove it", pair[0], pair[1])
		}
	}
}

func TestLibraries(t *testing.T) {
	for _, p := range repository(t) {
		for _, f := range p.files {
			for _, w := range checkLibraries(p.path, f) {
				t.Error(w)
			}
		}
	}
}

// TestImportRulesCatch breaks each rule once, so that a broken check cannot pass.
func TestImportRulesCatch(t *testing.T) {
	for _, c := range []struct {
		file, imports string
		want          string // part of the message; empty for none
	}{
		{"internal/queue/q.go", module + "internal/db", ""},
		{"internal/db/db.go", module + "internal/problem", ""},
		{"internal/queue/q.go", module + "internal/desk", "imports go down"},
		{"internal/queue/q_test.go", module + "internal/desk", "imports go down"},
		{"internal/desk/d.go", module + "internal/webhook", "may not know each other"},
		{"internal/desk/d.go", module + "internal/fleet", "may not know each other"},
		{"internal/mail/m.go", module + "internal/problem", "may not know each other"},
		{"internal/connection/c.go", module + "internal/channel/sms", "imports go down"},
		{"internal/connection/c_test.go", module + "internal/channel/sms", "imports go down"},
		{"internal/channel/sms/s.go", module + "internal/channel/email", "may not know each other"},
		{"internal/channel/sms/s.go", module + "internal/channel", ""},
		{"internal/desk/d.go", module + "internal/desk/helpers", "has no layer"},
		{"internal/desk/d_test.go", module + "internal/db/dbtest", ""},
		{"internal/desk/d.go", module + "internal/db/dbtest", "is for tests"},
		{"internal/db/d_test.go", module + "internal/channel/channeltest", "its tests reach up"},
		{"internal/db/dbtest/d.go", module + "internal/db", ""},
		{"internal/db/dbtest/d.go", module + "internal/problem", ""},
		{"internal/db/dbtest/d.go", module + "internal/queue", "imports go down"},
		{"internal/channel/sms/s.go", module + "internal/db", "never touches the database"},
		{"internal/channel/c.go", "database/sql", "never touches the database"},
		{"internal/account/a.go", "net/http", "does not know how it was asked"},
		{"internal/account/browser/b.go", "net/http", ""},
		{"internal/desk/d.go", "zombiezen.com/go/sqlite", "below db and nowhere else"},
		{"internal/db/d.go", "zombiezen.com/go/sqlite", ""},
		{"internal/db/d.go", "github.com/jackc/pgx/v5/pgconn", ""},
		{"internal/desk/d.go", "github.com/jackc/pgx/v5/pgconn", "below db and nowhere else"},
		{"internal/desk/d.go", "log", "log/slog"},
		{"internal/desk/d.go", "log/slog", ""},
		{"internal/desk/d.go", "math/rand", "math/rand/v2"},
		{"internal/desk/d.go", "math/rand/v2", ""},
		{"internal/desk/d_test.go", "github.com/stretchr/testify/assert", "package testing"},
		{"internal/desk/d.go", "gorm.io/gorm", "written by hand"},
		{"internal/desk/d.go", "os/exec", "runs no others"},
		{"internal/desk/d_test.go", "os/exec", ""},
		{"internal/desk/d.go", "unsafe", "memory"},
		{"internal/mail/m.go", "text/template", "html/template"},
	} {
		f, err := parse(token.NewFileSet(), c.file, "package p\nimport _ "+strconv.Quote(c.imports)+"\n")
		if err != nil {
			t.Fatal(err)
		}
		pkgPath := path.Dir(c.file)
		got := strings.Join(append(checkImports(pkgPath, f, map[[2]string]bool{}), checkLibraries(pkgPath, f)...), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s importing %s: got complaint %q, want one with %q", c.file, c.imports, got, c.want)
		}
	}
}
