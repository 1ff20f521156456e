package smtpd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/fairqueue"
	"github.com/kickstand-dev/kickstand/internal/mailparse"
	"github.com/kickstand-dev/kickstand/internal/telemetry"

	"blitiri.com.ar/go/spf"
	"golang.org/x/net/idna"
)

// Copy is the copy of a mail for a connection.
type Copy struct {
	Connection *connection.Connection
	Request    *channel.Request
}

// recipient is an accepted recipient.
type recipient struct {
	path       path
	address    string // in the form of connections
	connection *connection.Connection
}

// refusal is an answer that refuses a mail or a recipient.
type refusal struct {
	code         int
	status, text string
	reason       string // of metrics and of the audit log
}

func (r *refusal) Error() string { return r.text }

var (
	errUnknown  = &refusal{550, "5.1.1", "there is no such address here, and this server relays no mail", "unknown_recipient"}
	errUnproven = &refusal{450, "4.2.1", "the address is not in use yet, try again later", "unproven_recipient"}
	errDisabled = &refusal{450, "4.2.1", "the address is disabled, try again later", "disabled_recipient"}
	errLoop     = &refusal{554, "5.4.6", "the mail has passed too many servers: a loop", "loop"}
	errMoved    = &refusal{451, "4.3.0", "the address has changed, try again", "moved_recipient"}
	errCrowded  = &refusal{452, "4.3.1", "too many large mails at once, try again later", "memory"}
)

