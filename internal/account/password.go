package account

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"golang.org/x/crypto/argon2"
)

// Bounds of passwords (helpdesk.md 8).
const (
	minPassword    = 6    // characters, at sign-in
	minNewPassword = 8    // characters, for a new one
	maxPassword    = 1024 // bytes
)

// hashParams are the cost parameters of argon2id.
type hashParams struct {
	memory  uint32 // KiB
	passes  uint32
	threads uint8
}

// leastParams is the cheapest setting that OWASP recommends for argon2id, so that a flood
// takes the least memory.
var leastParams = hashParams{memory: 19 * 1024, passes: 2, threads: 1}

const (
	saltSize = 16
	hashSize = 32
)

// maxHashMemory bounds the memory parameter of a stored hash, in KiB.
const maxHashMemory = 256 * 1024

// PasswordSignIn is the input of auth.signInWithPassword.
type PasswordSignIn struct {
	Email    string `json:"email"`
	Password string `json:"password"`
}

// Check implements [problem.Checker].
func (in PasswordSignIn) Check(v *problem.Validation) {
	checkEmail(v, "email", in.Email)
	checkPassword(v, "password", in.Password, minPassword)
}

func checkPassword(v *problem.Validation, path, password string, low int) {
	if len(password) > maxPassword {
		v.Add(path, "must have at most %d bytes", maxPassword)
		return
	}
	v.Length(path, password, low, maxPassword)
}

// SignInWithPassword opens a session. An unknown address, a user without a password and a
// wrong password are the same [problem.Unauthorized] after the same work.
func (s *Service) SignInWithPassword(ctx context.Context, in PasswordSignIn, client Client) (SignIn, error) {
	if err := problem.Check(in); err != nil {
		return SignIn{}, err
	}
	out, err := s.signInWithPassword(ctx, in, client)
	if err != nil {
		s.recordRefusal(ctx, emailKey(in.Email), ByPassword, err)
	}
	return out, err
}

func (s *Service) signInWithPassword(ctx context.Context, in PasswordSignIn, client Client) (SignIn, error) {
	key := emailKey(in.Email)
	browser, err := s.recognize(ctx, key, client.Browser)
	if err != nil {
		return SignIn{}, err
	}
	try := passwordAttempt{s, browser, client}
	if err := try.blocked(ctx); err != nil {
		return SignIn{}, err
	}
	if err := s.signInAttempts.allow(ctx, key, browser, client); err != nil {
		return SignIn{}, err
	}

	var u User
	var stored string
	err = s.db.QueryRow(ctx, "SELECT "+userColumns+", u.password_hash FROM users u WHERE u.email_key = $1", key).
		Scan(append(userFields(&u), db.IntoText(&stored))...)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return SignIn{}, fmt.Errorf("find user: %w", err)
	}
	if err := try.verify(ctx, stored, in.Password); err != nil {
		return SignIn{}, err
	}

	rehashed := stored
	if !s.isCurrent(stored) {
		if rehashed, err = s.hash(ctx, try.party(), in.Password); err != nil {
			return SignIn{}, err
		}
	}
	out := SignIn{User: u, RedirectTo: s.redirects.home()}
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		// Only if the password is still the verified one, so that a session cannot
		// outlive the password that opened it.
		n, err := tx.Exec(ctx, "UPDATE users SET password_hash = $3 WHERE id = $1 AND password_hash = $2", u.ID, stored, rehashed)
		if err != nil {
			return fmt.Errorf("store password: %w", err)
		}
		if n == 0 {
			return errWrongPassword()
		}
		return s.completeSignIn(ctx, tx, &out, ByPassword, client)
	})
	if err != nil {
		return SignIn{}, err
	}
	return out, nil
}

func errWrongPassword() error {
	return problem.New(problem.Unauthorized, "the e-mail address or the password is wrong")
}

// passwordAttempt is an attempt to sign in by password.
type passwordAttempt struct {
	s       *Service
	browser browserRecognition
	client  Client
}

// party returns the key under which the hash waits.
func (t passwordAttempt) party() string {
	if t.browser.digest != nil {
		return "browser " + string(t.browser.digest)
	}
	return "network " + Network(t.client.IP)
}

