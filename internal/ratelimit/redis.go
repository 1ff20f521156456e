package ratelimit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	callTimeout = 250 * time.Millisecond // per call
	pause       = time.Second            // between a failure and the next probe

	// connections bounds concurrent calls. It is well above the need of a nearby Redis, because
	// a call that finds none free within its timeout counts as a failure.
	connections = 100
	idleTimeout = 5 * time.Minute // of a connection

	keyPrefix = "kickstand:limit:"
)

// Redis is a Redis server (5 or newer, or compatible) that several processes share. It is safe
// for concurrent use. Close it after use.
type Redis struct {
	pool     *redis.Pool
	password string
	timeout  time.Duration
	log      *slog.Logger
	breaker  breaker
}

// CheckURL validates the address of a Redis server. Its errors never quote the address: a
// password with an unencoded character can end up in any part of it.
func CheckURL(rawURL string) error {
	_, err := parseURL(rawURL)
	return err
}

func parseURL(rawURL string) (server, error) {
	wrong := errors.New("must be redis://[user:password@]host[:port][/number], rediss://… for TLS, or unix://[user:password@]/path[?db=number], special characters in user and password percent-encoded")
	u, err := url.Parse(rawURL)
	if err != nil || u.Fragment != "" || u.Opaque != "" {
		return server{}, wrong
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || len(query) > 1 || len(query) == 1 && !query.Has("db") {
		return server{}, wrong
	}
	s := server{username: u.User.Username()}
	s.password, _ = u.User.Password()
	number := query.Get("db")
	switch u.Scheme {
	case "unix":
		if u.Host != "" || u.Path == "" {
			return server{}, wrong
		}
		s.network, s.address = "unix", u.Path
	case "redis", "rediss":
		if u.Hostname() == "" {
			return server{}, wrong
		}
		s.network, s.address = "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "6379"))
		if u.Scheme == "rediss" {
			s.tls = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
		}
		number = cmp.Or(strings.Trim(u.Path, "/"), number)
	default:
		return server{}, wrong
	}
	if number != "" {
		db, err := strconv.ParseUint(number, 10, 31)
		if err != nil {
			return server{}, wrong
		}
		s.database = int(db)
	}
	return s, nil
}

// server is the address of a Redis server, with the credentials for it.
type server struct {
	network, address   string
	username, password string
	database           int
	tls                *tls.Config // nil: none
	dial               func(ctx context.Context, network, address string) (net.Conn, error)
}

// pool returns connections to the server, each call of which takes at most patience.
func (s server) pool(patience time.Duration) *redis.Pool {
	dial := s.dial
	switch {
	case dial != nil:
	case s.tls != nil:
		dial = (&tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: s.tls}).DialContext
	default:
		dial = (&net.Dialer{Timeout: patience}).DialContext
	}
	return &redis.Pool{
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, s.network, s.address, redis.DialContextFunc(dial),
				redis.DialUsername(s.username), redis.DialPassword(s.password), redis.DialDatabase(s.database),
				redis.DialReadTimeout(patience), redis.DialWriteTimeout(patience))
		},
		// Connections from before a restart of the server must not fail calls one after the other.
		TestOnBorrowContext: func(ctx context.Context, c redis.Conn, lastUsed time.Time) error {
			if time.Since(lastUsed) < pause {
				return nil
			}
			_, err := redis.DoContext(c, ctx, "PING")
			return err
		},
		MaxActive: connections, MaxIdle: connections, Wait: true, IdleTimeout: idleTimeout,
	}
}

// OpenRedis returns the server at an address that [CheckURL] accepts, without connecting. A nil
// log discards.
func OpenRedis(rawURL string, log *slog.Logger) (*Redis, error) {
	s, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	return openRedis(s, callTimeout, log), nil
}

func openRedis(s server, patience time.Duration, log *slog.Logger) *Redis {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Redis{pool: s.pool(patience), password: s.password, timeout: patience, log: log, breaker: breaker{pause: pause}}
}

// Close closes the connections.
func (r *Redis) Close() error { return r.pool.Close() }

// Check calls the server once, so that an unusable one is logged at start.
func (r *Redis) Check(ctx context.Context) { r.try(ctx, r.writeProbe) }

