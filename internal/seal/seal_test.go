package seal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
)

// keyOf returns a fixed key of one repeated byte.
func keyOf(b byte) Key {
	return Key{[keySize]byte(bytes.Repeat([]byte{b}, keySize))}
}

func TestSealOpen(t *testing.T) {
	box := New(keyOf(1))
	for _, plaintext := range []string{"", "x", "a webhook secret", string(bytes.Repeat([]byte{0}, 5000))} {
		sealed := box.Seal("webhook secret", []byte(plaintext), "row 1")
		if got, want := len(sealed), len(plaintext)+45; got != want {
			t.Errorf("sealed %d bytes to %d, want %d", len(plaintext), got, want)
		}
		if len(plaintext) > 1 && bytes.Contains(sealed, []byte(plaintext)) {
			t.Errorf("sealed value contains its plaintext %q", plaintext)
		}
		got, err := box.Open("webhook secret", sealed, "row 1")
		if err != nil || string(got) != plaintext {
			t.Errorf("Open(Seal(%q)) = %q, %v", plaintext, got, err)
		}
	}
}

func TestSealIsRandomised(t *testing.T) {
	box := New(keyOf(1))
	if bytes.Equal(box.Seal("p", []byte("same"), ""), box.Seal("p", []byte("same"), "")) {
		t.Error("two sealings of the same plaintext are equal")
	}
}

// TestOpenStoredForm: a value sealed by an earlier release must open forever.
func TestOpenStoredForm(t *testing.T) {
	const stored = "0136d6a532ec6f35077ee9c6953262311b341de6c56e64b93aa81712dbf3cac328de5ba1198b3a67fd548742e44f27bbcb0a1f39"
	sealed, err := hex.DecodeString(stored)
	if err != nil {
		t.Fatal(err)
	}
	got, err := New(keyOf(1)).Open("webhook secret", sealed, "row 1")
	if err != nil || string(got) != "hunter2" {
		t.Errorf("Open = %q, %v, want %q", got, err, "hunter2")
	}
}

func TestOpenRefuses(t *testing.T) {
	box := New(keyOf(1))
	sealed := box.Seal("webhook secret", []byte("plaintext"), "row 1")
	edit := func(f func(s []byte) []byte) []byte { return f(bytes.Clone(sealed)) }

	tests := []struct {
		name    string
		box     *Box
		purpose string
		sealed  []byte
		aad     string
		want    error
	}{
		{"other purpose", box, "channel secret", sealed, "row 1", ErrDamaged},
		{"other row", box, "webhook secret", sealed, "row 2", ErrDamaged},
		{"no additional data", box, "webhook secret", sealed, "", ErrDamaged},
		{"other key", New(keyOf(2)), "webhook secret", sealed, "row 1", ErrUnknownKey},
		{"nil", box, "webhook secret", nil, "row 1", ErrDamaged},
		{"cut short", box, "webhook secret", sealed[:len(sealed)-1], "row 1", ErrDamaged},
		{"header only", box, "webhook secret", sealed[:headerSize], "row 1", ErrDamaged},
		{"one byte below overhead", box, "webhook secret", sealed[:Overhead-1], "row 1", ErrDamaged},
		{"extended", box, "webhook secret", append(bytes.Clone(sealed), 0), "row 1", ErrDamaged},
		{"unknown version", box, "webhook secret", edit(func(s []byte) []byte { s[0] = 2; return s }), "row 1", ErrDamaged},
		{"altered id", box, "webhook secret", edit(func(s []byte) []byte { s[1] ^= 1; return s }), "row 1", ErrUnknownKey},
		{"altered nonce", box, "webhook secret", edit(func(s []byte) []byte { s[headerSize] ^= 1; return s }), "row 1", ErrDamaged},
		{"altered text", box, "webhook secret", edit(func(s []byte) []byte { s[headerSize+24] ^= 1; return s }), "row 1", ErrDamaged},
		{"altered tag", box, "webhook secret", edit(func(s []byte) []byte { s[len(s)-1] ^= 1; return s }), "row 1", ErrDamaged},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.box.Open(tt.purpose, tt.sealed, tt.aad)
			if !errors.Is(err, tt.want) || got != nil {
				t.Errorf("Open = %q, %v, want nil, %v", got, err, tt.want)
			}
		})
	}
}

