package developers

import (
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

func TestStrip(t *testing.T) {
	now := time.Date(2026, 11, 21, 10, 40, 0, 0, time.FixedZone("", 3600))
	at := func(h, m int) time.Time { return time.Date(2026, 11, 21, h, m, 0, 0, time.UTC) }
	counts := []webhook.Count{
		{At: at(-15, 30), Delivered: 9}, // before the 24 hours
		{At: at(8, 0), Delivered: 7},
		{At: at(9, 0), Delivered: 1, Retried: 1, Failed: 1},
		{At: at(9, 30), Delivered: 14, Failed: 14},
	}
	s := newDeliveryHistory(&web.Request{Now: now}, counts, false)
	if s.Width != 240 || s.Words != "22 delivered, 1 to retry, 15 failed" || s.Begin.Clock() != "11:00" || s.End.Clock() != "11:00" {
		t.Errorf("got %+v", s)
	}
	// 28 pixels for 28 attempts; at least 2.
	if want := "M222.5 32v-7M232.5 32v-2M237.5 32v-14"; s.Delivered != want {
		t.Errorf("delivered: got %s, want %s", s.Delivered, want)
	}
	if want := "M232.5 30v-2"; s.Retried != want {
		t.Errorf("retried: got %s, want %s", s.Retried, want)
	}
	if want := "M232.5 28v-2M237.5 18v-14"; s.Failed != want {
		t.Errorf("failed: got %s, want %s", s.Failed, want)
	}
	if len(s.Bars) != 3 || s.Bars[2] != (historyBar{235, 5, "10:30: 14 delivered, 14 failed"}) {
		t.Errorf("got bars %+v", s.Bars)
	}
	listed := newDeliveryHistory(&web.Request{Now: now}, counts, true)
	if listed.Width != 120 || listed.Bars != nil || listed.Words != "22 delivered, 1 to retry, 15 failed" || listed.Failed != "M117.5 17v-13" {
		t.Errorf("in a list: got %+v", listed)
	}
	if empty := newDeliveryHistory(&web.Request{Now: now}, nil, true); empty.Words != "no attempts" || empty.Delivered+empty.Retried+empty.Failed != "" {
		t.Errorf("of nothing: got %+v", empty)
	}
}
