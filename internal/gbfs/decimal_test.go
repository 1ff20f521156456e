package gbfs

import (
	"testing"

	"github.com/kickstand-dev/kickstand/internal/fleet"
)

func TestDecimal(t *testing.T) {
	for _, c := range []struct {
		amount int64
		digits int
		want   string
	}{
		{25, 2, "0.25"}, {130, 0, "130"}, {250, 3, "0.25"}, {1, 3, "0.001"}, {-5, 2, "-0.05"}, {0, 2, "0"}, {3500, 2, "35"}, {1050, 2, "10.5"},
		{9007199254740991, 2, "90071992547409.91"}, {7, 4, "0.0007"},
	} {
		if got := decimal(c.amount, c.digits); string(got) != c.want {
			t.Errorf("decimal(%d, %d) = %s, want %s", c.amount, c.digits, got, c.want)
		}
	}
}

func TestLanguage(t *testing.T) {
	for tag, want := range map[string]string{"en": "en", "de-DE": "de-DE", "zh-Hant-TW": "zh-TW", "sr-Latn": "sr", "": "en", "pt-BR": "pt-BR", "es-419": "es"} {
		o := &source{system: &fleet.System{Language: tag}}
		if got := o.language(); got != want {
			t.Errorf("%q is %q, want %q", tag, got, want)
		}
	}
}
