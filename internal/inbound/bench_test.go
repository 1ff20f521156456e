package inbound_test

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel/sms"
)

// BenchmarkAccept posts signed texts from 64 clients and waits until each is durable, without
// processing them. It also reports the processor time per text, which does not depend on the
// disk.
func BenchmarkAccept(b *testing.B) {
	h := start(b)
	h.connect(b, "sms", ours)
	posts := make(chan textRequest, 64)
	var clients sync.WaitGroup
	for range 64 {
		clients.Go(func() {
			for p := range posts {
				r := httptest.NewRequest("POST", smsPath, strings.NewReader(p.body))
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				r.Header.Set("X-Twilio-Signature", p.signature)
				r.Header.Set("User-Agent", "TwilioProxy/1.1")
				r.Header.Set("Accept", "*/*")
				w := httptest.NewRecorder()
				h.mux.ServeHTTP(w, r)
				if w.Code != 200 {
					b.Error(w.Code, w.Body)
				}
			}
		})
	}
	b.ReportAllocs()
	var ready []textRequest
	made, n := 0, 0
	used := -cpuTime(b)
	for b.Loop() {
		if len(ready) == 0 {
			b.StopTimer()
			used += cpuTime(b)
			ready = texts(made, 20_000)
			made += len(ready)
			used -= cpuTime(b)
			b.StartTimer()
		}
		posts <- ready[0]
		ready = ready[1:]
		n++
	}
	close(posts)
	clients.Wait()
	used += cpuTime(b)
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "accepted/s")
	b.ReportMetric(float64(used)/float64(n), "cpu-ns/op")
}

type textRequest struct{ body, signature string }

// texts returns n signed texts of a few thousand senders, different from all earlier ones.
func texts(from, n int) []textRequest {
	list := make([]textRequest, n)
	for i := range list {
		k := from + i
		form := url.Values{
			"MessageSid": {fmt.Sprintf("SM%032x", uint64(k)*0x9E3779B97F4A7C15)}, "AccountSid": {"AC" + strings.Repeat("0", 32)}, "NumMedia": {"0"},
			"From": {fmt.Sprintf("+1415%07d", 2000000+k%5000)}, "To": {ours}, "Body": {"The scooter at the station does not unlock."},
		}
		list[i] = textRequest{form.Encode(), sms.Sign(baseURL+smsPath, form, secretOf(ours))}
	}
	return list
}

// cpuTime returns the processor time of this process in nanoseconds.
func cpuTime(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
