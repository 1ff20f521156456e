package conformance

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/clientgen"
)

// readAPIs reads the documents of the repository.
func readAPIs(t *testing.T) []*clientgen.API {
	t.Helper()
	var d clientgen.Documents
	for name, text := range map[string]*[]byte{"helpdesk": &d.Helpdesk, "fleet": &d.Fleet, "sandbox": &d.Sandbox} {
		var err error
		if *text, err = os.ReadFile(filepath.Join("..", "..", "docs", "api", name+".openapi.json")); err != nil {
			t.Fatal(err)
		}
	}
	apis, err := clientgen.Read(d)
	if err != nil {
		t.Fatal(err)
	}
	return apis
}

func operations(a *clientgen.API) []*clientgen.Operation {
	var all []*clientgen.Operation
	for g := range a.Groups {
		for o := range a.Groups[g].Operations {
			all = append(all, &a.Groups[g].Operations[o])
		}
	}
	return all
}

// runSamples are operations with samples that need no id of a record.
var runSamples = []string{"listTickets", "createTicket", "listMembers", "getKey", "listVehicles", "getSandboxClock", "getRideAnalytics"}

// TestSamples checks the samples of all operations, as the pages of the reference show them,
// with the language's own checker, and runs some against a demo.
func TestSamples(t *testing.T) {
	apis := readAPIs(t)
	each(t, func(t *testing.T, l *language) {
		d := startDemo(t)
		folder := t.TempDir()
		if l.prepare != nil {
			l.prepare(t, l.library(t), folder)
		}
		var paths, run []string
		for i, a := range apis {
			access := clientgen.SampleAccess{Origin: d.URL, Key: []string{d.LiveKey, d.FleetTestKey}[i]}
			for _, op := range operations(a) {
				text, err := a.Sample(op, l.name, access)
				if err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(folder, a.Name+"_"+clientgen.Snake(op.ID)+filepath.Ext(l.file))
				if l.name == "go" { // a folder for each program
					path = filepath.Join(folder, a.Name, clientgen.Snake(op.ID), l.file)
				}
				writeFile(t, path, text)
				paths = append(paths, path)
				if slices.Contains(runSamples, op.ID) {
					run = append(run, path)
				}
			}
		}
		if l.name == "go" {
			paths = []string{"./..."}
		}
		check := l.start(t, t.Context(), append(l.check(l.library(t)), paths...), folder)
		check.Stderr = nil
		if out, err := check.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, path := range run {
			if out, err := l.command(t, t.Context(), path, folder).Output(); err != nil || len(out) == 0 {
				text, _ := os.ReadFile(path)
				t.Errorf("%v\n%s\n%s", err, text, out)
			}
		}
	})
}
