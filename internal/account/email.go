package account

import (
	netmail "net/mail"
	"strings"
	"unicode"

	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// maxEmail is the longest address that SMTP can carry, in bytes.
const maxEmail = 254

// emailKey is the form in which addresses are compared. Of an international
// domain it is the one that mail goes to: there are many spellings of each, and
// none may have an account or tries of its own.
func emailKey(email string) string {
	email = strings.TrimSpace(email)
	if a, err := mail.ParseAddress(email); err == nil {
		email = a.Address
	}
	return strings.ToLower(email)
}

// checkEmail records an issue unless email, trimmed, is an address and nothing
// but an address, to which mail can be sent.
func checkEmail(v *problem.Validation, path, email string) {
	email = strings.TrimSpace(email)
	a, err := netmail.ParseAddress(email)
	if err != nil || a.Name != "" || a.Address != email || len(email) > maxEmail || confusable(email) {
		v.Add(path, "must be an e-mail address")
		return
	}
	if _, err := mail.ParseAddress(email); err != nil {
		v.Add(path, "must be an e-mail address")
	}
}

// confusable reports whether email holds a character that lower-cases to the
// same as others do, such as the Kelvin sign and K: two mailboxes must not
// become one account.
func confusable(email string) bool {
	for _, r := range email {
		if r > unicode.MaxASCII && unicode.ToUpper(unicode.ToLower(r)) != unicode.ToUpper(r) {
			return true
		}
	}
	return false
}
