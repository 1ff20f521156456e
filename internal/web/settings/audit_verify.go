package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

const (
	verifyPath = auditPath + "/verify"
	exportPath = auditPath + "/export"
	// verifyStep is the number of entries that one request verifies.
	verifyStep = 20_000
)

// auditVerified is the last verification of the organization's chains.
type auditVerified struct {
	At     web.Time
	By     string
	Broken bool
	Never  bool
	Total  string // entries
}

// verified returns the last verification that a user started.
func (p *pages) verified(r *web.Request) (auditVerified, error) {
	var newest *audit.Entry
	for _, action := range []audit.Action{audit.Verified, audit.Broken} {
		found, err := audit.List(r.Context(), p.Logs[:1], r.OrganizationID, audit.Query{Action: action, Limit: 1})
		if err != nil {
			return auditVerified{}, err
		}
		if len(found.Entries) > 0 && (newest == nil || found.Entries[0].ID > newest.ID) {
			newest = &found.Entries[0]
		}
	}
	if newest == nil {
		return auditVerified{Never: true}, nil
	}
	total, _ := newest.Details["entries"].(float64)
	return auditVerified{
		At: r.Time(newest.At), By: newest.Source.Actor.Email, Broken: newest.Action == audit.Broken, Total: strconv.FormatFloat(total, 'f', 0, 64),
	}, nil
}

// verifying is the progress of a verification in steps, log by log.
type verifying struct {
	Log   int   // index of the next log
	Total int64 // entries of the logs before
	From  audit.Head
}

// verify verifies the next entries. If some are left, it renders a form with the
// progress, which continues.
func (p *pages) verify(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	at, err := parseVerifying(form, len(p.Logs))
	if err != nil {
		return err
	}
	for left := int64(verifyStep); at.Log < len(p.Logs); {
		var report audit.Report
		err := p.Logs[at.Log].Verify(r.Context(), audit.Verification{OrganizationID: &r.OrganizationID, From: at.From, Limit: left},
			func(got audit.Report) error { report = got; return nil })
		if err != nil {
			return err
		}
		left -= report.Sequence - at.From.Sequence
		switch {
		case report.Partial:
			at.From = report.Head
			return p.Render(w, r, "auditstep", page(r, auditPath, "Verify the audit log", struct {
				verifying
				Done int64
				Hash string
			}{at, at.Total + report.Sequence, report.Hash}))
		case !report.OK:
			return p.verificationFailed(w, r, report)
		}
		at = verifying{Log: at.Log + 1, Total: at.Total + report.Sequence}
	}
	if err := p.Logs[0].Record(r.Context(), audit.Entry{
		OrganizationID: r.OrganizationID, Action: audit.Verified, Target: audit.Target{Type: "audit_log"}, Details: map[string]any{"entries": at.Total},
	}); err != nil {
		return err
	}
	return p.Redirect(w, auditPath, web.Notice{Text: web.Sprintf("Verified: %d entries, none altered, removed or reordered.", at.Total)})
}

// parseVerifying parses the progress.
func parseVerifying(form url.Values, logs int) (at verifying, err error) {
	if form.Get("log") == "" {
		return at, nil
	}
	var errs [3]error
	at.Log, errs[0] = strconv.Atoi(form.Get("log"))
	at.Total, errs[1] = strconv.ParseInt(form.Get("total"), 10, 64)
	at.From.Sequence, errs[2] = strconv.ParseInt(form.Get("sequence"), 10, 64)
	at.From.Hash = form.Get("hash")
	if errors.Join(errs[:]...) != nil || at.Log < 0 || at.Log >= logs || at.Total < 0 || at.From.Sequence < 1 || len(at.From.Hash) != 64 {
		return at, problem.New(problem.Precondition, "verify again from the start")
	}
	return at, nil
}

func (p *pages) verificationFailed(w http.ResponseWriter, r *web.Request, report audit.Report) error {
	if err := p.Logs[0].Record(r.Context(), audit.Entry{
		OrganizationID: r.OrganizationID, Action: audit.Broken, Target: audit.Target{Type: "audit_log"},
		Details: map[string]any{"ledger": report.Ledger, "entries": report.Sequence, "first_bad": report.FirstBad, "problem": report.Problem},
	}); err != nil {
		return err
	}
	return p.Redirect(w, auditPath, web.Notice{Bad: true, Text: fmt.Sprintf("Verification failed in %s: %s. Keep a copy of the database and contact the operator.", report.Ledger, report.Problem)})
}

// export serves the whole log as NDJSON, as the operator's command does. It records the
// export first: an export that cannot be recorded fails.
func (p *pages) export(w http.ResponseWriter, r *web.Request) error {
	if err := p.Logs[0].Record(r.Context(), audit.Entry{
		OrganizationID: r.OrganizationID, Action: audit.Exported, Target: audit.Target{Type: "audit_log"}, Details: map[string]any{"format": "ndjson"},
	}); err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/x-ndjson")
	h.Set("Content-Disposition", `attachment; filename="audit-`+r.Now.UTC().Format(time.DateOnly)+`.ndjson"`)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	err := audit.Each(r.Context(), p.Logs, r.OrganizationID, audit.Query{}, func(e *audit.Entry) error { return enc.Encode(e.Record()) })
	if err != nil { // abort the response, so that a part is not mistaken for the whole
		panic(http.ErrAbortHandler)
	}
	return nil
}
