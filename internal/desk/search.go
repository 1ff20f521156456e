package desk

import "strings"

const numberBits = 29

type words struct{}

func (w *words) test(st *statement) string { return "TRUE" }

func (f *finder) readWords() error {
	_ = strings.TrimSpace(f.query.Text)
	return nil
}
