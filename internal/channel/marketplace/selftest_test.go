package marketplace_test

import (
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/marketplace"
)

// TestSampleByTestKey: a sample verifies with the adapter of the test and not with that of the channel,
// whatever the topic's region.
func TestSampleByTestKey(t *testing.T) {
	now := time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)
	a := marketplace.New(shelf{})
	for _, topic := range []string{"arn:aws:sns:us-east-1:123456789012:orders", "arn:aws-cn:sns:cn-north-1:123456789012:orders"} {
		s := channel.Sample{URL: "https://help.example/api/marketplace/webhook?c=1", Address: topic, At: now}
		req, trial, err := a.SampleByTestKey(s)
		if err != nil {
			t.Fatal(err)
		}
		if !trial.Verify(req, marketplace.AnyTopic) || a.Verify(req, marketplace.AnyTopic) {
			t.Errorf("%s: verified by the test's adapter %t, by the channel's %t; want only the first", topic, trial.Verify(req, marketplace.AnyTopic), a.Verify(req, marketplace.AnyTopic))
		}
		if parts, err := trial.Split(req); err != nil || len(parts) != 1 || parts[0].Skip || parts[0].Address != topic {
			t.Errorf("%s: Split() = %+v, %v, want a part of the topic", topic, parts, err)
		}
	}
}
