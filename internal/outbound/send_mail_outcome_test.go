package outbound

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/mail"
)

func TestMailOutcome(t *testing.T) {
	sent := channel.SendResult{Verdict: channel.VerdictSent}
	retry := func(reason string) channel.SendResult {
		return channel.SendResult{Verdict: channel.VerdictRetry, Reason: reason}
	}
	lost := &mail.Error{Op: mail.OpContent, Err: errors.New("EOF"), Temporary: true, Unclear: true}
	for _, c := range []struct {
		name    string
		id      string
		failure error
		attempt int
		repeats bool
		want    outcome
	}{
		{"sent", "", nil, 1, false, outcome{verdict: sent}},
		{"sent by an API", "m1", nil, 1, false, outcome{verdict: channel.SendResult{Verdict: channel.VerdictSent, ExternalIDs: []string{"m1"}}}},
		{"unclear", "", lost, 1, false, outcome{verdict: refusedVerdict(mayHaveArrived)}},
		{
			"unclear, can be repeated", "", lost, 1, true,
			outcome{verdict: channel.SendResult{Verdict: channel.VerdictUnclear, Reason: "the mail server did not accept the mail: EOF"}, wait: inFlightTime},
		},
		{
			"unclear, can be repeated later", "", lost, 5, true,
			outcome{verdict: channel.SendResult{Verdict: channel.VerdictUnclear, Reason: "the mail server did not accept the mail: EOF"}, wait: 5 * time.Minute},
		},
		{
			"unclear and permanent", "", &mail.Error{Op: mail.OpContent, Unclear: true}, 1, true,
			outcome{verdict: refusedVerdict(mayHaveArrived)},
		},
		{
			"throttled", "", &mail.Error{Op: mail.OpConnect, Code: 421, Text: "slow down", Temporary: true}, 1, false,
			outcome{verdict: retry("the mail server cannot be reached: 421 slow down"), wait: 5 * time.Minute, pause: time.Minute},
		},
		{
			"throttled by an API", "", &mail.Error{Op: mail.OpSender, Code: 429, API: true, Temporary: true, RetryAfter: time.Hour}, 1, false,
			outcome{verdict: retry("the delivery provider rejects our sender address: 429"), wait: time.Hour, pause: time.Hour},
		},
		{
			"unknown recipient", "", &mail.Error{Op: mail.OpRecipient, Recipient: "<ana@a.example>", Code: 550, EnhancedCode: "5.1.1", Text: "no"}, 1, false,
			outcome{
				verdict: channel.SendResult{
					Verdict: channel.VerdictRetry, Reason: "the mail server rejects mail for ana@a.example: 550 5.1.1 no", Recipient: "ana@a.example", Unreachable: true,
				}, giveUp: true,
			},
		},
		{
			"full mailbox", "", &mail.Error{Op: mail.OpRecipient, Recipient: "<ana@a.example>", Code: 552, EnhancedCode: "5.2.2", Text: "full"}, 1, false,
			outcome{
				verdict: channel.SendResult{
					Verdict: channel.VerdictRetry, Reason: "the mail server rejects mail for ana@a.example: 552 5.2.2 full", Recipient: "ana@a.example",
				}, giveUp: true,
			},
		},
		{"unknown failure", "", errors.New("boom"), 1, false, outcome{verdict: retry("the mail could not be sent"), wait: 5 * time.Minute}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := mailOutcome(c.id, c.failure, c.attempt, c.repeats); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}
