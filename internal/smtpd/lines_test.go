package smtpd

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// stuffed returns a mail as clients send it after DATA. It must end with CRLF, or be empty.
func stuffed(content []byte) []byte {
	out := bytes.ReplaceAll(content, []byte("\r\n."), []byte("\r\n.."))
	if bytes.HasPrefix(out, []byte(".")) {
		out = append([]byte("."), out...)
	}
	return append(out, ".\r\n"...)
}

// FuzzData: every mail arrives as it was sent, and what follows it stays.
func FuzzData(f *testing.F) {
	for _, content := range []string{"", ".", "a", ".\r", "\r", "\r\r", "\n.\n", "\r\n.\r\n", "..", ".\r\r\n", "\r\r\n", "\r.\r", "\x00", "a\r\n.b\r\n..c"} {
		f.Add([]byte(content))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) > 0 {
			content = append(content, "\r\n"...)
		}
		const rest = "NOOP\r\n.\r\n"
		sent := append(stuffed(content), rest...)
		for _, in := range []io.Reader{bytes.NewReader(sent), iotest.OneByteReader(bytes.NewReader(sent))} {
			r := bufio.NewReader(in)
			got, err := io.ReadAll(&dataReader{r: r})
			if err != nil || !bytes.Equal(got, content) {
				t.Fatalf("%q was read as %q, %v", content, got, err)
			}
			left, _ := io.ReadAll(r)
			if string(left) != rest {
				t.Fatalf("%q is left, want %q", left, rest)
			}
		}
	})
}

func TestDataBreaksOff(t *testing.T) {
	for _, sent := range []string{"", "a\r\n", "a\r\n.", "a\r\n.\r", "a\n.\n"} {
		_, err := io.ReadAll(&dataReader{r: bufio.NewReader(strings.NewReader(sent))})
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: got %v", sent, err)
		}
	}
}

// FuzzPath: parsing an address never fails badly, and finds the domain behind the last @.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"<>", "<a@b.example>", `<"a@c"@b.example> SIZE=3`, "<@x,@y:a@b.example>", "a@b.example SIZE=1", `<"\"@b.example>`, "<", `"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, _, err := parsePath(s)
		if err != nil || p == (path{}) {
			return
		}
		if p.local == "" || p.domain == "" || strings.Contains(p.domain, "@") || !strings.HasSuffix(strings.TrimSuffix(p.text, "."), "@"+p.domain) {
			t.Errorf("%q is %+v", s, p)
		}
	})
}
