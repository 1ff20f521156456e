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

// emailKey returns the form in which addresses are compared. The domain is in its ASCII
// form, to which mail is sent: an international domain has many spellings, and none may
// have an account or a limit of its own.
func emailKey(email string) string {
	email = strings.TrimSpace(email)
	if a, err := mail.ParseAddress(email); err == nil {
		email = a.Address
	}
	return strings.ToLower(email)
}

// SameEmail reports whether two addresses name the same account.
func SameEmail(a, b string) bool { return emailKey(a) == emailKey(b) }

// checkEmail records an issue unless email, trimmed, is a bare address to which mail can
// be sent.
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

// confusable reports whether email has a character that shares its lower-case form with
// another, such as the Kelvin sign and K: two mailboxes must not become one account.
func confusable(email string) bool {
	for _, r := range email {
		if r > unicode.MaxASCII && unicode.ToUpper(unicode.ToLower(r)) != unicode.ToUpper(r) {
			return true
		}
	}
	return false
}
