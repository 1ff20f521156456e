package kickstand

import "time"

// CallOption is an option of one call.
type CallOption func(*callOptions)

type callOptions struct {
	timeout        time.Duration
	maxRetries     int
	idempotencyKey string
	ifMatch        string
	ifNoneMatch    string
	subaccount     string
	requestID      string
	expand         []string
	observers      []func(*Response)
}

// WithIdempotencyKey sets the Idempotency-Key of a write. Without it, each call has a new one.
func WithIdempotencyKey(key string) CallOption {
	return func(o *callOptions) { o.idempotencyKey = key }
}

// WithTimeout sets the longest time of one attempt.
func WithTimeout(d time.Duration) CallOption { return func(o *callOptions) { o.timeout = d } }

// WithMaxRetries sets the number of attempts after the first.
func WithMaxRetries(n int) CallOption { return func(o *callOptions) { o.maxRetries = n } }

// WithIfMatch makes a write fail with 412 unless the record has this ETag.
func WithIfMatch(etag string) CallOption { return func(o *callOptions) { o.ifMatch = etag } }

// WithIfNoneMatch makes a read return nil if the record still has this ETag.
func WithIfNoneMatch(etag string) CallOption { return func(o *callOptions) { o.ifNoneMatch = etag } }

// WithSubaccount narrows a call of the fleet to a subaccount.
func WithSubaccount(id string) CallOption { return func(o *callOptions) { o.subaccount = id } }

// WithRequestID sets X-Request-Id, which the server writes to its logs.
func WithRequestID(id string) CallOption { return func(o *callOptions) { o.requestID = id } }

// WithExpand asks for records beside their ids: "customer" for customer_id.
func WithExpand(names ...string) CallOption { return func(o *callOptions) { o.expand = names } }

// WithOnResponse calls f with each answer, before the call returns. Of a call with retries
// these are several.
func WithOnResponse(f func(*Response)) CallOption {
	return func(o *callOptions) { o.observers = append(o.observers, f) }
}
