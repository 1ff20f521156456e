package app

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/rest/resttest"
)

// TestOpenAPI: the published documents are those of the routes, and their examples follow them.
func TestOpenAPI(t *testing.T) {
	for _, name := range []string{"helpdesk", "fleet", "sandbox"} {
		text, err := OpenAPI(Config{BaseURL: "https://kickstand.example"}, name)
		if err != nil {
			t.Fatal(err)
		}
		resttest.Examples(t, text)
		var want bytes.Buffer
		if err := json.Indent(&want, text, "", "  "); err != nil {
			t.Fatal(err)
		}
		want.WriteByte('\n')
		got, err := os.ReadFile(filepath.Join("../../docs/api", name+".openapi.json"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want.Bytes()) {
			t.Errorf("docs/api/%s.openapi.json is not up to date; run go generate ./internal/app", name)
		}
	}
}

// TestAPIVersion: the version is the date of the newest change.
func TestAPIVersion(t *testing.T) {
	text, err := os.ReadFile("../../docs/api/changes.md")
	if err != nil {
		t.Fatal(err)
	}
	if newest := regexp.MustCompile(`(?m)^## (\d{4}-\d\d-\d\d)$`).FindSubmatch(text); newest == nil || string(newest[1]) != apiVersion {
		t.Errorf("the newest change in docs/api/changes.md is %s, and apiVersion %s", newest, apiVersion)
	}
}
