// Command generate writes the generated files of the client libraries.
//
//	go run ./internal/clientgen/generate               all languages
//	go run ./internal/clientgen/generate -only python  one of them
//	go run ./internal/clientgen/generate -check        fail if a file differs
//	go run ./internal/clientgen/generate -shapes       the names of a release: clients/vectors/shapes.json
//
// It runs in the root of the repository.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kickstand-dev/kickstand/internal/clientgen"
)

func main() {
	only := flag.String("only", "", "write the files of one `language`")
	check := flag.Bool("check", false, "write nothing; fail if a file differs")
	shapes := flag.Bool("shapes", false, "write the shapes that releases are compared with")
	flag.Parse()
	if err := run(*only, *check, *shapes); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(only string, check, shapes bool) error {
	d, err := documents()
	if err != nil {
		return err
	}
	apis, err := clientgen.Read(d)
	if err != nil {
		return err
	}
	var files []clientgen.File
	if shapes {
		files, err = clientgen.Shapes(apis)
	} else {
		files, err = clientgen.Generate(apis, only)
	}
	if err != nil {
		return err
	}
	var differ []error
	for _, f := range files {
		path := filepath.Join("clients", filepath.FromSlash(f.Path))
		old, err := os.ReadFile(path)
		if err == nil && bytes.Equal(old, f.Content) {
			continue
		}
		if check {
			differ = append(differ, fmt.Errorf("%s differs: run go run ./internal/clientgen/generate", path))
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.Content, 0o644); err != nil {
			return err
		}
	}
	return errors.Join(differ...)
}

// documents reads the OpenAPI documents.
func documents() (clientgen.Documents, error) {
	var d clientgen.Documents
	for name, text := range map[string]*[]byte{"helpdesk": &d.Helpdesk, "fleet": &d.Fleet, "sandbox": &d.Sandbox} {
		var err error
		if *text, err = os.ReadFile(filepath.Join("docs", "api", name+".openapi.json")); err != nil {
			return d, err
		}
	}
	return d, nil
}
