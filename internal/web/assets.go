package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strings"
)

// unserved are the lines of comments, and the indentation, of modules and style sheets. No module
// has a literal of several lines.
var unserved = regexp.MustCompile(`(?m)^[ \t]*//.*\n|^[ \t]+`)

//go:embed static
var staticFiles embed.FS

// assets serves the static files: style.css, concatenated from the files of static/css
// that begin with a number; the section sheets; the modules of static/js; and the icons.
// Their base path contains a hash of all contents, so that browsers can cache them
// forever and modules can import each other by name.
type assets struct {
	base  string // "/static/0123456789ab/"
	files map[string]asset
}

type asset struct {
	contentType string
	content     []byte
}

func loadAssets() *assets {
	a := &assets{files: make(map[string]asset)}
	var style bytes.Buffer
	digest := sha256.New()
	err := fs.WalkDir(staticFiles, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := staticFiles.ReadFile(name)
		if err != nil {
			return err
		}
		digest.Write(content)
		switch path.Ext(name) {
		case ".css":
			content = unserved.ReplaceAll(content, nil)
			if base := path.Base(name); base[0] <= '9' {
				style.Write(content)
			} else {
				a.files[base] = asset{"text/css; charset=utf-8", content}
			}
		case ".js":
			a.files[path.Base(name)] = asset{"text/javascript; charset=utf-8", unserved.ReplaceAll(content, nil)}
		case ".svg":
			a.files[path.Base(name)] = asset{"image/svg+xml", content}
		}
		return nil
	})
	if err != nil {
		panic("web: embedded files: " + err.Error())
	}
	a.files["style.css"] = asset{"text/css; charset=utf-8", style.Bytes()}
	a.base = "/static/" + hex.EncodeToString(digest.Sum(nil)[:6]) + "/"
	return a
}

// path returns the path of an asset.
func (a *assets) path(name string) string {
	if _, ok := a.files[name]; !ok {
		panic("web: no asset " + name)
	}
	return a.base + name
}

// ServeHTTP serves an asset as immutable: changed assets have another path.
func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := a.files[strings.TrimPrefix(r.URL.Path, a.base)]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(f.content)
}
