package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"

	"golang.org/x/net/http/httpguts"
)

// Request is the HTTP request of an attempt, byte for byte, or the one prepared if there was no
// connection.
type Request struct {
	Method string
	URL    string
	Header http.Header // all headers, with Host and Content-Length
	// Body is nil if it is unknown: the event was purged, or an upgrade renders it differently.
	Body []byte
}

// Bytes returns the request in HTTP/1.1 wire format, without the body if that is unknown.
func (r *Request) Bytes() ([]byte, error) {
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, errors.New("the URL of the request cannot be read") // err quotes the URL, which may hold a secret
	}
	length, err := strconv.ParseInt(r.Header.Get("Content-Length"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("length of the request: %w", err)
	}
	body := r.Body
	if body == nil {
		body = make([]byte, length)
	}
	var buf bytes.Buffer
	q := http.Request{Method: r.Method, URL: u, Host: u.Host, Header: r.Header, ContentLength: length, Body: io.NopCloser(bytes.NewReader(body))}
	if err := q.Write(&buf); err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	return buf.Bytes()[:buf.Len()-len(body)+len(r.Body)], nil
}

// sent is the stored part of a request. The rest follows from the delivery, the event and the
// webhook's version.
type sent struct {
	version    int64 // of the webhook; 0 if nothing was sent, or from before requests were stored
	sum        int64 // checksum of the body
	signatures []byte
}

// version holds the settings of a webhook that shape requests.
type version struct {
	url  string
	form Form
}

// header returns the headers of an attempt without signatures. The transport adds Host and
// Content-Length.
func header(name, deliveryID, eventID string, test bool) http.Header {
	h := http.Header{
		"Content-Type":   {"application/json"},
		"User-Agent":     {"Kickstand-Webhooks"},
		headerEvent:      {name},
		headerDelivery:   {deliveryID},
		headerStandardID: {eventID},
		// The answer is stored for people to read.
		"Accept-Encoding": {"identity"},
	}
	if test {
		h[headerTest] = []string{"true"}
	}
	return h
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// bodySum returns a checksum, to verify that a body rendered again equals the sent one.
func bodySum(body []byte) int64 {
	return int64(len(body))<<32 | int64(crc32.Checksum(body, castagnoli))
}

func sumLength(sum int64) int64 { return sum >> 32 }

// wireHost returns the Host header that the transport sends for a URL.
func wireHost(u *url.URL) string {
	host, err := httpguts.PunycodeHostPort(u.Host)
	if err != nil {
		return u.Host
	}
	return host
}

// rebuild fills in the requests of a delivery's attempts from sents. stored is the stored body
// of a test delivery.
func (s *Service) rebuild(ctx context.Context, q db.Querier, d *Delivery, attempts []Attempt, sents []sent, stored []byte) error {
	versions := make(map[int64]version)
	rows, err := db.All(ctx, q, func(row db.Row) (number int64, err error) {
		var v version
		err = row.Scan(&number, &v.url, &v.form)
		versions[number] = v
		return number, err
	}, "SELECT version, url, payload_form FROM webhook_versions WHERE webhook_id = $1", d.WebhookID)
	if err != nil {
		return fmt.Errorf("load versions of webhook: %w", err)
	}
	if len(rows) == 0 {
		return nil // deleted meanwhile
	}
	bodies := make(map[Form][]byte)
	if stored == nil {
		e, err := event.Find(ctx, q, d.EventID)
		if err != nil && !errors.Is(err, db.ErrNoRows) {
			return fmt.Errorf("load event: %w", err)
		}
		if err == nil {
			for _, f := range []Form{Flat, Nested} {
				if bodies[f], err = render(f, &e); err != nil {
					return err
				}
			}
		}
	}
	for i := range attempts {
		a, sent := &attempts[i], sents[i]
		v, ok := versions[sent.version]
		if !ok {
			continue
		}
		u, err := url.Parse(v.url)
		if err != nil {
			continue // a version without attempts
		}
		body := stored
		if body == nil {
			body = bodies[v.form]
		}
		if bodySum(body) != sent.sum {
			body = nil
		}
		h := header(string(d.Event), d.ID, d.EventID, d.Test)
		if len(sent.signatures) > 0 {
			addSignatures(h, v.form, a.At, sent.signatures)
		}
		h["Host"] = []string{wireHost(u)}
		h["Content-Length"] = []string{strconv.FormatInt(sumLength(sent.sum), 10)}
		a.Request = &Request{Method: http.MethodPost, URL: v.url, Header: h, Body: body}
	}
	return nil
}