// route returns the connection that receives the mail to an address: the proven one at the address,
// else one whose proof covers the domain and whose aliases include it. Error: a [refusal], among
// others.
func (s *Service) route(ctx context.Context, to path) (recipient, error) {
	r := recipient{path: to}
	if strings.ContainsAny(to.local, `@%!"\`) { // routes of old relays
		return r, errUnknown
	}
	spellings := spellings(to)
	if len(spellings) == 0 {
		return r, errUnknown
	}
	r.address = spellings[0]
	at, err := s.Connections.FindByAddresses(ctx, "email", spellings)
	if err != nil {
		return r, err
	}
	i := slices.IndexFunc(at, (*connection.Connection).Proven)
	switch {
	case i >= 0 && at[i].Channel != email.DirectName:
		return r, errUnproven // the address has moved here, and its connection has not
	case i >= 0:
		r.connection = at[i]
	default:
		if r.connection, err = s.owner(ctx, spellings); err != nil {
			return r, err
		}
	}
	switch {
	case r.connection != nil && !r.connection.Enabled:
		return r, errDisabled
	case r.connection != nil:
		return r, nil
	case slices.ContainsFunc(at, func(c *connection.Connection) bool { return c.Channel == email.DirectName }):
		return r, errUnproven
	}
	return r, errUnknown
}

// owner returns the connection with an alias for an address, or nil. A single address precedes a
// whole domain.
func (s *Service) owner(ctx context.Context, spellings []string) (*connection.Connection, error) {
	_, domain, _ := strings.Cut(spellings[0], "@")
	list, err := s.Connections.FindByDomain(ctx, email.DirectName, domain)
	if err != nil {
		return nil, err
	}
	var whole *connection.Connection
	for _, c := range list {
		aliases := email.Aliases(c.Settings)
		single := slices.ContainsFunc(aliases, func(alias string) bool { return slices.Contains(spellings, alias) })
		all := slices.ContainsFunc(aliases, func(alias string) bool {
			return strings.HasPrefix(alias, "@") && slices.ContainsFunc(spellings, func(a string) bool { return strings.HasSuffix(a, alias) })
		})
		if !single && (!all || whole != nil) {
			continue
		}
		owns, err := s.Connections.OwnsDomain(ctx, c)
		if err != nil {
			return nil, err
		}
		switch {
		case owns && single:
			return c, nil
		case owns:
			whole = c
		}
	}
	return whole, nil
}

// spellings returns an address in the form of connections, with its domain in ASCII and in Unicode.
func spellings(to path) (list []string) {
	domains := []string{to.domain}
	if ascii, err := idna.Lookup.ToASCII(to.domain); err == nil {
		domains = append(domains, ascii)
	}
	if text, err := idna.Lookup.ToUnicode(to.domain); err == nil {
		domains = append(domains, text)
	}
	for _, domain := range domains {
		if a := email.Canonical(to.local + "@" + domain); a != "" && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

// outcome is the answer to a mail.
type outcome struct {
	code         int
	status, text string
	result       string // of the access log
	id           string
	organization string // if all copies are of one
}

// store stores a mail and answers it.
func (c *session) store(sp *spool) (o outcome, err error) {
	ctx, cancel := context.WithTimeout(c.storing, storeTime)
	defer cancel()
	if sp.size > spoolMemory {
		waiting, stop := context.WithTimeout(ctx, memoryWait)
		release, err := c.memory.Acquire(waiting, c.client, min(2*sp.size, maxEach), maxEach)
		stop()
		if errors.Is(err, fairqueue.ErrCrowded) || errors.Is(err, context.DeadlineExceeded) {
			return o, errCrowded
		}
		if err != nil {
			return o, err
		}
		defer release()
	}
	o.id = c.DB.NewID()
	now := c.DB.Now()
	trace := c.trace(o.id, now)
	body, err := sp.load(trace)
	if err != nil {
		return o, err
	}
	raw := body[len(trace):]
	if len(mailparse.Header(raw)["Received"]) > maxReceived {
		return o, errLoop
	}
	copies, err := c.copies(ctx, body, len(trace), now)
	if err != nil {
		return o, err
	}
	fresh, err := c.Journal.Deliver(ctx, copies)
	if err != nil {
		return o, err
	}
	o.code, o.status, o.text, o.result = 250, "2.0.0", "stored as "+o.id, "accepted"
	if fresh == 0 {
		o.result = "duplicate"
	}
	o.organization = copies[0].Connection.OrganizationID
	for _, one := range copies {
		if one.Connection.OrganizationID != o.organization {
			o.organization = ""
			break
		}
	}
	return o, nil
}

// copies returns the copies of a mail with its trace fields. Each names the recipients of its
// connection only: organizations do not see each other.
func (c *session) copies(ctx context.Context, body []byte, trace int, now time.Time) (list []Copy, err error) {
	result := c.spfResult()
	digest := sha256.Sum256(body[trace:])
	url := "smtp://" + c.Hostname + "/" + hex.EncodeToString(digest[:16])
	for _, to := range c.to {
		r, err := c.route(ctx, to.path) // a mail may take half an hour
		if _, refused := errors.AsType[*refusal](err); refused || err == nil && r.connection.ID != to.connection.ID {
			return nil, errMoved
		}
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(list, func(one Copy) bool { return one.Connection.ID == r.connection.ID })
		if i >= 0 {
			if h := list[i].Request.Header; !slices.Contains(h["X-Envelope-To"], r.address) {
				h["X-Envelope-To"] = append(h["X-Envelope-To"], r.address)
			}
			continue
		}
		header := email.DirectHeader(c.from.text, []string{r.address}, map[string]string{
			email.DirectClientHeader: c.clientText(), email.DirectHeloHeader: c.helo, email.DirectTLSHeader: c.secure,
			email.DirectSPFHeader: result.value, email.DirectSPFDomainHeader: result.domain, email.DirectTraceHeader: strconv.Itoa(trace),
		})
		list = append(list, Copy{r.connection, &channel.Request{Method: http.MethodPost, URL: url, Header: header, Body: body, Received: now}})
	}
	return list, nil
}

// trace returns the fields that the receiving server adds (RFC 5321, 4.4). They name no recipient.
func (c *session) trace(id string, now time.Time) string {
	protocol := "SMTP"
	if c.esmtp {
		protocol = "ESMTP"
	}
	if c.utf8 {
		protocol = "UTF8SMTP"
	}
	secure := ""
	if c.secure != "" {
		protocol += "S"
		secure = "\r\n\t(" + c.secure + ")"
	}
	from := c.clientText()
	if c.address.Is6() {
		from = "IPv6:" + from
	}
	return fmt.Sprintf("Return-Path: <%s>\r\nReceived: from %s ([%s])%s\r\n\tby %s with %s id %s;\r\n\t%s\r\n",
		c.from.text, hostText(c.helo), from, secure, c.Hostname, protocol, id, now.UTC().Format("Mon, 2 Jan 2006 15:04:05 -0700"))
}

// clientText returns the address of the client; "unknown" if the connection has none.
func (c *session) clientText() string {
	if !c.address.IsValid() {
		return "unknown"
	}
	return c.address.String()
}

// hostText returns a host name of a client, or "unknown" if it could be mistaken for other parts of
// a field.
func hostText(name string) string {
	odd := strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._:[]", r)
	})
	if odd || name == "" {
		return "unknown"
	}
	return name
}

// spfResult is the result of SPF.
type spfResult struct{ value, domain string }

// startSPF evaluates SPF while the mail arrives.
func (c *session) startSPF() {
	if c.Resolver == nil || !c.address.IsValid() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), spfTime)
	done := make(chan spfResult, 1)
	c.cancel, c.spf, c.late = cancel, done, ctx.Done()
	client, helo, from, resolver := net.IP(c.address.AsSlice()), c.helo, c.from, c.Resolver
	go func() {
		defer cancel()
		r := spfResult{"temperror", from.domain}
		defer func() {
			if v := recover(); v != nil { // a record of anybody's has led to it
				c.Logger.Error("panic in the evaluation of SPF", "domain", r.domain, "panic", v, "stack", string(debug.Stack()))
			}
			done <- r
		}()
		local := from.local
		if from.domain == "" { // RFC 7208, 2.4
			local, r.domain = "postmaster", strings.TrimSuffix(helo, ".")
		}
		if strings.Contains(local, "@") {
			local = "unknown"
		}
		if ascii, err := idna.Lookup.ToASCII(r.domain); err == nil {
			r.domain = ascii
		}
		if !strings.Contains(r.domain, ".") || strings.ContainsAny(r.domain, "[]:") {
			r.value = string(spf.None)
			return
		}
		result, _ := spf.CheckHostWithSender(client, helo, local+"@"+r.domain, spf.WithContext(ctx), spf.WithResolver(resolver))
		if ctx.Err() == nil || result == spf.Pass {
			r.value = string(result)
		}
	}()
}

// spfResult waits for the result of SPF. The zero value means that it was not evaluated.
func (c *session) spfResult() spfResult {
	if c.spf == nil {
		return spfResult{}
	}
	select {
	case r := <-c.spf:
		return r
	case <-c.late: // the result, if there is one, came before
	}
	select {
	case r := <-c.spf:
		return r
	default:
		return spfResult{"temperror", ""}
	}
}

// record counts a mail and writes its line of the access log.
func (c *session) record(o outcome, size int64, took time.Duration) {
	if c.Metrics != nil {
		c.Metrics.SMTPMail(o.result, took)
	}
	if c.Access != nil {
		c.Access.Mail(telemetry.Mail{ID: o.id, Status: o.code, Result: o.result, Bytes: size, Recipients: len(c.to), TLS: c.secure, Took: took, Organization: o.organization})
	}
}
