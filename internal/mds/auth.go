package mds

import (
	"crypto"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

const (
	maxToken = 8 << 10          // bytes
	skew     = 30 * time.Second // of an agency's clock
)

// claims are the claims of an agency's token. iss is the agency's id in the subaccount,
// aud the subaccount's id, and exp is required.
type claims struct {
	jwt.RegisteredClaims
	ProviderID string `json:"provider_id"`
}

// errToken is the refusal of any token, whichever part of it is wrong.
func errToken() error {
	return faultf(http.StatusUnauthorized, "unauthorized", "The header Authorization must be Bearer and a JSON Web Token that is signed by an agency of the area, has not expired, and has provider_id.")
}

// authorize returns the area that a request may read. Errors: 401; those of the database.
func (p *Provider) authorize(r *http.Request) (fleet.MDSArea, error) {
	lines := r.Header["Authorization"]
	if len(lines) != 1 {
		return fleet.MDSArea{}, errToken()
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || len(token) > maxToken {
		return fleet.MDSArea{}, errToken()
	}
	// The key follows from claims that are verified afterwards.
	var area fleet.MDSArea
	var failure error // of the database
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodRS256.Alg(), jwt.SigningMethodES256.Alg()}),
		jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(skew), jwt.WithTimeFunc(p.service.RealTime), jwt.WithStrictDecoding(),
	)
	var c claims
	_, err := parser.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) {
		if len(c.Audience) != 1 || c.Issuer == "" {
			return nil, errors.New("no area or agency")
		}
		var err error
		if area, err = p.service.MDSArea(r.Context(), c.Audience[0]); err != nil {
			if problem.Of(err) != problem.NotFound {
				failure = err
			}
			return nil, err
		}
		return keyOf(&area, c.Issuer)
	})
	switch {
	case failure != nil:
		return fleet.MDSArea{}, failure
	case err != nil, c.ProviderID != string(area.Subaccount.MDS.ProviderID):
		return fleet.MDSArea{}, errToken()
	}
	return area, nil
}

// keyOf returns the public key of an agency.
func keyOf(area *fleet.MDSArea, agency string) (crypto.PublicKey, error) {
	for i := range area.Subaccount.MDS.Agencies {
		if a := &area.Subaccount.MDS.Agencies[i]; a.ID == agency {
			return a.Key()
		}
	}
	return nil, errors.New("no such agency")
}
