// Package seal encrypts stored secrets, so that the database alone does not reveal them.
//
// A [Box] holds one or more master keys. From each it derives, with HKDF-SHA256
// (RFC 5869), an independent key per purpose, so that a value sealed as a
// webhook secret does not open as a channel secret, and a message
// authentication code (MAC) made for a cookie never passes as one of a
// Message-ID. The first key seals and signs; every key opens and verifies. To
// rotate, put a new key in front and keep the old ones behind it until nothing
// sealed under them is left.
//
// A sealed value is
//
//	version (1 byte, 1) | key id (4 bytes) | nonce (24 bytes) | ciphertext | tag (16 bytes)
//
// with XChaCha20-Poly1305. Its nonce is long enough to be random for any number of values. The version, the key id and the caller's additional
// data are authenticated but not encrypted.
package seal

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"

	"golang.org/x/crypto/chacha20poly1305"
)

const (
	version    = 1
	idSize     = 4
	headerSize = 1 + idSize

	// Overhead is the number of bytes by which a sealed value exceeds its plaintext.
	Overhead = headerSize + chacha20poly1305.NonceSizeX + chacha20poly1305.Overhead
)

var (
	// ErrUnknownKey means that a value was sealed under a master key that the box does not
	// hold: the configured key was replaced instead of prepended to, or the database came from
	// another installation.
	ErrUnknownKey = errors.New("sealed with a secret key that is not configured")

	// ErrDamaged means that a value was altered, truncated, or sealed for another purpose or
	// with other additional data.
	ErrDamaged = errors.New("sealed value is damaged or was moved")
)

// Box seals, opens and authenticates. It is immutable and safe for concurrent
// use.
type Box struct {
	roots []root
}

// root is the derived form of a master key.
type root struct {
	prk []byte // HKDF pseudorandom key
	id  [idSize]byte
}

// New returns a box that seals with first and opens values sealed by any of the keys.
func New(first Key, older ...Key) *Box {
	b := &Box{roots: []root{newRoot(first)}}
	for _, k := range older {
		b.roots = append(b.roots, newRoot(k))
	}
	return b
}

func newRoot(k Key) root {
	if k == (Key{}) {
		panic("seal: zero key")
	}
	prk, err := hkdf.Extract(sha256.New, k.secret[:], []byte("kickstand master key"))
	if err != nil {
		panic(err) // only in FIPS mode with a short key; ours have 32 bytes
	}
	r := root{prk: prk}
	copy(r.id[:], r.derive("id", ""))
	return r
}

// derive returns the 32-byte key for a use and purpose. Uses are constants of
// this package without a slash, so that no two pairs share a label.
func (r root) derive(use, purpose string) []byte {
	key, err := hkdf.Expand(sha256.New, r.prk, use+"/"+purpose, sha256.Size)
	if err != nil {
		panic(err) // only for lengths above 8160
	}
	return key
}

// Seal encrypts plaintext. purpose is a constant that names the kind of secret ("webhook
// secret"); aad names the place of the value, usually the id of its row, so that it cannot be
// moved to another. [Box.Open] needs both again.
func (b *Box) Seal(purpose string, plaintext []byte, aad string) []byte {
	r := b.roots[0]
	sealed := make([]byte, headerSize+chacha20poly1305.NonceSizeX, Overhead+len(plaintext))
	sealed[0] = version
	copy(sealed[1:], r.id[:])
	nonce := sealed[headerSize:]
	rand.Read(nonce) // never fails: crypto/rand crashes the program instead

	aead, err := chacha20poly1305.NewX(r.derive("seal", purpose))
	if err != nil {
		panic(err) // only for keys other than 32 bytes
	}
	return aead.Seal(sealed, nonce, plaintext, append(sealed[:headerSize:headerSize], aad...))
}

