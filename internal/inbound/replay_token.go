package inbound

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// errUsedToken means that another request used the same token. It is answered like an invalid
// signature.
var errUsedToken = errors.New("the token was used with another request")

// tokenUse is one use of a replay token ([channel.ReplayTokenReader]), recorded for each
// connection with a matching secret, or for the deployment. Nil means that the channel has no
// such tokens.
type tokenUse struct {
	channel string
	scopes  []string // connection ids; "" for the deployment
	token   []byte   // digest
	request []byte   // digest of the request that the token is valid for
	until   time.Time
}

// newTokenUse returns the token use of a verified request, or nil.
func newTokenUse(a channel.Adapter, req *channel.Request, v *verified) *tokenUse {
	t, ok := a.(channel.ReplayTokenReader)
	if !ok {
		return nil
	}
	token := t.ReplayToken(req)
	if token.Value == "" {
		return nil
	}
	digest := sha256.Sum256([]byte(token.Value))
	u := &tokenUse{channel: a.Info().Name, token: digest[:], until: token.Until}
	if token.Signed {
		u.request, u.scopes = readingDigest(req), []string{""}
		return u
	}
	u.request = contentDigest(req)
	for _, c := range v.candidates {
		if c.secret > 0 {
			u.scopes = append(u.scopes, c.ID)
		}
	}
	if v.deployment > 0 {
		u.scopes = append(u.scopes, "")
	}
	return u
}

// readingDigest returns a digest of a signed body and its content type. The envelope is
// excluded: a mail to two of our addresses may arrive twice within a second.
func readingDigest(req *channel.Request) []byte {
	h := sha256.New()
	hashFields(h, string(req.Body))
	hashFields(h, req.Header.Values("Content-Type")...)
	return h.Sum(nil)
}

// contentDigest returns a digest of the request's content that is stable across repetitions.
// For a multipart body it covers headers and content of each part in order, because senders
// choose a new boundary for each attempt; for any other or malformed body it covers the type
// and the bytes.
func contentDigest(req *channel.Request) []byte {
	if kind, params, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err == nil && strings.HasPrefix(kind, "multipart/") {
		if digest, err := partsDigest(kind, multipart.NewReader(bytes.NewReader(req.Body), params["boundary"])); err == nil {
			return digest
		}
	}
	return readingDigest(req)
}

// partsDigest returns a digest of all parts of a multipart body.
func partsDigest(kind string, parts *multipart.Reader) ([]byte, error) {
	h := sha256.New()
	hashFields(h, kind)
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return h.Sum(nil), nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(part.Header)) {
			hashFields(h, name)
			hashFields(h, part.Header[name]...)
		}
		hashFields(h, "", string(content))
	}
}

// hashFields writes the number of fields, and each field after its length.
func hashFields(h hash.Hash, fields ...string) {
	var size [8]byte
	h.Write(binary.BigEndian.AppendUint64(size[:0], uint64(len(fields)))) // a hash does not fail
	for _, f := range fields {
		h.Write(binary.BigEndian.AppendUint64(size[:0], uint64(len(f))))
		io.WriteString(h, f)
	}
}

// recordTx records the use in the transaction that stores the request, so that a retry after a
// failed transaction passes. Repeating it with the same request succeeds; with another one it
// returns [errUsedToken], and nothing must be stored.
func (u *tokenUse) recordTx(ctx context.Context, tx *db.Tx) error {
	if u == nil {
		return nil
	}
	for _, scope := range u.scopes {
		n, err := tx.Exec(ctx, `INSERT INTO inbound_tokens (channel, connection_id, token, request, until)
			VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`, u.channel, scope, u.token, u.request, u.until.UnixMicro())
		if err != nil {
			return fmt.Errorf("record the use of a token: %w", err)
		}
		if n > 0 {
			continue
		}
		var first []byte
		err = tx.QueryRow(ctx, "SELECT request FROM inbound_tokens WHERE channel = $1 AND connection_id = $2 AND token = $3",
			u.channel, scope, u.token).Scan(&first)
		if err != nil {
			return fmt.Errorf("look up the use of a token: %w", err)
		}
		if !bytes.Equal(first, u.request) {
			return errUsedToken
		}
	}
	return nil
}

// recordTokenUse records the use of a request of which nothing is stored.
func (s *Service) recordTokenUse(ctx context.Context, u *tokenUse) error {
	if u == nil {
		return nil
	}
	return s.db.Write(ctx, func(tx *db.Tx) error { return u.recordTx(ctx, tx) })
}

// tokenGrace is how long after its expiry a use is retained, for clock skew between processes.
const tokenGrace = time.Hour

// PurgeTokens deletes uses with expired signatures.
func (s *Service) PurgeTokens(ctx context.Context) error {
	for {
		var n int64
		err := s.db.Write(ctx, func(tx *db.Tx) (err error) {
			n, err = tx.Exec(ctx, `DELETE FROM inbound_tokens WHERE (channel, connection_id, token) IN (
				SELECT channel, connection_id, token FROM inbound_tokens WHERE until < $1 ORDER BY until LIMIT $2)`,
				tx.Now.Add(-tokenGrace).UnixMicro(), purgeBatch)
			return err
		})
		if err != nil {
			return fmt.Errorf("delete used tokens: %w", err)
		}
		if n < purgeBatch {
			return nil
		}
	}
}
