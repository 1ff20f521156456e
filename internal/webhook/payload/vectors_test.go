package payload

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"
)

// delivery is one vector of the client libraries; see clients/vectors/README.md.
type delivery struct {
	Name    string
	Form    string
	Secrets []struct {
		Text  string
		Bytes string `json:"whsec_base64_of"`
	}
	Now       int64
	Tolerance int64
	Headers   map[string]string
	Body      string
	Error     string
}

// The client libraries accept and refuse the deliveries that the server's own code does.
func TestClientVectors(t *testing.T) {
	text, err := os.ReadFile("../../../clients/vectors/signatures.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []delivery
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) == 0 {
		t.Fatal("no vectors")
	}
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			if v.Tolerance != int64(tolerance/time.Second) {
				t.Skip("the server has one tolerance")
			}
			var got []string
			for _, s := range v.Secrets {
				secret := s.Text
				if secret == "" {
					secret = "whsec_" + base64.StdEncoding.EncodeToString([]byte(s.Bytes))
				}
				got = append(got, v.verify(secret))
			}
			if accepted := slices.Contains(got, ""); accepted != (v.Error == "") {
				t.Fatalf("outcomes %q of the secrets, want %q", got, v.Error)
			}
			if v.Error != "" && got[0] != v.Error {
				t.Errorf("refused as %q, want %q", got[0], v.Error)
			}
		})
	}
}

// verify returns the vector's word for an error, or "".
func (v *delivery) verify(secret string) string {
	h := http.Header{}
	for name, value := range v.Headers {
		h.Set(name, value)
	}
	if v.Form != "" {
		form := Form(v.Form)
		switch h.Get(headerSignature) {
		case "":
			return "unsigned"
		case NewSigner(secret).form(form, []byte(v.Body)):
			return ""
		}
		return "signature"
	}
	switch _, err := Verify(h, []byte(v.Body), secret, time.Unix(v.Now, 0)); err {
	case nil:
		return ""
	case ErrUnsigned:
		return "unsigned"
	case ErrTimestamp:
		return "timestamp"
	}
	return "signature"
}
