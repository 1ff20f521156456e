package mail_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"
)

// Characters that need encoding in the URL.
const user, password = "desk@rentals.example", "p/a:s?s#w@rd %"

func open(t *testing.T, server *mailtest.Server, parameters string) *mail.SMTP {
	t.Helper()
	s, err := mail.OpenSMTP(server.URL + parameters)
	if err != nil {
		t.Fatal(err)
	}
	s.TLS = server.ClientTLS
	return s
}

func message() mail.Message {
	return mail.Message{
		From:    mail.Address{Address: "desk@rentals.example"},
		To:      []mail.Address{{Address: "a@example.com"}, {Address: "b@example.com"}},
		Subject: "Your bike",
		Text:    "It is ready.",
	}
}

func TestSMTPConformance(t *testing.T) {
	tests := []struct {
		name   string
		config mailtest.ServerConfig
	}{
		{"plain", mailtest.ServerConfig{}},
		{"STARTTLS", mailtest.ServerConfig{StartTLS: true, User: user, Password: password}},
		{"implicit TLS", mailtest.ServerConfig{ImplicitTLS: true, User: user, Password: password, UTF8: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			mailtest.Run(t, func(t *testing.T) mailtest.Fixture {
				server := mailtest.NewServer(t, tt.config)
				return mailtest.Fixture{Sender: open(t, server, ""), Received: server.Received}
			})
		})
	}
}

func TestSMTPSecurity(t *testing.T) {
	tests := []struct {
		name       string
		config     mailtest.ServerConfig
		parameters string
		tls        bool
		user       string
		op         mail.Op // expected error, or empty
		says       string
	}{
		{name: "nothing offered, nothing wanted"},
		{name: "STARTTLS is used when offered", config: mailtest.ServerConfig{StartTLS: true}, tls: true},
		{name: "STARTTLS required and offered", config: mailtest.ServerConfig{StartTLS: true}, parameters: "?tls=required", tls: true},
		{
			name: "STARTTLS required and not offered", parameters: "?tls=required",
			op: mail.OpTLS, says: "does not offer STARTTLS",
		},
		{name: "implicit TLS", config: mailtest.ServerConfig{ImplicitTLS: true}, tls: true},
		{name: "implicit TLS and required", config: mailtest.ServerConfig{ImplicitTLS: true}, parameters: "?tls=required", tls: true},
		{name: "login on loopback without TLS", config: mailtest.ServerConfig{User: user, Password: password}, user: user},
		{name: "login over STARTTLS", config: mailtest.ServerConfig{StartTLS: true, User: user, Password: password}, tls: true, user: user},
		{name: "login by LOGIN", config: mailtest.ServerConfig{StartTLS: true, User: user, Password: password, LoginOnly: true}, tls: true, user: user},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := mailtest.NewServer(t, tt.config)
			err := open(t, server, tt.parameters).Send(t.Context(), message())
			if tt.op != "" {
				wantError(t, err, mail.Error{Op: tt.op, Temporary: true}, tt.says)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := server.Deliveries()
			if len(got) != 1 || got[0].TLS != tt.tls || got[0].User != tt.user {
				t.Errorf("deliveries are %+v, want one with TLS %v of user %q", got, tt.tls, tt.user)
			}
		})
	}
}

func TestSMTPChecksCertificates(t *testing.T) {
	for _, config := range []mailtest.ServerConfig{{StartTLS: true}, {ImplicitTLS: true}} {
		server := mailtest.NewServer(t, config)
		s := open(t, server, "")
		s.TLS = nil
		err := s.Send(t.Context(), message())
		wantError(t, err, mail.Error{Op: mail.OpTLS, Temporary: true}, "certificate")
		if got := server.Deliveries(); len(got) != 0 {
			t.Errorf("%+v: delivered without a trusted certificate", config)
		}
	}
}

