package outbound_test

import (
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/connection"
)

func TestSendTrouble(t *testing.T) {
	r := newRig(t)
	sms := r.connect("sms", "+4930123456")
	if got := r.SendTrouble(&sms); got != "" {
		t.Errorf("a channel with credentials: %q", got)
	}
	mail := r.connect("email-raw", ourMail)
	if got := r.SendTrouble(&mail); got != "" {
		t.Errorf("mail: %q", got)
	}
	bare := r.connect("sms", "+4930123457", func(n *connection.New) { n.Credentials = nil })
	if got := r.SendTrouble(&bare); !strings.HasPrefix(got, "Replies cannot be sent: the connection of +4930123457 cannot send: its credentials need account_sid") || !strings.HasSuffix(got, ". Enter the missing credentials below.") {
		t.Errorf("without credentials: %q", got)
	}
}

func TestLimits(t *testing.T) {
	r := newRig(t)
	in := r.texts(r.connect("sms", "+4930123456"), "SM1", "+4915112345678", "Hello")
	options, err := r.desk.ReplyOptions(t.Context(), r.db, org, in.TicketID)
	if err != nil || len(options) != 1 {
		t.Fatalf("options %+v, %v", options, err)
	}
	l := options[0].Limits
	if l.Text != 1600 || !l.Parts || !strings.HasPrefix(l.Files, "at most 10 files of 5 MB together") {
		t.Errorf("limits %+v", l)
	}
}
