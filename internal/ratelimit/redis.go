package ratelimit

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	callTimeout = 250 * time.Millisecond // with one call
	pause       = time.Second            // for Redis after it failed

	// connections is how many calls are with Redis at once. It is well above
	// what a near Redis needs, because a call that finds none free for as long
	// as its patience counts as a failure.
	connections = 100

	keyPrefix = "kickstand:limit:"
)

// Redis is a server (5 or newer, or one that speaks like it) in which several
// processes count together. It is safe for concurrent use. Close it when done.
type Redis struct {
	client   *redis.Client
	password string
	timeout  time.Duration
	log      *slog.Logger
	breaker  breaker
}

// CheckURL returns what is wrong with the address of a Redis server. Its errors
// never quote the address: a password with an unencoded character in it can end
// up in any part.
func CheckURL(rawURL string) error {
	_, err := parseURL(rawURL)
	return err
}

func parseURL(rawURL string) (*redis.Options, error) {
	wrong := errors.New("must be redis://[user:password@]host[:port][/number], rediss://… for TLS, or unix://[user:password@]/path[?db=number], special characters in user and password percent-encoded")
	u, err := url.Parse(rawURL)
	if err != nil || u.Fragment != "" || u.Opaque != "" {
		return nil, wrong
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Scheme == "unix" && u.Host != "" || u.Scheme != "unix" && u.Hostname() == "" {
		return nil, wrong
	}
	// What else the library would take from there is decided here.
	if len(query) > 1 || len(query) == 1 && !query.Has("db") {
		return nil, wrong
	}
	o, err := redis.ParseURL(rawURL)
	if err != nil || o.DB < 0 {
		return nil, wrong
	}
	return o, nil
}

// OpenRedis returns the server at an address that [CheckURL] accepts, without
// connecting. A nil log discards.
func OpenRedis(rawURL string, log *slog.Logger) (*Redis, error) {
	o, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	return openRedis(o, callTimeout, log), nil
}

func openRedis(o *redis.Options, patience time.Duration, log *slog.Logger) *Redis {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	// It would write to standard error by itself, what it also returns.
	logging.Disable()
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = patience, patience, patience, patience
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1 // a script that was run and not answered would count twice
	o.DialerRetries = 1
	o.PoolSize = connections
	o.ReadBufferSize, o.WriteBufferSize = 4096, 4096
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &Redis{client: redis.NewClient(o), password: o.Password, timeout: patience, log: log, breaker: breaker{pause: pause}}
}

// Close ends the connections.
func (r *Redis) Close() error { return r.client.Close() }

// Check tries whether the server can be used, so that the log tells at once if
// it cannot.
func (r *Redis) Check(ctx context.Context) { r.try(ctx, r.writeProbe) }

// Ping reports whether the server can be used, even after a failure. The error
// holds no secret.
func (r *Redis) Ping(ctx context.Context) error {
	if err := r.writeProbe(ctx); err != nil {
		return errors.New(r.redactedText(err))
	}
	return nil
}

// writeProbe counts something that nobody asks for. A server that only reads, as a
// replica does or one whose memory is full, cannot be used, but answers calls
// that have nothing to count.
func (r *Redis) writeProbe(ctx context.Context) error {
	return windowScript.Run(ctx, r.client, []string{redisKey("check", "")}, int64(1)<<50, time.Second.Microseconds(), 1).Err()
}

// run runs a script on one key. It returns false when the caller must do
// without.
func (r *Redis) run(ctx context.Context, s *redis.Script, key string, args ...any) (out []int64, ok bool) {
	ok = r.try(ctx, func(ctx context.Context) (err error) {
		out, err = s.Run(ctx, r.client, []string{key}, args...).Int64Slice()
		return err
	})
	return out, ok
}

// try calls f unless Redis is being left alone, and reports whether f
// succeeded.
func (r *Redis) try(ctx context.Context, f func(ctx context.Context) error) bool {
	probe, ok := r.breaker.enter()
	if !ok {
		return false
	}
	// Who goes away while being counted is counted all the same, and says
	// nothing about Redis.
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
		r.log.WarnContext(ctx, "redis cannot be used; until it can, this process counts requests and sign-ins on its own", "error", r.redactedText(err))
	case changed:
		r.log.InfoContext(ctx, "redis can be used again", "after", lasted.Round(time.Millisecond).String())
	}
	return err == nil
}