func TestSMTPReplies(t *testing.T) {
	refuse := func(command string, code int, enhanced smtp.EnhancedCode, text string) func(string) *smtp.SMTPError {
		return func(got string) *smtp.SMTPError {
			if got != command {
				return nil
			}
			return &smtp.SMTPError{Code: code, EnhancedCode: enhanced, Message: text}
		}
	}
	tests := []struct {
		name   string
		config mailtest.ServerConfig
		want   mail.Error
		says   string
	}{
		{
			"login refused", mailtest.ServerConfig{User: user, Password: "another"},
			mail.Error{Op: mail.OpLogin, Code: 535, EnhancedCode: "5.7.8"}, "535 5.7.8 Authentication failed",
		},
		{
			"login refused for now",
			mailtest.ServerConfig{User: user, Password: password, Refuse: refuse("AUTH "+user, 454, smtp.EnhancedCode{4, 7, 0}, "try later")},
			mail.Error{Op: mail.OpLogin, Code: 454, EnhancedCode: "4.7.0", Temporary: true}, "454 4.7.0 try later",
		},
		{
			"sender refused",
			mailtest.ServerConfig{Refuse: refuse("MAIL desk@rentals.example", 550, smtp.EnhancedCode{5, 7, 1}, "not your address")},
			mail.Error{Op: mail.OpSender, Code: 550, EnhancedCode: "5.7.1"}, "550 5.7.1 not your address",
		},
		{
			"second recipient refused",
			mailtest.ServerConfig{Refuse: refuse("RCPT b@example.com", 550, smtp.EnhancedCode{5, 1, 1}, "no such user")},
			mail.Error{Op: mail.OpRecipient, Recipient: "<b@example.com>", Code: 550, EnhancedCode: "5.1.1"},
			"name recipient <b@example.com> at 127.0.0.1:",
		},
		{
			"recipient greylisted",
			mailtest.ServerConfig{Refuse: refuse("RCPT a@example.com", 450, smtp.EnhancedCode{4, 2, 0}, "greylisted")},
			mail.Error{Op: mail.OpRecipient, Recipient: "<a@example.com>", Code: 450, EnhancedCode: "4.2.0", Temporary: true}, "greylisted",
		},
		{
			"content refused",
			mailtest.ServerConfig{Refuse: refuse("DATA", 554, smtp.NoEnhancedCode, "looks like spam")},
			mail.Error{Op: mail.OpContent, Code: 554}, ": 554 looks like spam",
		},
		{
			"content refused for now, in several lines",
			mailtest.ServerConfig{Refuse: refuse("DATA", 451, smtp.EnhancedCode{4, 3, 0}, "no room\nat all")},
			mail.Error{Op: mail.OpContent, Code: 451, EnhancedCode: "4.3.0", Temporary: true}, "451 4.3.0 no room at all",
		},
		{
			"over the server's size", mailtest.ServerConfig{MaxBytes: 100},
			mail.Error{Op: mail.OpContent}, "over the server's limit of 100",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := mailtest.NewServer(t, tt.config)
			s := open(t, server, "")
			if tt.config.Password == "another" {
				s, _ = mail.OpenSMTP(strings.Replace(server.URL, "another", "wrong", 1))
			}
			err := s.Send(t.Context(), message())
			wantError(t, err, tt.want, tt.says)
			if got := server.Deliveries(); len(got) != 0 {
				t.Errorf("delivered all the same: %+v", got)
			}
		})
	}
}

func TestSMTPUTF8OnlyWhenNeeded(t *testing.T) {
	tests := []struct {
		name, to string
		offered  bool
		want     bool // delivered, and with SMTPUTF8
		err      string
	}{
		{"ASCII address", "a@example.com", true, false, ""},
		{"other address", "jürgen@example.com", true, true, ""},
		{"other address, not offered", "jürgen@example.com", false, false, "does not offer SMTPUTF8"},
		{"other domain, not offered", "a@bücher.example", false, false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := mailtest.NewServer(t, mailtest.ServerConfig{UTF8: tt.offered})
			m := message()
			m.To = []mail.Address{{Address: tt.to}}
			err := open(t, server, "").Send(t.Context(), m)
			if tt.err != "" {
				wantError(t, err, mail.Error{Op: mail.OpRecipient, Recipient: "<jürgen@example.com>"}, tt.err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := server.Deliveries(); len(got) != 1 || got[0].UTF8 != tt.want {
				t.Errorf("deliveries are %+v, want one with SMTPUTF8 %v", got, tt.want)
			}
		})
	}
}

func TestSMTPCheck(t *testing.T) {
	server := mailtest.NewServer(t, mailtest.ServerConfig{StartTLS: true, User: user, Password: password})
	s := open(t, server, "?tls=required")
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if got := server.Deliveries(); len(got) != 0 {
		t.Errorf("Check delivered %+v", got)
	}
	s.TLS = nil
	wantError(t, s.Check(t.Context()), mail.Error{Op: mail.OpTLS, Temporary: true}, "certificate")
}

func TestSMTPNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	s, err := mail.OpenSMTP("smtp://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, s.Send(t.Context(), message()), mail.Error{Op: mail.OpConnect, Temporary: true}, "refused")
}

// script is a server that sends each reply after reading the lines of its command, and then
// calls end.
func script(replies []string, end func(net.Conn)) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			r := bufio.NewReader(server)
			for i, reply := range replies {
				if i > 0 {
					if _, err := r.ReadString('\n'); err != nil {
						return
					}
				}
				io.WriteString(server, reply+"\r\n")
			}
			end(server)
		}()
		return client, nil
	}
}

