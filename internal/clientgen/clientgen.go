package clientgen

import "fmt"

//go:generate sh -c "cd ../.. && go run ./internal/clientgen/generate"

// languages are the emitters by name, which is also the folder in clients. The last one writes vectors
// that all libraries pass.
var languages = []struct {
	name     string
	generate func([]*API) ([]File, error)
}{
	{"go", generateGo},
	{"python", generatePython},
	{"php", generatePHP},
	{"typescript", generateTypeScript},
	{"ruby", generateRuby},
	{"vectors", generateVectors},
}

// Generate returns the generated files of a language, or of all languages if it is empty.
func Generate(apis []*API, only string) ([]File, error) {
	var files []File
	found := false
	for _, l := range languages {
		if only != "" && only != l.name {
			continue
		}
		found = true
		made, err := l.generate(apis)
		if err != nil {
			return nil, fmt.Errorf("generate %s: %w", l.name, err)
		}
		files = append(files, made...)
	}
	if !found {
		return nil, fmt.Errorf("the language %q is unknown", only)
	}
	return files, nil
}
