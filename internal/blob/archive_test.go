package blob_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/blob/blobtest"
)

func TestArchive(t *testing.T) {
	for name, url := range map[string]string{"folder": "file:" + t.TempDir(), "S3": blobtest.NewS3(t).URL} {
		t.Run(name, func(t *testing.T) {
			a, err := blob.OpenArchive(url, blob.Credentials{})
			if err != nil {
				t.Fatal(err)
			}
			if names, err := a.Names(t.Context()); len(names) != 0 || err != nil {
				t.Errorf("empty: got %q, %v", names, err)
			}
			ref, err := a.Put(t.Context(), strings.NewReader("content"))
			if err != nil {
				t.Fatal(err)
			}
			if size, err := a.Size(t.Context(), ref.Key); size != 7 || err != nil {
				t.Errorf("size: got %d, %v", size, err)
			}
			for _, key := range []string{strings.Repeat("0", 64), "../secret"} {
				if _, err := a.Size(t.Context(), key); !errors.Is(err, blob.ErrNotFound) {
					t.Errorf("size of %s: got %v", key, err)
				}
			}
			for name, content := range map[string][]byte{"b.json": []byte("1"), "2026-11-24.key": {0, 255}} {
				for _, content := range [][]byte{[]byte("earlier"), content} {
					if err := a.PutNamed(t.Context(), name, content); err != nil {
						t.Fatal(err)
					}
				}
				if got, err := a.OpenNamed(t.Context(), name); !bytes.Equal(got, content) || err != nil {
					t.Errorf("%s: got %q, %v", name, got, err)
				}
			}
			if names, err := a.Names(t.Context()); !slices.Equal(names, []string{"2026-11-24.key", "b.json"}) || err != nil {
				t.Errorf("names: got %q, %v", names, err)
			}
			if _, err := a.OpenNamed(t.Context(), "none.json"); !errors.Is(err, blob.ErrNotFound) {
				t.Errorf("a missing name: got %v", err)
			}
			for _, name := range []string{"", "..", "a/b", "../a", ".hidden", "a b"} {
				if err := a.PutNamed(t.Context(), name, nil); err == nil {
					t.Errorf("%q is taken as a name", name)
				}
			}
		})
	}
}
