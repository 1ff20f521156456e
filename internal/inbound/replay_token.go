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

// errUsedToken says that somebody sends another request under the signature of an
// earlier one. It is answered like a wrong signature.
var errUsedToken = errors.New("the token was used with another request")

// tokenUse is the use of a token that a signature covers in place of the body
// ([channel.ReplayTokenReader]). It counts once for each connection whose key matched, or for
// the deployment. nil: the channel has no such tokens.
type tokenUse struct {
	channel string
	scopes  []string // ids of connections; empty: the deployment
	token   []byte   // digest
	request []byte   // digest of the request that the token is good for
	until   time.Time
}

// newTokenUse returns the use of its token that a verified request makes.
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

// readingDigest returns a digest of a signed body and of how it is read. The envelope
// beside it is no part: a mail to two of our addresses may come twice in a second.
func readingDigest(req *channel.Request) []byte {
	h := sha256.New()
	hashFields(h, string(req.Body))
	hashFields(h, req.Header.Values("Content-Type")...)
	return h.Sum(nil)
}

// contentDigest returns a digest of a request's content that is the same when the
// request is sent again. Of a multipart body it covers the headers and the content of
// each part in order, since a sender chooses a new boundary with each attempt; of
// every other body, and of a malformed one, it covers the type and the bytes.
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

// recordTx records the use in the transaction that stores what came with it, so that
// a retry after that has failed passes. It may be repeated with the same request;
// with another it is [errUsedToken], and nothing must be stored.
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

// recordTokenUse records a use with which nothing is stored.
func (s *Service) recordTokenUse(ctx context.Context, u *tokenUse) error {
	if u == nil {
		return nil
	}
	return s.db.Write(ctx, func(tx *db.Tx) error { return u.recordTx(ctx, tx) })
}

// tokenGrace is for how long after its time a use is remembered: the clocks of
// several processes differ.
const tokenGrace = time.Hour

// PurgeTokens forgets the uses whose signatures are too old to be accepted again.
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
			return fmt.Errorf("forget used tokens: %w", err)
		}
		if n < purgeBatch {
			return nil
		}
	}
}
