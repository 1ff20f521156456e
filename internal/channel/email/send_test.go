package email

import (
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/mail"
)

// TestCheckSize composes the largest allowed mail with characters that need the most encoded
// bytes.
func TestCheckSize(t *testing.T) {
	m := &channel.Outgoing{
		From: "support@a.example", To: channel.Party{Email: "ana@c.example"}, Subject: "Re: Lost key", TicketNumber: 1,
		Text: strings.Repeat("\u00fc\n", 50_000), HTML: strings.Repeat("\u6f22", 500_000),
		Files: []channel.OutgoingFile{{Name: "a.bin", Size: mail.MaxSize}},
	}
	for (Writer{}).Check(m, channel.Credentials{}) != nil {
		m.Files[0].Size -= 4 << 10
	}
	m.Files[0].Data = make([]byte, m.Files[0].Size)
	if _, err := mail.Compose((Writer{}).Compose(m)); err != nil {
		t.Errorf("with a file of %d bytes: %v", m.Files[0].Size, err)
	}
}
