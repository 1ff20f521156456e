package mailparse

import (
	"reflect"
	"strings"
	"testing"
)

func TestSections(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		want       []string
	}{
		{"usual", "preamble\r\n--b\r\none\r\n--b\r\ntwo\r\n--b--\r\nepilogue\r\n--b\r\nnot a part", []string{"one", "two"}},
		{"bare line feeds and trailing blanks", "--b \t\none\n--b\n\ntwo\n--b-- \n", []string{"one", "\ntwo"}},
		{"never closed", "--b\none\n--b\ntwo", []string{"one", "two"}},
		{"a longer boundary is another", "--b\none\n--bb\nstill one\n--b--", []string{"one\n--bb\nstill one"}},
		{"not at the start of a line", "--b\none --b\n--b--", []string{"one --b"}},
		{"empty parts", "--b\n--b\n\n--b--", []string{"", ""}},
		{"none", "text", nil},
	} {
		var got []string
		for s := range sections([]byte(tt.body), "b") {
			got = append(got, string(s))
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: sections = %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestTransferDecode(t *testing.T) {
	for _, tt := range []struct{ encoding, body, want string }{
		{"base64", "SGVs\r\nbG8=", "Hello"},
		{"Base64 ", "SGVsbG8", "Hello"},
		{"base64", "SGk=SGk=", "HiHi"},
		{"base64", "S*G!k\x00=", "Hi"},
		{"base64", "S", ""},
		{"quoted-printable", "a=3Db=\r\nc =E4\r\nd  \r\n", "a=bc \xe4\nd\n"},
		{"quoted-printable", "a=zz=3", "a=zz=3"},
		{"quoted-printable", "100%=", "100%"},
		{"8bit", "a=3D", "a=3D"},
		{"x-unknown", "a=3D", "a=3D"},
	} {
		if got := string(transferDecode(tt.encoding, []byte(tt.body))); got != tt.want {
			t.Errorf("transferDecode(%q, %q) = %q, want %q", tt.encoding, tt.body, got, tt.want)
		}
	}
}

func TestFileName(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"a.pdf", "a.pdf"},
		{"../../etc/passwd", "passwd"},
		{`C:\Users\ana\a.pdf`, "a.pdf"},
		{"a\x00b\nc.pdf", "abc.pdf"},
		{"cod\u202egpj.exe", "codgpj.exe"},
		{"..", ""},
		{strings.Repeat("ä", 300) + ".pdf", strings.Repeat("ä", 98) + ".pdf"},
	} {
		if got := FileName(tt.in); got != tt.want {
			t.Errorf("FileName(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}
