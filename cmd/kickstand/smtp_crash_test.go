package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app/apptest"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// TestSMTPCrash kills the server at random times while mails arrive by SMTP. Their clients repeat
// each mail until its reply is 250, as mail servers do. Each must be one message in each
// organization that it was sent to.
func TestSMTPCrash(t *testing.T) {
	kills := 20
	if os.Getenv("CI") != "" {
		kills = 12 // on each engine
	}
	if testing.Short() {
		kills = 5
	}
	p := newPatient(t)
	at := apptest.Address(t)
	p.args = append(p.args, "--smtp-listen="+at, "--smtp-hostname=mx.kickstand.example", "--smtp-mail-rate=1000000")
	p.start()
	recipients := []string{"help@one.example", "help@two.example"}
	for i, address := range recipients {
		slug := fmt.Sprintf("crash%d", i)
		p.command("org", "create", "--name="+slug)
		p.command("channel", "connect", "email-smtp", "--org="+slug, "--address="+address)
	}

	load, stopLoad := context.WithCancel(t.Context())
	sent := make(map[string]int) // recipients of accepted mails, by Message-ID
	repeated := 0
	var mu sync.Mutex
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; load.Err() == nil; i++ {
				to := recipients[:1+i%2]
				id := fmt.Sprintf("%d-%d@client.example", w, i)
				content := fmt.Sprintf("From: Ana <ana%d@client.example>\r\nTo: %s\r\nSubject: Mail %s\r\nMessage-ID: <%s>\r\n\r\nHello\r\n", w, to[0], id, id)
				if i%7 == 6 { // its body is a file
					content += strings.Repeat("The lock does not open.\r\n", 2000)
				}
				attempts := 1
				for ; !sendMail(at, to, content); attempts++ {
					select { // as after the last kill, every mail is repeated to its end
					case <-t.Context().Done():
						return
					case <-time.After(20 * time.Millisecond):
					}
				}
				mu.Lock()
				sent[id] = len(to)
				repeated += attempts - 1
				mu.Unlock()
			}
		})
	}
	for range kills {
		select { // deliberately random
		case <-time.After(time.Duration(rand.Int64N(int64(250 * time.Millisecond)))):
		case <-t.Context().Done():
		}
		p.kill()
		p.start()
	}
	stopLoad()
	writers.Wait()
	for range poll(t, time.Minute) {
		if p.settled() {
			break
		}
	}
	p.kill()
	type count struct {
		id string
		n  int
	}
	counts, err := db.All(t.Context(), p.watch, func(row db.Row) (c count, err error) { err = row.Scan(&c.id, &c.n); return c, err },
		"SELECT external_id, count(*) FROM messages GROUP BY external_id")
	if err != nil {
		t.Fatal(err)
	}
	stored := make(map[string]int)
	for _, c := range counts {
		stored[c.id] = c.n
	}
	if len(stored) != len(sent) {
		t.Errorf("%d mails are stored, want %d", len(stored), len(sent))
	}
	for id, n := range sent {
		if stored[id] != n {
			t.Errorf("%s to %d organizations is %d messages", id, n, stored[id])
		}
	}
	p.command("verify", "--blobs")
	t.Logf("%d kills, %d mails, %d attempts that failed", kills, len(sent), repeated)
}

// sendMail sends a mail and reports whether its reply is 250.
func sendMail(address string, to []string, content string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "220 ") {
		return false
	}
	commands := []string{"HELO client.example", "MAIL FROM:<ana@client.example>"}
	for _, one := range to {
		commands = append(commands, "RCPT TO:<"+one+">")
	}
	for _, command := range append(commands, "DATA", content+".") {
		if _, err := conn.Write([]byte(command + "\r\n")); err != nil {
			return false
		}
		if line, err := in.ReadString('\n'); err != nil || line[0] != '2' && line[0] != '3' {
			return false
		}
	}
	return true
}

// TestPassedSocket: mail arrives by a socket that another process has opened, as systemd does.
func TestPassedSocket(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	file, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := newPatient(t)
	cmd := exec.Command("sh", append([]string{"-c", `export LISTEN_PID=$$ LISTEN_FDS=1; exec "$0" "$@"`, os.Args[0], "serve", "--smtp-listen=systemd"}, p.args...)...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	cmd.ExtraFiles = []*os.File{file}
	p.process = apptest.Start(t, cmd, p.url)
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	if line, err := bufio.NewReader(conn).ReadString('\n'); !strings.HasPrefix(line, "220 ") {
		t.Errorf("the greeting is %q, %v", line, err)
	}
	if _, err := passedSocket(); err == nil {
		t.Error("a socket was found that nobody has passed")
	}
}
