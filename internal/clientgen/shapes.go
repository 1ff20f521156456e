package clientgen

import "encoding/json"

// Shapes returns clients/vectors/shapes.json: the operations, the members of records and the
// values of enums by their names in the libraries. Each library's tests require that its
// generated code has all of them, so a removal or a new name fails until a release accepts it.
func Shapes(apis []*API) ([]File, error) {
	type shape struct {
		Operations []string            `json:"operations"`
		Records    map[string][]string `json:"records"`
		Enums      map[string][]string `json:"enums"`
	}
	shapes := map[string]shape{}
	for _, a := range apis {
		s := shape{Records: map[string][]string{}, Enums: map[string][]string{}}
		for _, g := range a.Groups {
			for _, op := range g.Operations {
				s.Operations = append(s.Operations, op.ID)
			}
		}
		for _, r := range a.Records {
			for _, m := range r.Members {
				s.Records[r.Name] = append(s.Records[r.Name], m.Name)
			}
		}
		for _, e := range a.Enums {
			s.Enums[e.Name] = e.Values
		}
		shapes[a.Name] = s
	}
	text, err := json.MarshalIndent(shapes, "", "  ")
	return []File{{Path: "vectors/shapes.json", Content: append(text, '\n')}}, err
}
