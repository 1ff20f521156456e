package rpc_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/rpc"
)

// newSLAFixture serves the SLA procedures to the fixture's caller.
func newSLAFixture(t *testing.T) *webhookFixture {
	t.Helper()
	d := dbtest.New(t)
	f := &webhookFixture{
		t:      t,
		caller: &account.Identity{UserID: "u", OrganizationID: "11111111-1111-7111-8111-111111111111", Role: account.Admin},
	}
	f.router = rpc.New(rpc.Config{
		Procedures: rpc.SLAProcedures(desk.Open(desk.Config{DB: d, Queue: queue.Open(d, queue.Config{}), Events: new(event.Log)})),
		Authenticate: func(_ http.ResponseWriter, r *http.Request) (context.Context, error) {
			if f.caller == nil {
				return r.Context(), nil
			}
			return account.NewContext(r.Context(), *f.caller), nil
		},
		Authorize: rpc.Authorize,
		Logger:    slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	return f
}

func TestSLAProcedures(t *testing.T) {
	f := newSLAFixture(t)
	const times = `,"created_at":"TIME","updated_at":"TIME"}`
	f.want("GET", "slaPolicies.list", "", 200, result(`[]`))
	urgent := `{"priority":"urgent","firstResponseMinutes":15,"resolutionMinutes":null,"businessHours":null` + times
	f.want("POST", "slaPolicies.set", `{"priority":"urgent","firstResponseMinutes":15}`, 200, result(urgent))
	const hours = `{"timeZone":"Europe/Berlin","weekly":{"mon":[{"from":"09:00","to":"12:00"},{"from":"13:00","to":"24:00"}]},"holidays":["2026-12-25"]}`
	normal := `{"priority":"normal","firstResponseMinutes":30,"resolutionMinutes":480,"businessHours":` + hours + times
	f.want("POST", "slaPolicies.set", `{"priority":"normal","firstResponseMinutes":30,"resolutionMinutes":480,"businessHours":`+hours+`}`, 200, result(normal))
	f.want("GET", "slaPolicies.list", "", 200, result("["+normal+","+urgent+"]"))

	// Setting a policy replaces all of it.
	changed := `{"priority":"normal","firstResponseMinutes":null,"resolutionMinutes":525600,"businessHours":null` + times
	f.want("POST", "slaPolicies.set", `{"priority":"normal","firstResponseMinutes":null,"resolutionMinutes":525600}`, 200, result(changed))
	f.want("GET", "slaPolicies.list", "", 200, result("["+changed+","+urgent+"]"))

	// Agents can read policies but not change them.
	f.caller.Role = account.Agent
	f.want("GET", "slaPolicies.list", "", 200, result("["+changed+","+urgent+"]"))
	for _, name := range []string{"slaPolicies.set", "slaPolicies.delete"} {
		if status, body := f.call("POST", name, `{"priority":"normal","resolutionMinutes":1}`); status != 403 || !strings.Contains(body, `"FORBIDDEN"`) {
			t.Errorf("%s by an agent: got %d %s, want 403", name, status, body)
		}
	}
	f.caller.Role = account.Admin

	// Another organization has its own.
	f.caller.OrganizationID = "22222222-2222-7222-8222-222222222222"
	f.want("GET", "slaPolicies.list", "", 200, result(`[]`))
	missing := refused("slaPolicies.delete", "NOT_FOUND", -32004, 404, "there is no such SLA policy")
	f.want("POST", "slaPolicies.delete", `{"priority":"normal"}`, 404, missing)
	f.caller.OrganizationID = "11111111-1111-7111-8111-111111111111"

	f.want("POST", "slaPolicies.delete", `{"priority":"normal"}`, 200, success)
	f.want("POST", "slaPolicies.delete", `{"priority":"normal"}`, 404, missing)
	f.want("GET", "slaPolicies.list", "", 200, result("["+urgent+"]"))

	f.caller = nil
	for name, method := range map[string]string{"slaPolicies.list": "GET", "slaPolicies.set": "POST", "slaPolicies.delete": "POST"} {
		if status, body := f.call(method, name, ""); status != 401 || !strings.Contains(body, `"UNAUTHORIZED"`) {
			t.Errorf("%s by nobody: got %d %s, want 401", name, status, body)
		}
	}
}

func TestSLAProceduresRefuse(t *testing.T) {
	f := newSLAFixture(t)
	const set = "slaPolicies.set"
	for _, c := range []struct{ input, path, message string }{
		{`{"resolutionMinutes":1}`, "priority", "is required"},
		{`{"priority":"huge","resolutionMinutes":1}`, "priority", "must be one of low, normal, high, urgent"},
		{`{"priority":"low"}`, "firstResponseMinutes", "or resolutionMinutes must be given"},
		{`{"priority":"low","firstResponseMinutes":0}`, "firstResponseMinutes", "must be at least 1, or left out"},
		{`{"priority":"low","resolutionMinutes":0}`, "resolutionMinutes", "must be at least 1, or left out"},
		{`{"priority":"low","resolutionMinutes":-1}`, "resolutionMinutes", "must be from 1 to 525600, a year"},
		{`{"priority":"low","resolutionMinutes":525601}`, "resolutionMinutes", "must be from 1 to 525600, a year"},
		{`{"priority":"low","resolutionMinutes":1.5}`, "resolutionMinutes", "must be an integer"},
		{`{"priority":"low","resolutionMinutes":1,"businessHours":{"weekly":{"mon":[{"from":"09:00","to":"17:00"}]}}}`, "businessHours.timeZone", "is required"},
		{`{"priority":"low","resolutionMinutes":1,"businessHours":{"timeZone":"UTC","weekly":{"mon":[]}}}`, "businessHours.weekly", "must have hours on at least one day"},
		{`{"priority":"low","resolutionMinutes":1,"businessHours":{"timeZone":"Mars","weekly":{"mon":[{"from":"09:00","to":"17:00"}]}}}`,
			"businessHours.timeZone", "must be an IANA time zone such as Europe/Berlin"},
	} {
		f.want("POST", set, c.input, 400, invalid(set, c.path, c.message))
	}
	// All issues at once.
	_, body := f.call("POST", set, `{"priority":"huge","firstResponseMinutes":0,"businessHours":{"timeZone":"Mars","weekly":{}}}`)
	for _, path := range []string{"priority", "firstResponseMinutes", "businessHours.timeZone", "businessHours.weekly"} {
		if strings.Count(body, `"path":"`+path+`"`) != 1 {
			t.Errorf("not told of %s, or twice: %s", path, body)
		}
	}
	f.want("POST", "slaPolicies.delete", `{"priority":""}`, 400, invalid("slaPolicies.delete", "priority", "must be one of low, normal, high, urgent"))
	f.want("GET", "slaPolicies.list", "", 200, result(`[]`))
}
