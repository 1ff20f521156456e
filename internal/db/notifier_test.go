package db_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestNotifier: pending notifications are sent before the database closes, and none is attempted
// afterwards.
func TestNotifier(t *testing.T) {
	if os.Getenv(dbtest.Variable) == "" {
		t.Skip("there is no server")
	}
	const channel = "kickstand_notifier_test"
	url := dbtest.URL(t)
	here, there := dbtest.Open(t, url), dbtest.Open(t, url)
	heard := make(chan string, 100)
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		there.Listen(t.Context(), channel, func(payload string) { heard <- payload })
	}()
	t.Cleanup(func() { <-listening })
	<-heard // it listens from here on

	notifier := here.NewNotifier(channel)
	want := make(map[string]bool)
	for i := range 50 {
		payload := strconv.Itoa(i)
		want[payload] = true
		if !notifier.Notify(payload) {
			t.Errorf("Tell(%s): refused", payload)
		}
	}
	if err := here.Close(); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		delete(want, <-heard)
	}
	if len(want) > 0 {
		t.Errorf("not told: %v", want)
	}
	if notifier.Notify("late") {
		t.Error("Tell on a closed database: taken")
	}
}