// redactedText is what an error says, without the password: a server that does not know
// a command may quote what came with it.
func (r *Redis) redactedText(err error) string {
	text, _, _ := strings.Cut(err.Error(), ", with args")
	if r.password != "" {
		text = strings.ReplaceAll(text, r.password, "********")
	}
	return text
}

// breaker keeps calls away from a server that has just failed.
type breaker struct {
	pause time.Duration

	mu    sync.Mutex
	down  bool
	since time.Time // when down
	next  time.Time // when down: the next try
}

// enter reports whether the server may be called, and whether that is the one
// call that tries if it is back.
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

// leave takes the outcome of a call, and reports whether an outage begins or
// ends with it, and how long it lasted. A call that was under way when the
// outage began does not end it.
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

// redisKey is where the count of a key is.
func redisKey(name, key string) string {
	sum := sha256.Sum256([]byte(key))
	return keyPrefix + name + ":" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// The scripts count in microseconds of the clock of Redis. Should that be set
// back, what lies in its future counts as never having been. Keys outlive what
// they say by a second, so that the clock that expires them, which ticks in
// milliseconds, decides nothing.

// windowScript takes the limit, the window, and 1 to count or 0 to look. It
// returns whether the act passes, how many have, and the time left.
var windowScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local w = redis.call('HMGET', KEYS[1], 'used', 'ends')
local used, ends = tonumber(w[1] or 0), tonumber(w[2] or 0)
if ends <= now or ends > now + window then
	used, ends = 0, now + window
end
if ARGV[3] == '0' then
	return {0, used, ends - now}
end
if used >= limit then
	return {0, used, ends - now}
end
used = used + 1
redis.call('HSET', KEYS[1], 'used', used, 'ends', ends)
if used == 1 then
	redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000) + 1000)
end
return {1, used, ends - now}
`)

// slidingScript takes the limit, the window, and 1 to count or 0 to look. It
// returns 0 for an act that passes, or the time until one may.
var slidingScript = redis.NewScript(`
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

// RedisWindows counts as [Memory] does, together with all processes that share
// the server.
type RedisWindows struct {
	redis    *Redis
	name     string
	window   time.Duration
	fallback *Memory // while Redis cannot be used
}

// Windows returns windows that last as long as window, in whole microseconds.
// Those of different names do not know of each other; those of one name must
// last equally long. It panics unless window is positive.
func (r *Redis) Windows(name string, window time.Duration) *RedisWindows {
	return &RedisWindows{redis: r, name: name, window: window, fallback: NewMemory(window)}
}

// Acquire is [Memory.Acquire], also in that its error is always nil. The end of the
// window is by this process's clock, later than by that of Redis by what the
// answer took.
func (w *RedisWindows) Acquire(ctx context.Context, key string, limit int64) (State, bool, error) {
	out, ok := w.redis.run(ctx, windowScript, redisKey(w.name, key), limit, w.window.Microseconds(), 1)
	if !ok {
		return w.fallback.Acquire(ctx, key, limit)
	}
	return state(limit, out), out[0] == 1, nil
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

// RedisLimiter limits as [Limiter] does, together with all processes that share
// the server.
type RedisLimiter struct {
	redis    *Redis
	name     string
	limit    int
	window   time.Duration
	fallback *Limiter // while Redis cannot be used
}

// Limiter returns a limiter that lets each key pass limit times in any period as
// long as window, in whole microseconds. Those of different names do not know of
// each other. It panics unless both are positive.
func (r *Redis) Limiter(name string, limit int, window time.Duration) *RedisLimiter {
	return &RedisLimiter{redis: r, name: name, limit: limit, window: window, fallback: New(limit, window)}
}

// Allow is [Limiter.Allow]; retryAfter is exact but for what the answer took.
func (l *RedisLimiter) Allow(ctx context.Context, key string) (ok bool, retryAfter time.Duration) {
	out, ok := l.redis.run(ctx, slidingScript, redisKey(l.name, key), l.limit, l.window.Microseconds(), 1)
	if !ok {
		return l.fallback.Allow(ctx, key)
	}
	return out[0] == 0, time.Duration(out[0]) * time.Microsecond
}

// Wait is [Limiter.Wait]; it is exact but for what the answer took.
func (l *RedisLimiter) Wait(ctx context.Context, key string) time.Duration {
	out, ok := l.redis.run(ctx, slidingScript, redisKey(l.name, key), l.limit, l.window.Microseconds(), 0)
	if !ok {
		return l.fallback.Wait(ctx, key)
	}
	return time.Duration(out[0]) * time.Microsecond
}
