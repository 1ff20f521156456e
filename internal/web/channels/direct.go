package channels

import (
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// offered returns the guides of the channels that can be connected on this server.
func (p *pages) offered() []guide {
	if p.MailHost != "" {
		return guides
	}
	return slices.DeleteFunc(slices.Clone(guides), func(g guide) bool { return g.Name == email.DirectName })
}

// mailRecords returns the DNS record that leads the mail of a connection's domain here; without a
// connection, of an example.
func (p *pages) mailRecords(c *connection.Connection) []web.Code {
	if p.MailHost == "" {
		return []web.Code{{Label: "This server receives no mail", Text: "KICKSTAND_SMTP_LISTEN=:25"}}
	}
	domain := "example.com"
	if c != nil {
		domain = c.Address[strings.LastIndexByte(c.Address, '@')+1:]
	}
	return []web.Code{{Label: "MX record", Text: domain + ". MX 10 " + p.MailHost + "."}}
}
