package channel

import "strings"

// IsUnattended reports whether a mail address is a no-reply address or belongs to a mail
// server.
func IsUnattended(address string) bool {
	local, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(address)), "@")
	local, _, _ = strings.Cut(local, "+")
	local = strings.NewReplacer("-", "", "_", "", ".", "").Replace(local)
	switch local {
	case "", "mailerdaemon", "postmaster":
		return true
	}
	return strings.HasPrefix(local, "noreply") || strings.HasPrefix(local, "donotreply")
}
