// Package blobtest tests the contract of every [blob.Store].
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Run tests the stores that newStore returns, each new and empty.
func Run(t *testing.T, newStore func(t *testing.T) blob.Store) {
	t.Run("PutOpen", func(t *testing.T) { testPutOpen(t, newStore(t)) })
	t.Run("PutTwice", func(t *testing.T) { testPutTwice(t, newStore(t)) })
	t.Run("Readers", func(t *testing.T) { testReaders(t, newStore(t)) })
	t.Run("FailingReader", func(t *testing.T) { testFailingReader(t, newStore(t)) })
	t.Run("NotFound", func(t *testing.T) { testNotFound(t, newStore(t)) })
	t.Run("Delete", func(t *testing.T) { testDelete(t, newStore(t)) })
	t.Run("Cancelled", func(t *testing.T) { testCancelled(t, newStore(t)) })
	t.Run("Concurrent", func(t *testing.T) { testConcurrent(t, newStore(t)) })
}

const (
	hello    = "hello, kickstand\n"
	helloKey = "c23a1d7de46c98f0f5129b09b75b4e10af1bfa37a3534ea1d4408732cd5a490c"
	longKey  = "da204f1d2824574a2676c8bfb52952785e5432abcc295a357a77c5e52c317c96" // of 15 << 18 bytes
	emptyKey = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

func testPutOpen(t *testing.T, s blob.Store) {
	tests := []struct {
		name    string
		content []byte
		want    blob.Ref
	}{
		{"text", []byte(hello), blob.Ref{Key: helloKey, Size: 17}},
		{"empty", nil, blob.Ref{Key: emptyKey, Size: 0}},
		{"binary", []byte{0, 0xff, '\r', '\n', 0}, blob.Ref{Key: "58ff75d977e33b6b6159a8af26d775a320d4d770b9cb26960c98099f081a616d", Size: 5}},
		{"one MiB", bytes.Repeat([]byte{'k'}, 1<<20), blob.Ref{Key: "17b08269fd437b655d318c05c440dbab79afec7f92c056472a59a8d7208ce389", Size: 1 << 20}},
		{"over three MiB", bytes.Repeat([]byte("0123456789abcde"), 1<<18), blob.Ref{Key: longKey, Size: 15 << 18}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := s.Put(t.Context(), bytes.NewReader(tt.content))
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("Put = %+v, want %+v", got, tt.want)
			}
			if content := read(t, s, got.Key); !bytes.Equal(content, tt.content) {
				t.Errorf("read %d bytes, not the %d stored", len(content), len(tt.content))
			}
		})
	}
}

func testPutTwice(t *testing.T, s blob.Store) {
	first := put(t, s, hello)
	open, err := s.Open(t.Context(), first.Key)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if second := put(t, s, hello); second != first {
		t.Errorf("the same content is %+v, then %+v", first, second)
	}
	// Storing it again does not disturb open readers.
	if content, err := io.ReadAll(open); err != nil || string(content) != hello {
		t.Errorf("read %q, %v", content, err)
	}
	if content := read(t, s, first.Key); string(content) != hello {
		t.Errorf("read %q", content)
	}
}

// testReaders stores content from readers of every legal behaviour.
func testReaders(t *testing.T, s blob.Store) {
	for name, r := range map[string]io.Reader{
		"one byte at a time": iotest.OneByteReader(strings.NewReader(hello)),
		"half of each read":  iotest.HalfReader(strings.NewReader(hello)),
		"data with the end":  iotest.DataErrReader(strings.NewReader(hello)),
		"not seekable":       io.MultiReader(strings.NewReader(hello[:5]), strings.NewReader(hello[5:])),
	} {
		got, err := s.Put(t.Context(), r)
		if want := (blob.Ref{Key: helloKey, Size: 17}); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
}

func testFailingReader(t *testing.T, s blob.Store) {
	broken := errors.New("connection reset")
	for _, tt := range []struct {
		sent string // before it fails
		key  string // digest of sent
	}{
		{"", emptyKey},
		{hello, helloKey},
		{strings.Repeat("0123456789abcde", 1<<18), longKey},
	} {
		ref, err := s.Put(t.Context(), io.MultiReader(strings.NewReader(tt.sent), iotest.ErrReader(broken)))
		if !errors.Is(err, broken) || problem.Of(err) != problem.Internal || ref != (blob.Ref{}) {
			t.Errorf("after %d bytes: %+v, %v, want %v", len(tt.sent), ref, err, broken)
		}
		if _, err := s.Open(t.Context(), tt.key); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("after %d bytes: the content before the failure is stored: %v", len(tt.sent), err)
		}
	}
}

