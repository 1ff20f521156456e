//go:build go1.25

package kickstand_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	kickstand "github.com/kickstand-dev/kickstand/clients/go"
)

// transport answers requests by a function.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newFleet(t *testing.T, f transport) *kickstand.Fleet {
	t.Helper()
	fleet, err := kickstand.NewFleet(kickstand.Options{
		Key: "sk_test_" + strings.Repeat("k", 32), BaseURL: "https://kickstand.example", HTTPClient: &http.Client{Transport: f},
	})
	if err != nil {
		t.Fatal(err)
	}
	return fleet
}

// piped returns an answer with a body that is written piece by piece.
func piped(status int, pieces func(w *io.PipeWriter, done <-chan struct{})) transport {
	return func(r *http.Request) (*http.Response, error) {
		out, in := io.Pipe()
		context.AfterFunc(r.Context(), func() { in.CloseWithError(r.Context().Err()) })
		go pieces(in, r.Context().Done())
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: out, ContentLength: -1, Request: r}, nil
	}
}

// A stream may take longer than the timeout, as long as no pause does.
func TestSlowExport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := newFleet(t, piped(200, func(w *io.PipeWriter, _ <-chan struct{}) {
			for range 4 {
				time.Sleep(20 * time.Second)
				io.WriteString(w, `{"id":"ride_1"}`+"\n")
			}
			w.Close()
		}))
		n := 0
		for ride, err := range fleet.Rides.Export(t.Context(), kickstand.RideListParams{}) {
			if err != nil || ride.ID != "ride_1" {
				t.Fatalf("ride %q, error %v", ride.ID, err)
			}
			n++
		}
		if n != 4 {
			t.Errorf("%d records", n)
		}
	})
}

// A loop may take longer for a record than the timeout.
func TestSlowLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := newFleet(t, piped(200, func(w *io.PipeWriter, _ <-chan struct{}) {
			for range 3 {
				io.WriteString(w, `{"id":"ride_1"}`+"\n")
			}
			w.Close()
		}))
		n := 0
		for _, err := range fleet.Rides.Export(t.Context(), kickstand.RideListParams{}) {
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			n++
		}
		if n != 3 {
			t.Errorf("%d records", n)
		}
	})
}

// An unchanged list is no page.
func TestUnchangedList(t *testing.T) {
	fleet := newFleet(t, piped(304, func(w *io.PipeWriter, _ <-chan struct{}) { w.Close() }))
	page, err := fleet.Rides.List(t.Context(), kickstand.RideListParams{}, kickstand.WithIfNoneMatch(`"v1"`))
	if page != nil || err != nil {
		t.Errorf("page %v, error %v", page, err)
	}
}

// A certificate that is not valid is an error at once: the next attempt would meet it again.
func TestInvalidCertificate(t *testing.T) {
	n := 0
	fleet := newFleet(t, func(*http.Request) (*http.Response, error) {
		n++
		return nil, &tls.CertificateVerificationError{Err: errors.New("expired")}
	})
	_, err := fleet.Settings.Get(t.Context())
	var connection *kickstand.ConnectionError
	if !errors.As(err, &connection) || n != 1 {
		t.Errorf("%d attempts, error %v", n, err)
	}
}

// A stream that pauses too long is a timeout, after the records that arrived.
func TestStalledExport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := newFleet(t, piped(200, func(w *io.PipeWriter, done <-chan struct{}) {
			io.WriteString(w, `{"id":"ride_1"}`+"\n")
			<-done
		}))
		var ids []string
		var last error
		begin := time.Now()
		for ride, err := range fleet.Rides.Export(t.Context(), kickstand.RideListParams{}) {
			if last = err; err == nil {
				ids = append(ids, ride.ID)
			}
		}
		var timeout *kickstand.TimeoutError
		if !errors.As(last, &timeout) || !slices.Equal(ids, []string{"ride_1"}) {
			t.Errorf("ids %v, error %v", ids, last)
		}
		if took := time.Since(begin); took != 30*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// A loop that ends early ends the transfer.
func TestBreakExport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		fleet := newFleet(t, piped(200, func(w *io.PipeWriter, done <-chan struct{}) {
			io.WriteString(w, `{"id":"ride_1"}`+"\n"+`{"id":"ride_2"}`+"\n")
			<-done
			ended = true
		}))
		for range fleet.Rides.Export(t.Context(), kickstand.RideListParams{}) {
			break
		}
		synctest.Wait()
		if !ended {
			t.Error("the transfer goes on")
		}
	})
}

// The caller's context ends a stream with its own error.
func TestCancelExport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := newFleet(t, piped(200, func(w *io.PipeWriter, done <-chan struct{}) {
			io.WriteString(w, `{"id":"ride_1"}`+"\n")
			<-done
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var last error
		for _, err := range fleet.Rides.Export(ctx, kickstand.RideListParams{}) {
			last = err
		}
		if !errors.Is(last, context.DeadlineExceeded) {
			t.Errorf("error %v", last)
		}
	})
}

// Records that cannot be encoded, and a server that answers early, end the sequence of an import.
func TestImportEndsSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := newFleet(t, func(r *http.Request) (*http.Response, error) {
			io.ReadFull(r.Body, make([]byte, 5))
			r.Body.Close()
			body := `{"status":413,"code":"body_too_large","detail":"The body is too large."}`
			return &http.Response{StatusCode: 413, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
		})
		ended := false
		records := func(yield func(kickstand.VehicleCreate) bool) {
			defer func() { ended = true }()
			for yield(kickstand.VehicleCreate{Code: "B-1"}) {
			}
		}
		_, err := fleet.Vehicles.Import(t.Context(), records, kickstand.VehicleImportParams{})
		var problem *kickstand.Problem
		if !errors.As(err, &problem) || problem.Code != kickstand.CodeBodyTooLarge || !ended {
			t.Errorf("error %v, ended: %v", err, ended)
		}
	})
}

// An answer that is larger than any is refused instead of filling the memory.
func TestHugeAnswer(t *testing.T) {
	fleet := newFleet(t, func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(blanks{}), ContentLength: -1, Request: r}, nil
	})
	_, err := fleet.Settings.Get(t.Context())
	var problem *kickstand.Problem
	if !errors.As(err, &problem) || !strings.Contains(problem.Detail, "too large") {
		t.Errorf("error %v", err)
	}
}

// blanks is an endless answer.
type blanks struct{}

func (blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
