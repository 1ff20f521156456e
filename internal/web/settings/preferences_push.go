package settings

import (
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/push"
	"github.com/kickstand-dev/kickstand/internal/web"
)

const browsersPath = preferencesPath + "/browsers"

// pushSection lists the browsers that show the user's notices.
type pushSection struct {
	Key      string // with which the browser subscribes
	Browsers []browserRow
	Here     bool // this session's browser is among them
}

type browserRow struct {
	push.Subscription
	Since web.Time
	Here  bool
}

// pushSection returns nil without Web Push, and for users without an organization.
func (p *pages) pushSection(r *web.Request) (*pushSection, error) {
	if p.Push == nil || r.OrganizationID == "" {
		return nil, nil
	}
	key, err := p.Push.PublicKey(r.Context())
	if err != nil {
		return nil, err
	}
	list, err := p.Push.Subscriptions(r.Context(), p.DB, r.OrganizationID, r.UserID)
	if err != nil {
		return nil, err
	}
	s := &pushSection{Key: key}
	for _, b := range list {
		row := browserRow{b, r.Time(b.CreatedAt), b.SessionID == r.SessionID}
		s.Here = s.Here || row.Here
		s.Browsers = append(s.Browsers, row)
	}
	return s, nil
}

// addBrowser subscribes the browser of the session. Its script posts the form.
func (p *pages) addBrowser(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	if p.Push == nil {
		return problem.New(problem.NotFound, "This server sends no notifications.")
	}
	if !form.Has("endpoint") {
		return p.Redirect(w, preferencesPath, web.Notice{Text: "Notifications need JavaScript.", Bad: true})
	}
	by := push.Subscriber{OrganizationID: r.OrganizationID, UserID: r.UserID, SessionID: r.SessionID, Browser: account.Device(r.UserAgent())}
	to := push.Target{Endpoint: form.Get("endpoint"), P256DH: form.Get("p256dh"), Auth: form.Get("auth")}
	if err := p.Push.Subscribe(r.Context(), by, to); err != nil {
		return err
	}
	return p.Redirect(w, preferencesPath, web.Notice{Text: "This browser shows your notices."})
}

func (p *pages) removeBrowser(w http.ResponseWriter, r *web.Request) error {
	if _, ok := p.Form(w, r); !ok {
		return nil
	}
	if p.Push == nil {
		return problem.New(problem.NotFound, "This server sends no notifications.")
	}
	if err := p.Push.Unsubscribe(r.Context(), r.UserID, r.PathValue("id")); err != nil {
		return err
	}
	return p.Redirect(w, preferencesPath, web.Notice{Text: "Browser removed."})
}