func readAll(conn net.Conn) { io.Copy(io.Discard, conn) }

func hangUp(net.Conn) {}

// session is a complete dialog up to the message itself.
var session = []string{"220 mail.test", "250 mail.test", "250 ok", "250 ok", "250 ok", "354 go on"}

func TestSMTPHangingServer(t *testing.T) {
	for n := range len(session) + 1 {
		t.Run(fmt.Sprint("after reply ", n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := mail.OpenSMTP("smtp://mail.test")
				if err != nil {
					t.Fatal(err)
				}
				s.Dial = script(session[:n], readAll)

				start := time.Now()
				err = s.Send(t.Context(), message())
				want := 30 * time.Second
				if n == len(session) { // the server reads the message
					want = 5 * time.Minute
				}
				if got := time.Since(start); got != want {
					t.Errorf("gave up after %v, want %v", got, want)
				}
				if e, ok := errors.AsType[*mail.Error](err); !ok || !e.Temporary || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error is %v, want a temporary context.DeadlineExceeded", err)
				}

				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				start = time.Now()
				err = s.Send(ctx, message())
				if got := time.Since(start); got != 3*time.Second || !mail.Temporary(err) {
					t.Errorf("gave up after %v with %v, want 3s and a temporary error", got, err)
				}
			})
		})
	}
}

func TestSMTPServerThatDrops(t *testing.T) {
	for n := range len(session) + 1 {
		t.Run(fmt.Sprint("after reply ", n), func(t *testing.T) {
			s, err := mail.OpenSMTP("smtp://mail.test")
			if err != nil {
				t.Fatal(err)
			}
			s.Dial = script(session[:n], hangUp)
			err = s.Send(t.Context(), message())
			if e, ok := errors.AsType[*mail.Error](err); !ok || !e.Temporary || e.Code != 0 {
				t.Errorf("error is %v, want a temporary one without a code", err)
			}
		})
	}
}

// TestSMTPSlowGoodbye: a server that accepts the message and then does not answer QUIT has
// accepted it.
func TestSMTPSlowGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := mail.OpenSMTP("smtp://mail.test")
		if err != nil {
			t.Fatal(err)
		}
		s.Dial = script(session, func(conn net.Conn) {
			r := bufio.NewReader(conn)
			for line := ""; line != ".\r\n"; {
				if line, err = r.ReadString('\n'); err != nil {
					return
				}
			}
			io.WriteString(conn, "250 taken\r\n")
			io.Copy(io.Discard, r)
		})
		start := time.Now()
		if err := s.Send(t.Context(), message()); err != nil {
			t.Errorf("Send: %v", err)
		}
		if got := time.Since(start); got > 2*time.Second {
			t.Errorf("Send waited %v for the goodbye", got)
		}
	})
}

