package importer_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/importer"
)

// readAll reads a source as a run does.
func readAll(t *testing.T, name string, data []byte, open func(path string) (importer.Reader, error)) {
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	report := new(importer.Report)
	_, n, err := r.Index(t.Context(), report)
	if err != nil {
		return
	}
	for i := range n {
		ticket, err := r.Ticket(t.Context(), i, report)
		if errors.Is(err, importer.ErrSkipped) {
			continue
		}
		if err != nil {
			t.Fatalf("ticket %d: %v", i, err)
		}
		if ticket.ID == "" {
			t.Errorf("ticket %d has no id", i)
		}
		messages := make(map[string]bool)
		for _, m := range ticket.Messages {
			if m.ID == "" || messages[m.ID] || m.At.Year() < 1970 {
				t.Errorf("ticket %d has a message %q of %v, or twice", i, m.ID, m.At)
			}
			messages[m.ID] = true
			for _, f := range m.Files {
				if o := ticket.Contents[f.ID]; o.Open != nil && !o.Remote {
					if content, err := o.Open(t.Context()); err == nil {
						if _, err := io.Copy(io.Discard, content); err != nil {
							t.Error(err)
						}
						content.Close()
					}
				}
			}
		}
	}
}

// seed adds the files of a folder.
func seed(f *testing.F, pattern string) {
	paths, err := filepath.Glob(pattern)
	if err != nil || paths == nil {
		f.Fatal("no seeds", err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

func own(_ context.Context, address string) (bool, error) { return address == "help@acme.example", nil }

func FuzzMbox(f *testing.F) {
	seed(f, "testdata/mbox/*")
	f.Add([]byte("From a@b 10:00 2024\nFrom a@b 10:00 2024\n\nFrom a@b 10:00 2024"))
	f.Fuzz(func(t *testing.T, data []byte) {
		readAll(t, "a.mbox", data, func(path string) (importer.Reader, error) {
			return importer.OpenMbox(path, importer.Options{}, own)
		})
	})
}

func FuzzCSV(f *testing.F) {
	seed(f, "testdata/csv/*.csv")
	f.Add([]byte("\uFEFFticket_id;message_at;text;files\n1;2024-01-01;\"a\nb\";../../etc/passwd\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		readAll(t, "a.csv", data, func(path string) (importer.Reader, error) { return importer.OpenCSV(path, importer.Options{}, own) })
	})
}

func FuzzZendesk(f *testing.F) {
	seed(f, "testdata/zendesk/*.json*")
	seed(f, "testdata/zendesk/comments/*")
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range []string{"a.json", "a.jsonl", "comments-12.json"} {
			readAll(t, name, data, func(path string) (importer.Reader, error) { return importer.OpenZendesk(path, importer.Options{}, nil) })
		}
	})
}