// Open decrypts a value that [Box.Seal] sealed with the same purpose and additional data. The
// error is [ErrUnknownKey] or [ErrDamaged].
func (b *Box) Open(purpose string, sealed []byte, aad string) ([]byte, error) {
	if len(sealed) < Overhead || sealed[0] != version {
		return nil, ErrDamaged
	}
	header := sealed[:headerSize:headerSize]
	nonce := sealed[headerSize : headerSize+chacha20poly1305.NonceSizeX]
	ciphertext := sealed[headerSize+chacha20poly1305.NonceSizeX:]

	// Ids collide once in four billion pairs of keys, so every root with the id is tried.
	err := ErrUnknownKey
	for _, r := range b.roots {
		if r.id != [idSize]byte(header[1:]) {
			continue
		}
		aead, newErr := chacha20poly1305.NewX(r.derive("seal", purpose))
		if newErr != nil {
			panic(newErr) // only for keys other than 32 bytes
		}
		plaintext, openErr := aead.Open(nil, nonce, ciphertext, append(header, aad...))
		if openErr == nil {
			return plaintext, nil
		}
		err = ErrDamaged
	}
	return nil, err
}

// MAC returns the HMAC-SHA256 (32 bytes) of data under the key for purpose. Parts of data are
// separated: ("ab", "c") and ("a", "bc") differ. Because its key rotates, a MAC suits tokens to
// be checked with [Box.VerifyMAC], not lookup values.
func (b *Box) MAC(purpose string, data ...string) []byte {
	return b.roots[0].mac(purpose, data)
}

// VerifyMAC reports whether mac is the first size bytes of the MAC of data under any of the
// keys. size is the length that the token's creator used, sha256.Size unless truncated; a mac
// of any other length is refused, so that a shorter one is never accepted. It panics on a size
// below 4, which would protect nothing.
func (b *Box) VerifyMAC(purpose string, mac []byte, size int, data ...string) bool {
	if size < 4 || size > sha256.Size {
		panic("seal: MAC size out of range")
	}
	if len(mac) != size {
		return false
	}
	for _, r := range b.roots {
		if hmac.Equal(mac, r.mac(purpose, data)[:size]) {
			return true
		}
	}
	return false
}

func (r root) mac(purpose string, data []string) []byte { return mac(r.derive("mac", purpose), data) }

func mac(key []byte, data []string) []byte {
	h := hmac.New(sha256.New, key)
	var part []byte
	for _, d := range data {
		part = binary.BigEndian.AppendUint64(part[:0], uint64(len(d)))
		h.Write(append(part, d...))
	}
	return h.Sum(nil)
}

// Signer creates and checks MACs of one purpose that are stored permanently, each with the id
// of its key. It is immutable and safe for concurrent use.
type Signer struct{ keys []signingKey }

type signingKey struct {
	id     string
	secret []byte
}

// Signer returns the signer for a purpose. Its first key signs; every key verifies.
// The purpose must not be one of [Box.MAC].
func (b *Box) Signer(purpose string) *Signer {
	s := new(Signer)
	for _, r := range b.roots {
		s.keys = append(s.keys, signingKey{hex.EncodeToString(r.id[:]), r.derive("mac", purpose)})
	}
	return s
}

// KeyID returns the id of the key that [Signer.Sign] uses: 8 hexadecimal digits that reveal
// nothing about the key.
func (s *Signer) KeyID() string { return s.keys[0].id }

// Sign returns the HMAC-SHA256 (32 bytes) of data under the first key. Parts of data are
// separated as in [Box.MAC].
func (s *Signer) Sign(data ...string) []byte { return mac(s.keys[0].secret, data) }

// Verify returns nil if sum is the MAC of data under the key with this id. Otherwise the error
// is [ErrUnknownKey] or [ErrDamaged].
func (s *Signer) Verify(keyID string, sum []byte, data ...string) error {
	err := ErrUnknownKey
	for _, k := range s.keys { // ids may collide, as in sealed values
		if k.id != keyID {
			continue
		}
		if hmac.Equal(sum, mac(k.secret, data)) {
			return nil
		}
		err = ErrDamaged
	}
	return err
}
