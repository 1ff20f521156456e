package settings

import (
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// sessionRow is a session of the user.
type sessionRow struct {
	account.Session
	Since, Used web.Time
}

// sessions lists the user's sessions.
func (p *pages) sessions(w http.ResponseWriter, r *web.Request) error {
	list, err := p.Accounts.Sessions(r.Context(), r.Identity)
	if err != nil {
		return err
	}
	rows := make([]sessionRow, len(list))
	for i, s := range list {
		rows[i] = sessionRow{s, r.Time(s.CreatedAt), r.Time(s.UsedAt)}
	}
	return p.Render(w, r, "sessions", page(r, "/settings/sessions", "Sessions", rows))
}

// endSession ends one session, or all but this one.
func (p *pages) endSession(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	if id := form.Get("session"); id != "" {
		if err := p.Accounts.EndSession(r.Context(), r.UserID, id); err != nil {
			return err
		}
		return p.Redirect(w, "/settings/sessions", web.Notice{Text: "Session ended."})
	}
	n, err := p.Accounts.EndSessions(r.Context(), r.UserID, r.SessionID)
	if err != nil {
		return err
	}
	text := "You have no other sessions."
	if n > 0 {
		text = web.Count(n, "One other session ended.", "%d other sessions have ended.")
	}
	return p.Redirect(w, "/settings/sessions", web.Notice{Text: text})
}