func TestSMTPGreetings(t *testing.T) {
	tests := []struct {
		replies []string
		want    mail.Error
		says    string
	}{
		{[]string{"421 4.3.2 too busy"}, mail.Error{Op: mail.OpConnect, Code: 421, EnhancedCode: "4.3.2", Temporary: true}, "421 4.3.2 too busy"},
		{[]string{"554 go away"}, mail.Error{Op: mail.OpConnect, Code: 554}, "554 go away"},
		{[]string{"hello there"}, mail.Error{Op: mail.OpConnect, Temporary: true}, "hello there"},
		{[]string{"220 hi", "421 closing"}, mail.Error{Op: mail.OpConnect, Code: 421, Temporary: true}, "421 closing"},
		{[]string{"220 hi", "250 mail.test", "452 \x1b[31m4.5.3"}, mail.Error{Op: mail.OpSender, Code: 452, Temporary: true}, "452  [31m4.5.3"},
		{
			[]string{"220 hi", "250-mail.test\r\n250 STARTTLS", "454 4.7.0 no TLS now"},
			mail.Error{Op: mail.OpTLS, Code: 454, EnhancedCode: "4.7.0", Temporary: true}, "no TLS now",
		},
	}
	for _, tt := range tests {
		t.Run(tt.says, func(t *testing.T) {
			s, err := mail.OpenSMTP("smtp://mail.test")
			if err != nil {
				t.Fatal(err)
			}
			s.Dial = script(tt.replies, hangUp)
			wantError(t, s.Send(t.Context(), message()), tt.want, tt.says)
		})
	}
}

// TestSMTPKeepsPasswordFromPlainConnections: the pipe is no loopback address, so the server
// must see nothing but the EHLO.
func TestSMTPKeepsPasswordFromPlainConnections(t *testing.T) {
	s, err := mail.OpenSMTP("smtp://user:secret-word@mail.test")
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 1)
	s.Dial = script([]string{"220 hi", "250-mail.test\r\n250 AUTH PLAIN LOGIN"}, func(conn net.Conn) {
		rest, _ := io.ReadAll(conn)
		heard <- string(rest)
	})
	err = s.Send(t.Context(), message())
	wantError(t, err, mail.Error{Op: mail.OpLogin, Temporary: true}, "not sending the password over a connection without TLS")
	if got := <-heard; got != "" {
		t.Errorf("the server was told %q", got)
	}
}

func TestSMTPPasswordNeverShows(t *testing.T) {
	const secret = "hunter2-hunter2"
	s, err := mail.OpenSMTP("smtp://user:" + secret + "@mail.test:25?tls=required")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.String(), "smtp://user@mail.test:25?tls=required"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d"} {
		if got := fmt.Sprintf(verb, s); strings.Contains(got, secret) {
			t.Errorf("%s prints %s", verb, got)
		}
		if got := fmt.Sprintf(verb, *s); strings.Contains(got, secret) {
			t.Errorf("%s of the value prints %s", verb, got)
		}
	}

	// A server that repeats commands, on a loopback address so that it gets the login.
	for _, reply := range []string{"535 5.7.8 bad command: %s", "what is %s?"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan string, 1)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				done <- ""
				return
			}
			defer conn.Close()
			r := bufio.NewReader(conn)
			io.WriteString(conn, "220 hi\r\n")
			r.ReadString('\n')
			io.WriteString(conn, "250-mail.test\r\n250 AUTH PLAIN\r\n")
			line, _ := r.ReadString('\n')
			fmt.Fprintf(conn, reply+"\r\n", strings.TrimSpace(line)+" "+secret)
			done <- line
		}()
		s, err = mail.OpenSMTP("smtp://user:" + secret + "@" + l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		err = s.Send(t.Context(), message())
		line := <-done
		l.Close()
		_, credentials, ok := strings.Cut(strings.TrimSpace(line), "AUTH PLAIN ")
		if !ok || credentials == "" {
			t.Fatalf("the server was told %q, want credentials", line)
		}
		if err == nil || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), credentials) {
			t.Errorf("error is %v, want one without the password", err)
		}
		if !strings.Contains(fmt.Sprint(err), "[redacted]") {
			t.Errorf("error is %v, want what the server said", err)
		}
	}
}