// blocked returns the refusal of an attempt from a network with too many failures.
// Failures of neighbours do not block a known browser.
func (t passwordAttempt) blocked(ctx context.Context) error {
	network := Network(t.client.IP)
	if t.browser.digest != nil || network == "" {
		return nil
	}
	if wait := t.s.failedSignIns.Wait(ctx, network); wait > 0 {
		return tooMany("too many sign-in attempts", wait)
	}
	return nil
}

// verify returns nil if stored is a hash of password. Of the concurrent attempts of a
// network, no more are answered than may fail.
func (t passwordAttempt) verify(ctx context.Context, stored, password string) error {
	release, err := t.s.hashers.acquire(ctx, t.party())
	if err != nil {
		return err
	}
	ok := false
	if err = t.blocked(ctx); err == nil { // checked again: attempts may have failed while it waited
		ok, err = t.s.matches(stored, password)
	}
	release()
	if ok || err != nil {
		return err
	}
	t.s.hashers.recordFailure(ctx, t.party())
	if network := Network(t.client.IP); t.browser.digest == nil && network != "" {
		if err := allow(ctx, t.s.failedSignIns, network); err != nil {
			return err
		}
	}
	return errWrongPassword()
}

// hash returns the stored form of password's hash under a new salt. It waits for a slot
// of the party until ctx ends.
func (s *Service) hash(ctx context.Context, party, password string) (string, error) {
	release, err := s.hashers.acquire(ctx, party)
	if err != nil {
		return "", err
	}
	defer release()
	h := passwordHash{hashParams: s.hashParams, salt: make([]byte, saltSize)}
	rand.Read(h.salt) // never fails: crypto/rand ends the program instead
	h.sum = argon2id(password, h.hashParams, h.salt, hashSize)
	return h.String(), nil
}

// verify reports whether stored is a hash of password. It waits for a slot of the party
// until ctx ends.
func (s *Service) verify(ctx context.Context, party, stored, password string) (bool, error) {
	release, err := s.hashers.acquire(ctx, party)
	if err != nil {
		return false, err
	}
	defer release()
	return s.matches(stored, password)
}

// matches reports whether stored is a hash of password. An empty one matches nothing, and
// takes the same time. The caller holds a slot of [hashers].
func (s *Service) matches(stored, password string) (bool, error) {
	h := passwordHash{hashParams: s.hashParams, salt: make([]byte, saltSize), sum: make([]byte, hashSize)}
	if stored != "" {
		var err error
		if h, err = parseHash(stored); err != nil {
			return false, err
		}
	}
	sum := argon2id(password, h.hashParams, h.salt, len(h.sum))
	return subtle.ConstantTimeCompare(sum, h.sum) == 1 && stored != "", nil
}

// isCurrent reports whether stored has the parameters of a new hash.
func (s *Service) isCurrent(stored string) bool {
	h, err := parseHash(stored)
	return err == nil && h.hashParams == s.hashParams && len(h.salt) == saltSize && len(h.sum) == hashSize
}

// passwordHash is an argon2id hash with its parameters and salt.
type passwordHash struct {
	hashParams
	salt, sum []byte
}

// String returns h in the PHC string format.
func (h passwordHash) String() string {
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s",
		argon2.Version, h.memory, h.passes, h.threads, b64.EncodeToString(h.salt), b64.EncodeToString(h.sum))
}

// parseHash parses the output of [passwordHash.String]. Its errors do not quote it.
func parseHash(s string) (passwordHash, error) {
	var h passwordHash
	parts := strings.Split(s, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != "v="+strconv.Itoa(argon2.Version) {
		return passwordHash{}, errors.New("stored password hash is not of argon2id")
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.memory, &h.passes, &h.threads); err != nil ||
		h.memory == 0 || h.memory > maxHashMemory || h.passes == 0 || h.threads == 0 {
		return passwordHash{}, errors.New("stored password hash has unusable parameters")
	}
	var err error
	if h.salt, err = base64.RawStdEncoding.DecodeString(parts[4]); err != nil {
		return passwordHash{}, errors.New("stored password hash has no readable salt")
	}
	if h.sum, err = base64.RawStdEncoding.DecodeString(parts[5]); err != nil || len(h.sum) < 16 {
		return passwordHash{}, errors.New("stored password hash has no readable sum")
	}
	return h, nil
}
