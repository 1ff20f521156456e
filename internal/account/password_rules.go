package account

import (
	_ "embed" // for commonPasswords
	"strings"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// commonPasswords are the 10,000 most common passwords of at least 8
// characters, lower case, one a line, in order. They were counted in the corpus
// of ten million passwords that Mark Burnett released into the public domain in
// 2015; a few that installers and directories set by default were added.
//
//go:embed common.txt
var commonPasswords string

// minContextWord is the minimum length, in characters, of a word of a user's name that
// makes a password guessable: shorter ones occur by chance.
const minContextWord = 4

// passwordOwner is the context from which an attacker guesses a password. The zero value
// is an unknown person.
type passwordOwner struct {
	email        string
	name         string
	organization string // name; empty: none
	unproven     bool   // their password is no proof of identity
}

// words returns the words of the context, lower case.
func (o passwordOwner) words() []string {
	words := []string{"kickstand"}
	local, _, _ := strings.Cut(emailKey(o.email), "@")
	for _, text := range []string{local, strings.ToLower(o.name), strings.ToLower(o.organization)} {
		for _, w := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" .,-_+'’&", r) }) {
			if utf8.RuneCountInString(w) >= minContextWord {
				words = append(words, w)
			}
		}
	}
	return words
}

// checkNewPassword records an issue unless owner may have this password: it has 8
// characters to 1,024 bytes and is not the e-mail address, a common password, or a word
// of the owner's context with little added.
func checkNewPassword(v *problem.Validation, path, password string, owner passwordOwner) {
	checkPassword(v, path, password, minNewPassword)
	if owner.email != "" && emailKey(password) == emailKey(owner.email) {
		v.Add(path, "must not be the e-mail address")
		return
	}
	lower := strings.ToLower(password)
	if !strings.Contains(lower, "\n") && strings.Contains("\n"+commonPasswords, "\n"+lower+"\n") {
		v.Add(path, "is a common password; choose another")
		return
	}
	if len(password) <= maxPassword && guessable(lower, owner.words()) {
		v.Add(path, "is too easy to guess: add words to your name, your organization or Kickstand")
	}
}

// guessable reports whether a password without words has fewer than 4 letters among fewer
// than 8 characters.
func guessable(password string, words []string) bool {
	rest := password
	for _, w := range words {
		rest = strings.ReplaceAll(rest, w, "")
	}
	if rest == password || utf8.RuneCountInString(rest) >= minNewPassword {
		return false
	}
	letters := 0
	for _, r := range rest {
		if strings.ToLower(string(r)) != strings.ToUpper(string(r)) {
			letters++
		}
	}
	return letters < 4
}