func TestOpenSMTP(t *testing.T) {
	tests := []struct{ url, want string }{
		{"smtp://mail.example.com", "smtp://mail.example.com:587"},
		{"smtp://mail.example.com/", "smtp://mail.example.com:587"},
		{"smtps://mail.example.com", "smtps://mail.example.com:465"},
		{"smtp://mail.example.com:25", "smtp://mail.example.com:25"},
		{"smtp://[::1]:2525", "smtp://[::1]:2525"},
		{"SMTP://mail.example.com", "smtp://mail.example.com:587"},
		{"smtp://a%40b:p%2Fw@mail.example.com?tls=required&ehlo=me.example.com", "smtp://a%40b@mail.example.com:587?tls=required"},
	}
	for _, tt := range tests {
		s, err := mail.OpenSMTP(tt.url)
		if err != nil {
			t.Errorf("OpenSMTP(%q): %v", tt.url, err)
			continue
		}
		if got := s.String(); got != tt.want {
			t.Errorf("OpenSMTP(%q) is %q, want %q", tt.url, got, tt.want)
		}
	}
	s, err := mail.OpenSMTP("smtp://mail.example.com?ehlo=me.example.com")
	if err != nil || s.LocalName != "me.example.com" {
		t.Errorf("local name is %q, error %v; want me.example.com", s.LocalName, err)
	}
}

func TestOpenSMTPRefuses(t *testing.T) {
	tests := []struct{ url, says string }{
		{"", "smtp:// or smtps://"},
		{"mail.example.com:587", "smtp:// or smtps://"},
		{"http://mail.example.com", "smtp:// or smtps://"},
		{"smtp://", "no host"},
		{"smtp://:587", "no host"},
		{"smtp:mail.example.com", "no host"},
		{"smtp://mail.example.com:0", "port"},
		{"smtp://mail.example.com:70000", "port"},
		{"smtp://user@mail.example.com", "both user and password"},
		{"smtp://:hunter2@mail.example.com", "both user and password"},
		{"smtp://mail.example.com?tls=no", "parameter"},
		{"smtp://mail.example.com?tls=required&tls=no", "parameter"},
		{"smtp://mail.example.com?ehlo=a%0D%0Ab", "parameter"},
		// Passwords with characters that should have been encoded.
		{"smtp://user:hunter2/x@mail.example.com", "malformed"},
		{"smtp://user:77/hunter2@mail.example.com", "percent-encode"},
		{"smtp://user:77#hunter2@mail.example.com", "percent-encode"},
		{"smtp://user:77?hunter2@mail.example.com", "parameter"},
		{"smtp://user:hunter2%@mail.example.com", "malformed"},
		{"smtp://user:hunter2 x@mail.example.com", "malformed"},
		{"smtp://user:77?hunter2%zz@mail.example.com", "malformed"},
	}
	for _, tt := range tests {
		s, err := mail.OpenSMTP(tt.url)
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("OpenSMTP(%q) = %v, %v; want an error about %q", tt.url, s, err, tt.says)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("OpenSMTP(%q) shows the password: %v", tt.url, err)
		}
	}
}

