package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// TestUpload checks the limits of forms with files, and that the fields are returned even
// if the files are too large.
func TestUpload(t *testing.T) {
	h := webtest.NewHarness(t)
	var got web.Upload
	area := h.Site.Section(fstest.MapFS{"templates/x.html": {Data: []byte(`{{define "body"}}{{end}}`)}})
	area.Handle("/up", web.Route{Post: func(w http.ResponseWriter, r *web.Request) error {
		var ok bool
		if got, ok = area.Upload(w, r, 10); ok {
			w.WriteHeader(http.StatusNoContent)
		}
		return nil
	}})
	b := h.SignIn(h.Agent)
	file := func(name, data string) web.File {
		return web.File{Name: name, ContentType: "text/plain", Data: []byte(data)}
	}
	typed := url.Values{"text": {"ünd <b>"}}
	for _, c := range []struct {
		name  string
		files []web.File
		want  int
		large bool
	}{
		{"none", nil, 0, false},
		{"as much as may be", []web.File{file("a.txt", "12345"), file("ü b.txt", "67890")}, 2, false},
		{"a byte more", []web.File{file("a.txt", "12345"), file("b.txt", "678901")}, 0, true},
		{"much more", []web.File{file("a.txt", strings.Repeat("x", 1<<20)), file("b.txt", "6")}, 0, true},
		{"empty files", []web.File{file("a.txt", "")}, 1, false},
	} {
		w := b.PostFiles("/up", typed, c.files...)
		if w.Code != http.StatusNoContent || len(got.Files) != c.want || got.TooLarge != c.large || got.Get("text") != "ünd <b>" {
			t.Errorf("%s: got %d, %d files, too large %v, text %q", c.name, w.Code, len(got.Files), got.TooLarge, got.Get("text"))
		}
		for i, f := range got.Files {
			if f.Name != c.files[i].Name || string(f.Data) != string(c.files[i].Data) || f.ContentType != "text/plain" {
				t.Errorf("%s: got file %+v", c.name, f)
			}
		}
	}
	if w := b.Post("/up", typed); w.Code != http.StatusNoContent || got.Get("text") != "ünd <b>" {
		t.Errorf("without files: got %d, text %q", w.Code, got.Get("text"))
	}
	if w := b.PostFiles("/up", url.Values{"text": {strings.Repeat("x", 3<<20)}}); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a text of 3 MB: got %d", w.Code)
	}
	if w := b.PostFiles("/up", url.Values{"text": {"\xff"}}); w.Code != http.StatusBadRequest {
		t.Errorf("not UTF-8: got %d", w.Code)
	}
	if w := b.PostFiles("/up", url.Values{"text": make([]string, 300)}); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("300 fields: got %d", w.Code)
	}
}
