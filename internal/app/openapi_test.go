package app

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
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

// TestGenerated: nothing in the documents makes a union in generated clients.
func TestGenerated(t *testing.T) {
	var walk func(name, at string, v any)
	walk = func(name, at string, v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				walk(name, at, item)
			}
		case map[string]any:
			if either, ok := v["anyOf"].([]any); ok && (len(either) != 2 || !reflect.DeepEqual(either[1], map[string]any{"type": "null"})) {
				t.Errorf("%s: %s is a union: %v", name, at, either)
			}
			if types, ok := v["content"].(map[string]any); ok && !strings.HasSuffix(at, "/properties") && len(types) != 1 {
				t.Errorf("%s: %s has %d media types", name, at, len(types))
			}
			for _, word := range []string{"readOnly", "writeOnly", "oneOf", "allOf"} {
				if _, ok := v[word]; ok {
					t.Errorf("%s: %s has %s", name, at, word)
				}
			}
			for key, item := range v {
				if key != "example" && key != "examples" {
					walk(name, at+"/"+key, item)
				}
			}
		}
	}
	for _, name := range []string{"helpdesk", "fleet", "sandbox"} {
		text, err := OpenAPI(Config{BaseURL: "https://kickstand.example"}, name)
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		walk(name, "", doc)
	}
}
