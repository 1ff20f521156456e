package desk_test

import (
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mailquote"
)

// TestAnswerText: only text above the quoted notice is sent, and none if that is in doubt.
func TestAnswerText(t *testing.T) {
	const intro = "On Thu, 26 Nov 2026 at 10:00, Kickstand <no-reply@help.example> wrote:\n"
	quote := "> " + desk.AnswerLine + "\n>\n> A secret note\n"
	for name, tt := range map[string]struct{ text, want string }{
		"above a quote":         {"We come at noon.\n\n" + intro + quote, "We come at noon."},
		"below a quote":         {intro + "\n" + quote + "\nWe come at noon.\n", ""},
		"within a quote":        {intro + quote + "\nWe come.\n\n> more\n", ""},
		"nothing but the quote": {intro + quote, ""},
		"above unmarked text":   {"We come at noon.\n\n" + desk.AnswerLine + "\n\nA secret note\n", "We come at noon."},
		"below unmarked text":   {desk.AnswerLine + "\n\nA secret note\n\nWe come.\n", ""},
		"a quote of other form": {"We come.\n\n" + intro + "> Write your\n> answer above\n> A secret note\n\nand more\n", ""},
		"no quote":              {"We come at noon.", "We come at noon."},
	} {
		m := &channel.Message{Text: tt.text, Subject: "Re: [Ticket #1] Flat tyre"}
		if stripped := mailquote.Strip(m.Text, m.Subject); stripped != m.Text {
			m.Stripped = stripped
		}
		if got, ok := desk.AnswerText(m); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: got %q, %v, want %q", name, got, ok, tt.want)
		}
	}
}
