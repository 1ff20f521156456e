package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/fleet"
)

// TestCrashTelemetry kills the server at random times while trackers report. Each report of an
// acknowledged request is in the track of its vehicle, and every report is there at most once.
func TestCrashTelemetry(t *testing.T) {
	kills := 10
	if testing.Short() {
		kills = 3
	}
	p := newPatient(t)
	p.command("org", "create", "--name=Crash", "--plan=business")
	p.command("fleet", "seed", "--org=crash", "--environment=live")
	var key struct{ Key string }
	command(t, &key, append([]string{"key", "create", "--org=crash", "--service=fleet", "--environment=live", "--name=Gateway", "--level=read_write"}, p.args...)...)
	p.start()
	send := func(method, path, body string) (status int, answer []byte) {
		r, err := http.NewRequestWithContext(t.Context(), method, p.url+"/v1"+path, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0, nil
		}
		r.Header.Set("Authorization", "Bearer "+key.Key)
		r.Header.Set("Content-Type", "application/x-ndjson")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, nil
		}
		defer resp.Body.Close()
		answer, err = io.ReadAll(resp.Body)
		if err != nil {
			return 0, nil
		}
		return resp.StatusCode, answer
	}
	var list struct{ Data []fleet.Vehicle }
	if _, answer := send("GET", "/vehicles?limit=3", ""); json.Unmarshal(answer, &list) != nil || len(list.Data) != 3 {
		t.Fatalf("got vehicles %s", answer)
	}

	start := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	stop := make(chan struct{})
	sent := make([]int, len(list.Data)) // acknowledged reports by vehicle, a second apart
	var trackers sync.WaitGroup
	for i, v := range list.Data {
		trackers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var body strings.Builder
				for n := range 10 {
					fmt.Fprintf(&body, `{"vehicle":{"id":"%s"},"reported_at":"%s","location":{"lat":52.5,"lng":13.4}}`+"\n", v.ID, start.Add(time.Duration(sent[i]+n)*time.Second).Format(time.RFC3339))
				}
				for { // as a gateway: until there is an answer
					if status, _ := send("POST", "/telemetry", body.String()); status == 200 {
						break
					} else if status == 429 || t.Context().Err() != nil {
						return
					}
					pause(10 * time.Millisecond)
				}
				sent[i] += 10
				pause(20 * time.Millisecond)
			}
		})
	}
	for range kills {
		pause(time.Duration(rand.Int64N(int64(250 * time.Millisecond)))) // deliberately random
		p.kill()
		p.start()
	}
	close(stop)
	trackers.Wait()

	for i, v := range list.Data {
		status, answer := send("GET", "/vehicles/"+v.ID+"/track?from="+start.Format(time.RFC3339), "")
		var got struct{ Points []struct{ At time.Time } }
		if err := json.Unmarshal(answer, &got); status != 200 || err != nil {
			t.Fatalf("got %d %.200s, %v", status, answer, err)
		}
		if sent[i] == 0 || len(got.Points) != sent[i] {
			t.Errorf("vehicle %d: the track has %d reports of %d", i, len(got.Points), sent[i])
		}
		for n, point := range got.Points {
			if !point.At.Equal(start.Add(time.Duration(n) * time.Second)) {
				t.Errorf("vehicle %d: report %d is of %s", i, n, point.At)
				break
			}
		}
	}
	t.Logf("%d kills, %v reports", kills, sent)
}
