package payload

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"strconv"

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

// errURL replaces errors that quote the URL, which may hold a secret.
var errURL = errors.New("the URL of the request cannot be read")

// Bytes returns the request in HTTP/1.1 wire format, without the body if that is unknown.
func (r *Request) Bytes() ([]byte, error) {
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, errURL
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

// Header returns the headers of an attempt without signatures. The transport adds Host and
// Content-Length.
func Header(name, deliveryID, eventID string, test bool) http.Header {
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

// Checksum returns the length and the CRC of a body, to verify that a body rendered again equals
// the sent one.
func Checksum(body []byte) int64 {
	return int64(len(body))<<32 | int64(crc32.Checksum(body, castagnoli))
}

// NewRequest returns the request that was sent to a URL with the headers h. sum is the
// [Checksum] of the sent body, and body the body rendered again: left out if it differs.
func NewRequest(rawURL string, h http.Header, sum int64, body []byte) (*Request, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errURL
	}
	if Checksum(body) != sum {
		body = nil
	}
	h["Host"] = []string{wireHost(u)}
	h["Content-Length"] = []string{strconv.FormatInt(sum>>32, 10)} // see Checksum
	return &Request{Method: http.MethodPost, URL: rawURL, Header: h, Body: body}, nil
}

// wireHost returns the Host header that the transport sends for a URL.
func wireHost(u *url.URL) string {
	host, err := httpguts.PunycodeHostPort(u.Host)
	if err != nil {
		return u.Host
	}
	return host
}
