package seal

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestParseKey(t *testing.T) {
	raw := make([]byte, keySize)
	for i := range raw {
		raw[i] = byte(0xff - i) // covers both characters that differ between the alphabets
	}
	want := Key{[keySize]byte(raw)}
	for _, text := range []string{
		base64.StdEncoding.EncodeToString(raw),
		base64.RawStdEncoding.EncodeToString(raw),
		base64.URLEncoding.EncodeToString(raw),
		base64.RawURLEncoding.EncodeToString(raw),
		hex.EncodeToString(raw),
		strings.ToUpper(hex.EncodeToString(raw)),
		" " + hex.EncodeToString(raw) + "\n",
		want.Encode(),
	} {
		if got, err := ParseKey(text); err != nil || got != want {
			t.Errorf("ParseKey(%q): %v", text, err)
		}
	}
	for _, text := range []string{
		"",
		"correct horse battery staple",
		strings.Repeat("A", 42),
		strings.Repeat("z", 64),
		strings.Repeat("0", 64), // zeros
		hex.EncodeToString(raw[1:]),
		base64.StdEncoding.EncodeToString(append(raw, 0)),
	} {
		if _, err := ParseKey(text); err == nil {
			t.Errorf("ParseKey(%q) succeeded", text)
		} else if text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("ParseKey(%q) repeats its input: %v", text, err)
		}
	}
}

func TestParseKeys(t *testing.T) {
	a, b := keyOf(1), keyOf(2)
	tests := []struct {
		name, text string
		want       []Key
		err        string
	}{
		{"one", a.Encode(), []Key{a}, ""},
		{"commas", a.Encode() + ", " + b.Encode() + ",", []Key{a, b}, ""},
		{"lines", "# new\n" + b.Encode() + "\r\n\n  # old, kept\n" + a.Encode() + "\n", []Key{b, a}, ""},
		{"nothing", "", nil, "no secret key given"},
		{"comment only", "# none\n", nil, "no secret key given"},
		{"second is bad", a.Encode() + ",short", nil, "secret key 2: a secret key is 32 random bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseKeys(tt.text)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || len(got) != len(tt.want) {
				t.Fatalf("got %d keys, %v, want %d", len(got), err, len(tt.want))
			}
			for i := range got {
				if got[i] != tt.want[i] {
					t.Errorf("key %d differs", i)
				}
			}
		})
	}
}

func TestKeyNeverPrints(t *testing.T) {
	k := keyOf(0x41) // prints as AAAA…
	type config struct{ Key Key }
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	logger.Info("start", "key", k, "config", config{k}, "pointer", &k)
	marshalled, err := json.Marshal(config{k})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		log.String(), string(marshalled),
		fmt.Sprintf("%v %+v %#v %s %x %q %d", k, k, k, k, k, k, k),
		fmt.Sprintf("%v %+v %#v %s %x", config{k}, config{k}, config{k}, config{k}, config{k}),
	} {
		for _, leak := range []string{"AAAA", "4141", "65 65", "0x41", k.Encode()} {
			if strings.Contains(text, leak) {
				t.Errorf("%q shows the key as %q", text, leak)
			}
		}
	}
}

func TestLoadOrCreateKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "folder", "secret.key")
	made, err := LoadOrCreateKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("mode %04o, want 0600", got)
	}
	loaded, err := LoadOrCreateKeys(path)
	if err != nil || len(made) != 1 || len(loaded) != 1 || loaded[0] != made[0] {
		t.Errorf("loading again gives %d keys of %d made, %v", len(loaded), len(made), err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("folder holds %v, %v, want the key file only", entries, err)
	}
}

func TestLoadOrCreateKeysTogether(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "secret.key")
		const n = 16
		var keys [n][]Key
		var errs [n]error
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { keys[i], errs[i] = LoadOrCreateKeys(path) })
		}
		wg.Wait()
		for i := range n {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
			if keys[i][0] != keys[0][0] {
				t.Fatalf("process %d got another key than process 0", i)
			}
		}
	}
}

func TestLoadOrCreateKeysRefuses(t *testing.T) {
	tests := []struct {
		name string
		make func(path string) error
		want string
	}{
		{"readable by others", func(p string) error {
			return writeMode(p, keyOf(1).Encode(), 0o644)
		}, "is readable by other users (mode 0644); restrict it with: chmod 600 "},
		{"readable by the group", func(p string) error {
			return writeMode(p, keyOf(1).Encode(), 0o640)
		}, "(mode 0640)"},
		{"not a key", func(p string) error { return writeMode(p, "password", 0o600) }, "32 random bytes"},
		{"empty", func(p string) error { return writeMode(p, "", 0o600) }, "no secret key given"},
		{"too large", func(p string) error { return writeMode(p, strings.Repeat("\n", 1<<20), 0o600) }, "too large"},
		{"a folder", func(p string) error { return os.Mkdir(p, 0o700) }, "not a regular file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "secret.key")
			if err := tt.make(path); err != nil {
				t.Fatal(err)
			}
			_, err := LoadOrCreateKeys(path)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// writeMode writes a file with exactly the mode, despite the umask.
func writeMode(path, text string, mode os.FileMode) error {
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}