func TestTemporary(t *testing.T) {
	tests := []struct {
		err  error
		want bool
	}{
		{nil, false},
		{os.ErrDeadlineExceeded, true},
		{&mail.Error{Temporary: true}, true},
		{&mail.Error{}, false},
		{fmt.Errorf("wrapped: %w", &mail.Error{}), false},
	}
	for _, tt := range tests {
		if got := mail.Temporary(tt.err); got != tt.want {
			t.Errorf("Temporary(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}

// wantError compares all fields of want except texts, and searches the error's message for
// says.
func wantError(t *testing.T, err error, want mail.Error, says string) {
	t.Helper()
	e, ok := errors.AsType[*mail.Error](err)
	if !ok {
		t.Fatalf("error is %v, want a *mail.Error", err)
	}
	got := mail.Error{Op: e.Op, Recipient: e.Recipient, Code: e.Code, EnhancedCode: e.EnhancedCode, Temporary: e.Temporary}
	if got != want {
		t.Errorf("error is %+v, want %+v", got, want)
	}
	if !strings.Contains(err.Error(), says) {
		t.Errorf("error is %q, want it to say %q", err, says)
	}
}

func inBubble(t *testing.T, name string, f func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// TestSMTPUnclear breaks the connection around the end of the content: acceptance is in doubt
// only after all of it was sent.
func TestSMTPUnclear(t *testing.T) {
	for _, tt := range []struct {
		name    string
		until   string // the last line that the server reads
		answer  string // its reply to the content
		slow    time.Duration
		sent    bool
		unclear bool
	}{
		{"before the content", "DATA", "", 0, false, false},
		{"after the content", ".", "", 0, false, true},
		{"no to the content", ".", "554 5.6.0 no", 0, false, false},
		{"later to the content", ".", "451 4.3.0 later", 0, false, false},
		{"yes, after a look at it", ".", "250 2.0.0 yes", 4 * time.Minute, true, false},
		{"yes, too late", ".", "250 2.0.0 yes", 6 * time.Minute, false, true},
		{"another yes", ".", "252 2.0.0 yes", 0, true, false},
		{"nonsense", ".", "354 go on", 0, false, true},
		{"slow to begin", "DATA", "354 go on", time.Minute, false, false},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			client, server := net.Pipe()
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer server.Close()
				in := bufio.NewReader(server)
				say := func(s string) { io.WriteString(server, s+"\r\n") }
				say("220 mail.test")
				content := false
				for {
					line, err := in.ReadString('\n')
					line = strings.TrimSpace(line)
					if err != nil {
						return
					}
					if line == tt.until {
						time.Sleep(tt.slow)
						if tt.answer != "" {
							say(tt.answer)
							continue
						}
						return
					}
					switch {
					case line == "DATA":
						content = true
						say("354 go on")
					case !content:
						say("250 ok")
					}
				}
			}()
			s, err := mail.OpenSMTP("smtp://mail.test")
			if err != nil {
				t.Fatal(err)
			}
			s.Dial = func(context.Context, string, string) (net.Conn, error) { return client, nil }
			handed := 0
			_, err = s.SendTracked(t.Context(), mail.Message{
				From: mail.Address{Address: "a@a.example"}, To: []mail.Address{{Address: "b@b.example"}}, Text: "Hello",
			}, func() error { handed++; return nil })
			e, ok := errors.AsType[*mail.Error](err)
			if tt.sent != (err == nil) || err != nil && (!ok || e.Unclear != tt.unclear || e.Op != mail.OpContent) {
				t.Errorf("Carry returned %#v; want sent %t, or one of %q with unclear %t", err, tt.sent, mail.OpContent, tt.unclear)
			}
			if want := 2 * min(1, strings.Count(tt.until, ".")); handed != want {
				t.Errorf("handed over %d times, want %d", handed, want)
			}
			<-done
		})
	}
}

// TestSMTPEndlessReply: a server that sends without end uses little memory.
func TestSMTPEndlessReply(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	sent := make(chan int)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		n := 0
		for err == nil && n < 64<<20 {
			var part int
			part, err = io.WriteString(conn, strings.Repeat("2", 64<<10))
			n += part
		}
		sent <- n
	}()
	s, err := mail.OpenSMTP("smtp://" + ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "the server sends too much") {
		t.Errorf("got %v", err)
	}
	if n := <-sent; n == 64<<20 {
		t.Errorf("%d bytes were read", n)
	}
}

// TestSMTPTokenNeverShows: a server that quotes the login by token reveals it to nobody.
func TestSMTPTokenNeverShows(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	secret := strings.Repeat("ya29.a0AfB_byC", 60)
	go func() {
		defer far.Close()
		in := bufio.NewReader(far)
		io.WriteString(far, "220 hello\r\n")
		for {
			line, err := in.ReadString('\n')
			switch {
			case err != nil:
				return
			case strings.HasPrefix(line, "EHLO"):
				io.WriteString(far, "250-hello\r\n250 AUTH XOAUTH2\r\n")
			default:
				io.WriteString(far, "500 unknown: "+line)
			}
		}
	}()
	s, err := mail.OpenSMTP("smtp://127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	s.UseToken("help@acme.example", func(context.Context) (string, error) { return secret, nil })
	s.Dial = func(context.Context, string, string) (net.Conn, error) { return localConn{near}, nil }
	err = s.Check(t.Context())
	if err == nil || !strings.Contains(err.Error(), "[redacted]") || strings.Contains(err.Error(), "dXNlcj1oZWxw") {
		t.Errorf("got %v", err)
	}
}

// localConn is a connection to this machine, to which a login needs no TLS.
type localConn struct{ net.Conn }

func (localConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
