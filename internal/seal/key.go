package seal

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const keySize = 32

// Key is a master key. It prints as a placeholder in every format and marshals to nothing; only
// [Key.Encode] returns its text. Keys are comparable.
type Key struct {
	secret [keySize]byte
}

// NewKey returns a random key.
func NewKey() Key {
	var k Key
	rand.Read(k.secret[:]) // never fails: crypto/rand crashes the program instead
	return k
}

// ParseKey parses a key of 32 bytes in base64 (standard or URL alphabet, padded or not) or in
// hex. Errors do not repeat the text.
func ParseKey(text string) (Key, error) {
	text = strings.TrimSpace(text)
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != keySize {
		unpadded := strings.TrimRight(text, "=")
		if strings.ContainsAny(text, "-_") {
			raw, err = base64.RawURLEncoding.DecodeString(unpadded)
		} else {
			raw, err = base64.RawStdEncoding.DecodeString(unpadded)
		}
	}
	if err != nil || len(raw) != keySize {
		return Key{}, errors.New("a secret key is 32 random bytes in base64 or hex, as printed by: openssl rand -base64 32")
	}
	k := Key{[keySize]byte(raw)}
	if k == (Key{}) {
		return Key{}, errors.New("a secret key must not be all zeros")
	}
	return k, nil
}

// ParseKeys parses keys separated by commas or line ends, newest first. Empty ones and lines
// that start with # are skipped; at least one key is required.
func ParseKeys(text string) ([]Key, error) {
	var keys []Key
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for field := range strings.SplitSeq(line, ",") {
			if field = strings.TrimSpace(field); field == "" {
				continue
			}
			k, err := ParseKey(field)
			if err != nil {
				return nil, fmt.Errorf("secret key %d: %w", len(keys)+1, err)
			}
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("no secret key given")
	}
	return keys, nil
}

// Encode returns the key in padded base64, the form of [ParseKey].
func (k Key) Encode() string { return base64.StdEncoding.EncodeToString(k.secret[:]) }

// ID returns 8 hexadecimal digits that identify the key and reveal nothing about it.
func (k Key) ID() string {
	id := newRoot(k).id
	return hex.EncodeToString(id[:])
}

// Format hides the key from every verb of fmt, and so from log/slog.
func (k Key) Format(f fmt.State, verb rune) { io.WriteString(f, "[secret key]") }

// LoadOrCreateKeys reads the keys in the file at path, in the form of [ParseKeys], or creates
// the file with a new key. If several processes start at once, one creates the key and all
// return it. The file is durable and readable by its owner only before this returns; an
// existing file with wider permissions is refused. Missing parent folders are created.
func LoadOrCreateKeys(path string) ([]Key, error) {
	keys, err := loadKeys(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return keys, err
	}
	if err := createKeyFile(path); err != nil {
		return nil, fmt.Errorf("create secret key file: %w", err)
	}
	// Read the file again: another process may have created it.
	return loadKeys(path)
}

func loadKeys(path string) ([]Key, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open secret key file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("open secret key file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("secret key file %s is not a regular file", path)
	}
	// Windows has no such mode bits: Go reports 0666 for every file there.
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("secret key file %s is readable by other users (mode %04o); restrict it with: chmod 600 %s", path, mode, path)
	}
	const limit = 64 << 10
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read secret key file: %w", err)
	}
	if len(text) > limit {
		return nil, fmt.Errorf("secret key file %s is too large to hold keys", path)
	}
	keys, err := ParseKeys(string(text))
	if err != nil {
		return nil, fmt.Errorf("secret key file %s: %w", path, err)
	}
	return keys, nil
}

// createKeyFile writes a complete file under another name and links it into place: unlike a
// rename, a link fails if another process was first, and unlike exclusive creation it never
// exposes a partial file.
func createKeyFile(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".secret-key-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if _, err := fmt.Fprintf(tmp, "# Encrypts the secrets in the database, which are lost without it: keep a copy.\n"+
		"# To rotate, put a new key above the old one.\n%s\n", NewKey().Encode()); err != nil {
		return err
	}
	if err := tmp.Sync(); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(dir)
}

// syncDir makes the names in a folder durable. Windows needs no sync.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