func TestRotation(t *testing.T) {
	old, current := keyOf(1), keyOf(2)
	before, during, after := New(old), New(current, old), New(current)

	sealedOld := before.Seal("p", []byte("old"), "")
	sealedNew := during.Seal("p", []byte("new"), "")
	macOld := before.MAC("p", "data")
	macNew := during.MAC("p", "data")

	tests := []struct {
		name   string
		box    *Box
		sealed []byte
		mac    []byte
		opens  bool
	}{
		{"before rotation, old", before, sealedOld, macOld, true},
		{"before rotation, new", before, sealedNew, macNew, false},
		{"during rotation, old", during, sealedOld, macOld, true},
		{"during rotation, new", during, sealedNew, macNew, true},
		{"after rotation, old", after, sealedOld, macOld, false},
		{"after rotation, new", after, sealedNew, macNew, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := tt.box.Open("p", tt.sealed, ""); (err == nil) != tt.opens {
				t.Errorf("Open: %v, want success %t", err, tt.opens)
			}
			if got := tt.box.VerifyMAC("p", tt.mac, 32, "data"); got != tt.opens {
				t.Errorf("VerifyMAC = %t, want %t", got, tt.opens)
			}
		})
	}
}

func TestMAC(t *testing.T) {
	box := New(keyOf(1))
	mac := box.MAC("message id", "ticket", "message")
	// Fixed forever: Message-IDs with it return years later.
	const want = "d37fb67f1d804ed59d49973a8f91cb3715ad34d70e93caa8be3cfb1134cfa935"
	if got := hex.EncodeToString(mac); got != want {
		t.Errorf("MAC = %s, want %s", got, want)
	}

	tests := []struct {
		name    string
		purpose string
		mac     []byte
		size    int
		data    []string
		want    bool
	}{
		{"same", "message id", mac, 32, []string{"ticket", "message"}, true},
		{"truncated by agreement", "message id", mac[:5], 5, []string{"ticket", "message"}, true},
		{"other purpose", "cookie", mac, 32, []string{"ticket", "message"}, false},
		{"other data", "message id", mac, 32, []string{"ticket", "other"}, false},
		{"parts moved", "message id", mac, 32, []string{"ticketm", "essage"}, false},
		{"parts joined", "message id", mac, 32, []string{"ticketmessage"}, false},
		{"part added", "message id", mac, 32, []string{"ticket", "message", ""}, false},
		{"shortened by the presenter", "message id", mac[:5], 32, []string{"ticket", "message"}, false},
		{"longer than agreed", "message id", mac, 5, []string{"ticket", "message"}, false},
		{"empty", "message id", nil, 32, []string{"ticket", "message"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := box.VerifyMAC(tt.purpose, tt.mac, tt.size, tt.data...); got != tt.want {
				t.Errorf("VerifyMAC = %t, want %t", got, tt.want)
			}
		})
	}
}

func FuzzOpen(f *testing.F) {
	box := New(keyOf(1))
	f.Add(box.Seal("p", []byte("x"), "a"))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, sealed []byte) {
		plaintext, err := box.Open("p", sealed, "other row")
		if err == nil {
			t.Errorf("opened forged %x as %q", sealed, plaintext)
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	box := New(keyOf(1))
	sealed := box.Seal("webhook secret", []byte("a secret of thirty-two characters"), "row")
	for b.Loop() {
		if _, err := box.Open("webhook secret", sealed, "row"); err != nil {
			b.Fatal(err)
		}
	}
}