// WantFault checks that a broken store returns errors of kind [problem.Unavailable] from Put,
// Open and Delete.
func WantFault(t *testing.T, s blob.Store) {
	t.Helper()
	_, putErr := s.Put(t.Context(), strings.NewReader(hello))
	_, openErr := s.Open(t.Context(), helloKey)
	for call, err := range map[string]error{"Put": putErr, "Open": openErr, "Delete": s.Delete(t.Context(), helloKey)} {
		if problem.Of(err) != problem.Unavailable {
			t.Errorf("%s: got %v, want the kind Unavailable", call, err)
		}
	}
}

func testNotFound(t *testing.T, s blob.Store) {
	ref := put(t, s, hello)
	for _, key := range []string{
		emptyKey, // valid, but not stored
		"",
		".",
		"..",
		"../" + helloKey,
		helloKey[:63],
		helloKey + "0",
		helloKey[:2] + "/" + helloKey[2:],
		helloKey[:2],
		strings.ToUpper(helloKey),
		strings.Repeat("g", 64),
		strings.Repeat("/", 64),
		strings.Repeat("\x00", 64),
		"../../../../../../../../../../../../../../../../../../etc/passwd",
	} {
		if _, err := s.Open(t.Context(), key); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("Open(%q) = %v, want ErrNotFound", key, err)
		}
		if err := s.Delete(t.Context(), key); err != nil {
			t.Errorf("Delete(%q) = %v, want nil", key, err)
		}
	}
	if content := read(t, s, ref.Key); string(content) != hello {
		t.Errorf("read %q", content)
	}
}

func testDelete(t *testing.T, s blob.Store) {
	gone, kept := put(t, s, hello), put(t, s, "another")
	for range 2 {
		if err := s.Delete(t.Context(), gone.Key); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Open(t.Context(), gone.Key); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("Open after Delete: %v, want ErrNotFound", err)
		}
	}
	if content := read(t, s, kept.Key); string(content) != "another" {
		t.Errorf("the other content is %q", content)
	}
	if again := put(t, s, hello); again != gone {
		t.Errorf("stored again as %+v, want %+v", again, gone)
	}
	if content := read(t, s, gone.Key); string(content) != hello {
		t.Errorf("read %q", content)
	}
}

func testCancelled(t *testing.T, s blob.Store) {
	ref := put(t, s, "another")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Put(ctx, strings.NewReader(hello)); !errors.Is(err, context.Canceled) {
		t.Errorf("Put: %v, want %v", err, context.Canceled)
	}
	if _, err := s.Open(ctx, ref.Key); !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v, want %v", err, context.Canceled)
	}
	if err := s.Delete(ctx, ref.Key); !errors.Is(err, context.Canceled) {
		t.Errorf("Delete: %v, want %v", err, context.Canceled)
	}
	if _, err := s.Open(t.Context(), helloKey); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("a cancelled Put stored its content: %v", err)
	}

	// Also in the middle of a stream.
	ctx, cancel = context.WithCancel(t.Context())
	endless := readerFunc(func(p []byte) (int, error) {
		cancel()
		return len(p), nil
	})
	if _, err := s.Put(ctx, endless); !errors.Is(err, context.Canceled) {
		t.Errorf("Put of an endless stream: %v, want %v", err, context.Canceled)
	}
}

func testConcurrent(t *testing.T, s blob.Store) {
	const workers, contents = 8, 4
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range contents {
				want := strings.Repeat(string(rune('a'+i)), 50_000)
				ref, err := s.Put(t.Context(), strings.NewReader(want))
				if err != nil {
					t.Error(err)
					return
				}
				r, err := s.Open(t.Context(), ref.Key)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(r)
				r.Close()
				if err != nil || string(got) != want {
					t.Errorf("read %d bytes of %d, %v", len(got), len(want), err)
				}
			}
		})
	}
	wg.Wait()
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func put(t *testing.T, s blob.Store, content string) blob.Ref {
	t.Helper()
	ref, err := s.Put(t.Context(), strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func read(t *testing.T, s blob.Store, key string) []byte {
	t.Helper()
	r, err := s.Open(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
