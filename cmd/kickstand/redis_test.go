package main

import (
	"crypto/rand"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestRedisSharesSignInLimits: two servers with one Redis share sign-in limits.
func TestRedisSharesSignInLimits(t *testing.T) {
	const variable = "KICKSTAND_TEST_REDIS_URL"
	if os.Getenv(variable) == "" {
		t.Skip("needs a Redis: set " + variable + "; .ci/redis starts one")
	}
	var urls []string
	for range 2 {
		s := start(t, "--data="+t.TempDir(), "--database-url="+dbtest.URL(t), "--redis-url="+os.Getenv(variable))
		urls = append(urls, s.url)
	}
	email := strings.ToLower(rand.Text()) + "@example.com"
	for i := range 5 {
		if got := wrongSignIn(t, urls[i%2], email); got != http.StatusUnauthorized {
			t.Errorf("attempt %d: got status %d, want 401", i, got)
		}
	}
	for i, url := range urls {
		if got := wrongSignIn(t, url, email); got != http.StatusTooManyRequests {
			t.Errorf("the sixth attempt, on server %d: got status %d, want 429", i, got)
		}
	}
}

// TestRedisIsAway: a server starts without its Redis and counts sign-ins alone.
func TestRedisIsAway(t *testing.T) {
	s := start(t, "--data="+t.TempDir(), "--database-url="+dbtest.URL(t), "--redis-url=unix://"+t.TempDir()+"/absent")
	for i := range 5 {
		if got := wrongSignIn(t, s.url, "robin@example.com"); got != http.StatusUnauthorized {
			t.Errorf("attempt %d: got status %d, want 401", i, got)
		}
	}
	if got := wrongSignIn(t, s.url, "robin@example.com"); got != http.StatusTooManyRequests {
		t.Errorf("the sixth attempt: got status %d, want 429", got)
	}
}

// wrongSignIn returns the status of an attempt with a wrong password.
func wrongSignIn(t *testing.T, base, email string) int {
	t.Helper()
	resp, err := http.Post(base+"/api/trpc/auth.signInWithPassword", "application/json",
		strings.NewReader(`{"json":{"email":"`+email+`","password":"not the password"}}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}
