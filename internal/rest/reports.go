package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

// Report is an unparsed report of a request.
type Report struct {
	Index int // in the list or, of NDJSON, of its line
	Text  []byte
}

// Reports returns the reports of a request to a route with [Route.Reports], at most limit. Blank lines
// of NDJSON are none.
func (r *Request) Reports(limit int) (list []Report, err error) {
	if r.ndjson {
		text, index := bytes.TrimPrefix(r.Body, []byte("\ufeff")), 0 // editors write a byte order mark
		for line := range bytes.SplitSeq(text, []byte("\n")) {
			if line = bytes.Trim(line, " \t\r"); len(line) > 0 {
				list = append(list, Report{index, line})
			}
			if index++; len(list) > limit {
				break
			}
		}
	} else if list, err = r.listedReports(limit); err != nil {
		return nil, err
	}
	if len(list) > limit {
		return nil, apiErrorf("body_too_large", "A request may have at most %d reports.", limit)
	}
	return list, nil
}

// listedReports returns the items of a body of JSON: an object with one list. Of more than limit it
// returns one too many.
func (r *Request) listedReports(limit int) (list []Report, err error) {
	switch {
	case !utf8.Valid(r.Body):
		return nil, apiErrorf("invalid_json", "The text is not UTF-8.")
	case !json.Valid(r.Body):
		var whole json.RawMessage
		return nil, apiErrorf("invalid_json", "%s", sentence(fmt.Sprint(json.Unmarshal(r.Body, &whole))))
	}
	name := r.route.Input.Members[0].Name
	var items []byte
	for member, value := range schema.MembersOf(r.Body) {
		if string(member) != name {
			return nil, invalid([]schema.FieldError{{Code: "unknown_field", Pointer: schema.Pointer("#", string(member)), Detail: "The only field is " + name + "."}})
		}
		if items != nil {
			return nil, apiErrorf("invalid_json", "The field %q is duplicate.", name)
		}
		items = value
	}
	if len(items) == 0 || items[0] != '[' {
		return nil, invalid([]schema.FieldError{{Code: "invalid_type", Pointer: schema.Pointer("#", name), Detail: name + " must be an array."}})
	}
	for item := range schema.ItemsOf(items) {
		if list = append(list, Report{len(list), item}); len(list) > limit {
			break
		}
	}
	return list, nil
}

// Budget is a limit of a key beside that of its requests.
type Budget struct {
	Name   string // of its headers, X-Name-Limit and so on, and the policy of its refusals in lower case
	Policy string
	Unit   string // "reports"
	Factor int64  // of the key's limit of requests
}

// AcquireBudget takes up to n units of a budget of the key and returns their number. The answer has the
// state of the budget.
func (r *Request) AcquireBudget(ctx context.Context, b Budget, n int64) (granted int64, s ratelimit.State, err error) {
	limit, err := r.api.c.Keys.Limit(ctx, r.Key)
	if err == nil {
		s, granted, err = r.api.c.KeyLimiter.AcquireUpTo(ctx, b.Policy+" "+r.Key.ID, limit*b.Factor, n)
	}
	if err != nil {
		return 0, s, problem.New(problem.Unavailable, "the limit of the API key is unavailable").Because(err)
	}
	reset := s.Reset.Unix()
	if s.Reset.Nanosecond() > 0 {
		reset++
	}
	for name, value := range map[string]int64{"Limit": s.Limit, "Remaining": s.Remaining, "Reset": reset} {
		r.header[http.CanonicalHeaderKey("X-"+b.Name+"-"+name)] = []string{strconv.FormatInt(value, 10)}
	}
	return granted, s, nil
}

// OverBudget returns the refusal (429) of units beyond a budget in the given state. taken is the index of
// the first refused unit, and result the outcome of the units before it.
func (b Budget) OverBudget(s ratelimit.State, taken int64, result any) error {
	f := limited(b.Policy, seconds(time.Until(s.Reset)), fmt.Sprintf("The API key has %d %s a minute.", s.Limit, b.Unit))
	f.details["taken"], f.details["result"] = taken, result
	return f
}
