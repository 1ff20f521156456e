package web

import (
	"bytes"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestServedAssets: assets lack comments and indentation, and no source has a literal or a block
// comment of several lines, which that could change.
func TestServedAssets(t *testing.T) {
	served := loadAssets().files
	block := regexp.MustCompile(`(?s)/\*.*?\*/`)
	err := fs.WalkDir(staticFiles, "static", func(name string, d fs.DirEntry, err error) error {
		if ext := path.Ext(name); err != nil || ext != ".js" && ext != ".css" {
			return err
		}
		source, err := staticFiles.ReadFile(name)
		if err != nil {
			return err
		}
		var lines []string
		for line := range strings.Lines(string(source)) {
			if strings.Count(line, "`")%2 != 0 || strings.HasSuffix(line, "\\\n") {
				t.Errorf("%s: a literal of several lines: %s", name, line)
			}
			if line = strings.TrimLeft(line, " \t"); !strings.HasPrefix(line, "//") {
				lines = append(lines, line)
			}
		}
		for _, comment := range block.FindAll(source, -1) {
			if bytes.ContainsRune(comment, '\n') {
				t.Errorf("%s: a comment of several lines: %s", name, comment)
			}
		}
		base := path.Base(name)
		if base[0] <= '9' {
			base = "style.css"
		}
		if got := string(served[base].content); !strings.Contains(got, strings.Join(lines, "")) {
			t.Errorf("%s is served as\n%s", name, got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range served {
		if strings.HasPrefix(f.contentType, "text/") && regexp.MustCompile(`(?m)^([ \t]|//)`).Match(f.content) {
			t.Errorf("%s is served with indentation or comments", name)
		}
	}
}
