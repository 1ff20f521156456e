package rfc3339

import (
	"encoding/json"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for s, want := range map[string]string{
		"2026-03-14T09:26:53Z":           "2026-03-14T09:26:53Z",
		"2026-03-14T10:26:53.123+01:00":  "2026-03-14T09:26:53.123Z",
		"2026-03-14T09:26:53.123456789Z": "2026-03-14T09:26:53.123456789Z",
		"2024-02-29T00:00:00-23:59":      "2024-02-29T23:59:00Z",
		"":                               "", "2026-03-14": "", "2026-03-14T09:26:53": "", "2026-03-14T9:26:53Z": "", "2026-03-14T09:26:53,5Z": "",
		"2026-02-29T00:00:00Z": "", "2026-03-14T24:00:00Z": "", "2026-03-14 09:26:53Z": "", "2026-03-14T09:26:53+24:00": "", "2026-03-14T09:26:53Z ": "",
		"9999-12-31T23:59:59Z": "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-00:01": "", "0000-01-01T00:00:00Z": "0000-01-01T00:00:00Z", "0000-01-01T00:00:00+00:01": "",
	} {
		got, err := Parse(s)
		if (err != nil) != (want == "") || err == nil && got.Format(time.RFC3339Nano) != want {
			t.Errorf("%q: got %v, %v, want %q", s, got, err, want)
		}
	}
}

func TestJSON(t *testing.T) {
	for in, want := range map[string]string{
		`"2026-03-14T10:26:53.1239+01:00"`: `"2026-03-14T09:26:53.123Z"`,
		`"0001-01-01T00:00:00.001Z"`:       `"0001-01-01T00:00:00.001Z"`,
		`null`:                             `null`,
	} {
		got := Time(time.Now())
		if err := json.Unmarshal([]byte(in), &got); err != nil {
			t.Fatalf("%s: %v", in, err)
		}
		text, err := json.Marshal(got)
		if err != nil || string(text) != want {
			t.Errorf("%s: got %s, %v, want %s", in, text, err, want)
		}
	}
	var got Time
	if err := json.Unmarshal([]byte(`"yesterday"`), &got); err == nil {
		t.Errorf("a word is taken as %v", got.Std())
	}
}