// Ping reports whether the server is usable, even during the pause after a failure. The error
// holds no secret.
func (r *Redis) Ping(ctx context.Context) error {
	if err := r.writeProbe(ctx); err != nil {
		return errors.New(r.redactedText(err))
	}
	return nil
}

// writeProbe writes a counter that nothing reads. A read-only server (a replica, or one without
// memory) is unusable, but answers calls that write nothing.
func (r *Redis) writeProbe(ctx context.Context) error {
	_, err := r.call(ctx, windowScript, redisKey("check", ""), 1<<50, time.Second.Microseconds(), 1)
	return err
}

// call runs a script on one key. A script that ran without an answer is not repeated: it would
// count twice.
func (r *Redis) call(ctx context.Context, s *redis.Script, key string, args ...int64) ([]int64, error) {
	c, err := r.pool.GetContext(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	keyAndArgs := []any{key}
	for _, a := range args {
		keyAndArgs = append(keyAndArgs, a)
	}
	return redis.Int64s(s.DoContext(ctx, c, keyAndArgs...))
}

// run runs a script on one key. It returns false if the caller must use its fallback.
func (r *Redis) run(ctx context.Context, s *redis.Script, key string, args ...int64) (out []int64, ok bool) {
	ok = r.try(ctx, func(ctx context.Context) (err error) {
		out, err = r.call(ctx, s, key, args...)
		return err
	})
	return out, ok
}

// try calls f unless Redis is paused after a failure, and reports whether f succeeded.
func (r *Redis) try(ctx context.Context, f func(ctx context.Context) error) bool {
	probe, ok := r.breaker.enter()
	if !ok {
		return false
	}
	// Ignore the caller's cancellation: it must not undo counting, and says nothing about
	// Redis.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout)
	defer cancel()
	var err error
	if probe {
		err = r.writeProbe(bounded)
	}
	if err == nil {
		err = f(bounded)
	}
	changed, lasted := r.breaker.leave(probe, err)
	switch {
	case changed && err != nil:
		r.log.WarnContext(ctx, "redis is unavailable; meanwhile this process counts requests and sign-ins separately", "error", r.redactedText(err))
	case changed:
		r.log.InfoContext(ctx, "redis is available again", "after", lasted.Round(time.Millisecond).String())
	}
	return err == nil
}

// redactedText returns the text of an error without the password: a server may quote arguments
// of an unknown command.
func (r *Redis) redactedText(err error) string {
	text, _, _ := strings.Cut(err.Error(), ", with args")
	if r.password != "" {
		text = strings.ReplaceAll(text, r.password, "********")
	}
	return text
}

// breaker is a circuit breaker for a failed server.
type breaker struct {
	pause time.Duration

	mu    sync.Mutex
	down  bool
	since time.Time // when down
	next  time.Time // when down: time of the next probe
}

// enter reports whether the server may be called, and whether the call is the probe of a failed
// server.
func (b *breaker) enter() (probe, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.down {
		return false, true
	}
	now := time.Now()
	if now.Before(b.next) {
		return false, false
	}
	b.next = now.Add(b.pause)
	return true, true
}

// leave records the result of a call. It reports whether an outage starts or ends with it, and
// its duration. A call from before the outage does not end it.
func (b *breaker) leave(probe bool, err error) (changed bool, lasted time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if err != nil {
		changed = !b.down
		if changed {
			b.since = now
		}
		b.down, b.next = true, now.Add(b.pause)
		return changed, 0
	}
	if !b.down || !probe {
		return false, 0
	}
	b.down = false
	return true, now.Sub(b.since)
}

// redisKey returns the Redis key of a counter.
func redisKey(name, key string) string {
	sum := sha256.Sum256([]byte(key))
	return keyPrefix + name + ":" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// The scripts count in microseconds of Redis's clock. If the clock is set back, times in its
// future are ignored. Keys expire a second after their content, so that the expiry clock, which
// ticks in milliseconds, decides nothing.

// windowScript has the arguments limit, window, and the number of actions to count, 0 to peek. It
// returns how many of them pass, how many have passed, and the time left.
var windowScript = redis.NewScript(1, `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local w = redis.call('HMGET', KEYS[1], 'used', 'ends')
local used, ends = tonumber(w[1] or 0), tonumber(w[2] or 0)
if ends <= now or ends > now + window then
	used, ends = 0, now + window
end
local n = math.min(tonumber(ARGV[3]), limit - used)
if n <= 0 then
	return {0, used, ends - now}
end
used = used + n
redis.call('HSET', KEYS[1], 'used', used, 'ends', ends)
if used == n then
	redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000) + 1000)
end
return {n, used, ends - now}
`)

// slidingScript has the arguments limit, window, and 1 to count or 0 to peek. It returns 0 if
// the action passes, or the time until one may.
var slidingScript = redis.NewScript(1, `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local oldest = tonumber(redis.call('LINDEX', KEYS[1], -limit) or 0)
if oldest <= now and oldest + window > now then
	return {oldest + window - now}
end
if ARGV[3] == '0' then
	return {0}
end
redis.call('RPUSH', KEYS[1], now)
redis.call('LTRIM', KEYS[1], -limit, -1)
redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000) + 1000)
return {0}
`)

// RedisWindows counts like [Memory], shared by all processes on the server.
type RedisWindows struct {
	redis    *Redis
	name     string
	window   time.Duration
	fallback *Memory // while Redis is unavailable
}

// Windows returns windows of the given length, in whole microseconds. Different names are
// independent; equal names must have equal lengths. It panics unless window is positive.
func (r *Redis) Windows(name string, window time.Duration) *RedisWindows {
	return &RedisWindows{redis: r, name: name, window: window, fallback: NewMemory(window)}
}

// Acquire is [Memory.Acquire]; its error is always nil. The end of the window is by this
// process's clock, late by the duration of the call.
func (w *RedisWindows) Acquire(ctx context.Context, key string, limit int64) (State, bool, error) {
	s, granted, err := w.AcquireUpTo(ctx, key, limit, 1)
	return s, granted == 1, err
}

// AcquireUpTo is [Memory.AcquireUpTo].
func (w *RedisWindows) AcquireUpTo(ctx context.Context, key string, limit, n int64) (State, int64, error) {
	out, ok := w.redis.run(ctx, windowScript, redisKey(w.name, key), limit, w.window.Microseconds(), n)
	if !ok {
		return w.fallback.AcquireUpTo(ctx, key, limit, n)
	}
	return state(limit, out), out[0], nil
}

// Peek is [Memory.Peek].
func (w *RedisWindows) Peek(ctx context.Context, key string, limit int64) (State, error) {
	out, ok := w.redis.run(ctx, windowScript, redisKey(w.name, key), limit, w.window.Microseconds(), 0)
	if !ok {
		return w.fallback.Peek(ctx, key, limit)
	}
	return state(limit, out), nil
}

func state(limit int64, out []int64) State {
	return State{limit, max(0, limit-out[1]), time.Now().Add(time.Duration(out[2]) * time.Microsecond)}
}

// RedisLimiter limits like [Limiter], shared by all processes on the server.
type RedisLimiter struct {
	redis    *Redis
	name     string
	limit    int
	window   time.Duration
	fallback *Limiter // while Redis is unavailable
}

// Limiter returns a limiter that lets each key pass limit times in any period of length window,
// in whole microseconds. Different names are independent. It panics unless both are positive.
func (r *Redis) Limiter(name string, limit int, window time.Duration) *RedisLimiter {
	return &RedisLimiter{redis: r, name: name, limit: limit, window: window, fallback: New(limit, window)}
}

// Allow is [Limiter.Allow]; retryAfter is late by the duration of the call.
func (l *RedisLimiter) Allow(ctx context.Context, key string) (ok bool, retryAfter time.Duration) {
	out, ok := l.redis.run(ctx, slidingScript, redisKey(l.name, key), int64(l.limit), l.window.Microseconds(), 1)
	if !ok {
		return l.fallback.Allow(ctx, key)
	}
	return out[0] == 0, time.Duration(out[0]) * time.Microsecond
}

// Wait is [Limiter.Wait]; the result is late by the duration of the call.
func (l *RedisLimiter) Wait(ctx context.Context, key string) time.Duration {
	out, ok := l.redis.run(ctx, slidingScript, redisKey(l.name, key), int64(l.limit), l.window.Microseconds(), 0)
	if !ok {
		return l.fallback.Wait(ctx, key)
	}
	return time.Duration(out[0]) * time.Microsecond
}
