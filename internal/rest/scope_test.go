package rest_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/rest/resttest"
)

// wrong returns the code of a refusal and the pointer or parameter of its first error.
func wrong(a resttest.Answer) string {
	p := a.Problem()
	var out strings.Builder
	out.WriteString(fmt.Sprint(a.Status, " ", p.Code))
	for _, e := range p.Errors {
		out.WriteString(" " + e.Code + " " + e.Pointer + e.Parameter + e.Header)
	}
	return strings.TrimSpace(out.String())
}

// TestNarrow: the scope of a request by its key and the subaccounts it names.
func TestNarrow(t *testing.T) {
	g := openGarage(t)
	write := apikey.Permissions{Level: apikey.ReadWrite}
	keys := map[string]*resttest.Client{
		"all": g.As(g.key(t, ours, write)), "a": g.Client, "ab": g.As(g.key(t, ours, write, "sub_a", "sub_b")),
		"theirs": g.As(g.key(t, theirs, write)),
	}
	const differs, out, header = "400 invalid_parameter conflict ", "403 subaccount_out_of_scope", "X-Subaccount-Id"
	for _, test := range []struct{ key, header, body, want string }{
		{"all", "", `{"code":"1"}`, "422 validation_failed required #/subaccount_id"},
		{"all", "", `{"gears":0}`, "422 validation_failed too_small #/gears required #/code required #/subaccount_id"}, // all of it
		{"all", "sub_b", `{"code":"2"}`, "sub_b"},
		{"all", "", `{"code":"3","subaccount_id":"sub_c"}`, "sub_c"},
		{"all", "sub_c", `{"code":"4","subaccount_id":"sub_c"}`, "sub_c"},
		{"all", "sub_a", `{"code":"5","subaccount_id":"sub_c"}`, differs + header},
		{"all", "sub_x", `{"code":"6"}`, out},
		{"all", "", `{"code":"7","subaccount_id":"sub_x"}`, out},
		{"all", "", `{"code":"","nothing":1,"subaccount_id":"sub_x"}`, out}, // 403 comes first
		{"all", "", `{"code":"8","subaccount_id":5}`, "422 validation_failed invalid_type #/subaccount_id"},
		{"all", "sub_a,sub_b", `{"code":"9"}`, differs + header},
		{"a", "", `{"code":"10"}`, "sub_a"},
		{"a", "sub_a", `{"code":"11","subaccount_id":"sub_a"}`, "sub_a"},
		{"a", "sub_b", `{"code":"12"}`, out},
		{"a", "", `{"code":"13","subaccount_id":"sub_b"}`, out},
		{"ab", "", `{"code":"14"}`, "422 validation_failed required #/subaccount_id"},
		{"ab", "", `{"code":"15","subaccount_id":"sub_b"}`, "sub_b"},
		{"ab", "sub_c", `{"code":"16"}`, out},
		{"theirs", "", `{"code":"17"}`, "sub_x"}, // the only one there is
		{"theirs", "sub_a", `{"code":"18"}`, out},
	} {
		var headers []string
		if test.header != "" {
			headers = append(headers, header+": "+test.header)
		}
		a := keys[test.key].Do("POST", "/bikes", test.body, headers...)
		got := wrong(a)
		if a.Status == 201 {
			var made struct {
				Sub string `json:"subaccount_id"`
			}
			a.JSON(&made)
			got = made.Sub
		}
		if got != test.want {
			t.Errorf("%s, header %q, %s: got %s, want %s; %s", test.key, test.header, test.body, got, test.want, a.Body)
		}
	}
	if a := g.Do("GET", "/key", "", header+": sub_a", header+": sub_a"); wrong(a) != differs+header {
		t.Errorf("the header twice: got %s", a.Body)
	}
	// Two bikes are in each now.
	for _, test := range []struct{ key, query, header, want string }{
		{"all", "", "", "a a b b c c"}, {"all", "?subaccount_id=sub_b", "", "b b"}, {"all", "?subaccount_id=sub_c,sub_a", "", "a a c c"}, {"all", "", "sub_a", "a a"},
		{"all", "?subaccount_id=sub_b", "sub_b", "b b"}, {"all", "?subaccount_id=sub_b", "sub_a", differs + header}, {"all", "?subaccount_id=sub_b,sub_a", "sub_a", differs + header},
		{"all", "?subaccount_id=sub_b,sub_x", "", out}, {"all", "?subaccount_id=", "", "400 invalid_parameter invalid_value subaccount_id"},
		{"all", "?subaccount_id=sub_x&subaccount_id=sub_y", "", out}, {"all", "?subaccount_id=sub_c&subaccount_id=sub_a", "", "a a c c"},
		{"a", "?subaccount_id=sub_a&subaccount_id=sub_b", "", out}, {"all", "?subaccount_id=sub_b&subaccount_id=sub_a", "sub_a", differs + header},
		{"all", "?subaccount_id=sub_x&limit=0", "", out}, // 403 comes first
		{"a", "", "", "a a"}, {"a", "?subaccount_id=sub_b", "", out}, {"ab", "", "", "a a b b"}, {"ab", "?subaccount_id=sub_b", "", "b b"},
		{"theirs", "", "", "x"},
	} {
		var headers []string
		if test.header != "" {
			headers = append(headers, header+": "+test.header)
		}
		a := keys[test.key].Get("/bikes"+test.query, headers...)
		got := wrong(a)
		if a.Status == 200 {
			var list struct {
				Data []struct {
					Sub string `json:"subaccount_id"`
				}
			}
			a.JSON(&list)
			var subs []string
			for _, d := range list.Data {
				subs = append(subs, strings.TrimPrefix(d.Sub, "sub_"))
			}
			slices.Sort(subs)
			got = strings.Join(subs, " ")
		}
		if got != test.want {
			t.Errorf("%s %q, header %q: got %s, want %s; %s", test.key, test.query, test.header, got, test.want, a.Body)
		}
	}
	// One record.
	b := keys["all"].Do("POST", "/bikes", `{"code":"1","subaccount_id":"sub_b"}`)
	where := b.Header.Get("Location")
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		body := ""
		if method == "PUT" {
			body = `{"gears":3}`
		}
		for _, test := range []struct{ key, header, want string }{{"a", "", out}, {"ab", "sub_a", out}, {"all", "sub_a", out}, {"theirs", "", "404 not_found"}} {
			headers := []string{}
			if test.header != "" {
				headers = append(headers, header+": "+test.header)
			}
			if got := wrong(keys[test.key].Do(method, where, body, headers...)); got != test.want {
				t.Errorf("%s by %s, header %q: got %s, want %s", method, test.key, test.header, got, test.want)
			}
		}
		if a := keys["ab"].Do(method, where, body, header+": sub_b"); a.Status >= 300 {
			t.Errorf("%s by ab: got %d %s", method, a.Status, a.Body)
		}
	}
	// The account as a whole.
	for key, want := range map[string]string{"all": "200", "a": out, "ab": out} {
		if got := wrong(keys[key].Get("/owner")); got != want {
			t.Errorf("the owner, by %s: got %s, want %s", key, got, want)
		}
	}
	if got := wrong(keys["all"].Get("/owner", header+": sub_a")); got != out {
		t.Errorf("the owner, narrowed to one subaccount: got %s, want %s", got, out)
	}
	// A cursor is bound to the narrowed list.
	var list struct {
		Next string `json:"next_cursor"`
	}
	keys["all"].Get("/bikes?limit=1", header+": sub_a").JSON(&list)
	if a := keys["all"].Get("/bikes?limit=1&cursor="+list.Next, header+": sub_a"); a.Status != 200 {
		t.Errorf("the next page: got %d %s", a.Status, a.Body)
	}
	if a := keys["all"].Get("/bikes?limit=1&cursor=" + list.Next); a.Code() != "invalid_cursor" {
		t.Errorf("the next page of another list: got %d %s", a.Status, a.Body)
	}
	// The document describes the header on every operation.
	type parameter struct {
		Ref string `json:"$ref"`
	}
	var doc struct {
		Paths map[string]map[string]struct{ Parameters []parameter }
	}
	if err := json.Unmarshal(resttest.OpenAPI(t, g.api), &doc); err != nil {
		t.Fatal(err)
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if !slices.Contains(op.Parameters, parameter{"#/components/parameters/" + header}) {
				t.Errorf("%s %s does not name the header", method, path)
			}
		}
	}
	if strings.Contains(string(resttest.OpenAPI(t, open(t).api)), header) {
		t.Error("a service without subaccounts names the header")
	}
}

// TestReplayWithin: a stored answer is not replayed to a key that does not cover its records.
func TestReplayWithin(t *testing.T) {
	g := openGarage(t)
	write := apikey.Permissions{Level: apikey.ReadWrite}
	all, a, b, ab := g.As(g.key(t, ours, write)), g.Client, g.As(g.key(t, ours, write, "sub_b")), g.As(g.key(t, ours, write, "sub_a", "sub_b"))
	made := all.Do("POST", "/bikes", `{"code":"1","subaccount_id":"sub_b"}`, "Idempotency-Key: k1")
	where := made.Header.Get("Location")
	stuck := b.Do("PUT", where, `{"code":"stuck"}`, "Idempotency-Key: k2")
	if made.Status != 201 || stuck.Status != 409 {
		t.Fatalf("got %d %s, %d %s", made.Status, made.Body, stuck.Status, stuck.Body)
	}
	for name, test := range map[string]struct {
		by     *resttest.Client
		header string
		want   bool
	}{"all": {all, "", true}, "b": {b, "", true}, "ab": {ab, "", true}, "a": {a, "", false}, "ab as a": {ab, "sub_a", false}, "ab as b": {ab, "sub_b", true}} {
		headers := []string{"Idempotency-Key: k2"}
		if test.header != "" {
			headers = append(headers, "X-Subaccount-Id: "+test.header)
		}
		got := test.by.Do("PUT", where, `{"code":"stuck"}`, headers...)
		if test.want != (got.Status == 409 && got.Header.Get("Idempotent-Replayed") == "true") || !test.want && got.Code() != "subaccount_out_of_scope" {
			t.Errorf("%s: got %d %s", name, got.Status, got.Body)
		}
	}
	again := ab.Do("POST", "/bikes", `{"code":"1","subaccount_id":"sub_b"}`, "Idempotency-Key: k1")
	if again.Status != 201 || again.Body != made.Body {
		t.Errorf("got %d %s, want %s", again.Status, again.Body, made.Body)
	}
	// Created in the subaccount of the header; an equal request with another header differs.
	if got := ab.Do("POST", "/bikes", `{"code":"2"}`, "Idempotency-Key: k3", "X-Subaccount-Id: sub_b"); got.Status != 201 {
		t.Fatalf("got %d %s", got.Status, got.Body)
	}
	if got := a.Do("POST", "/bikes", `{"code":"2"}`, "Idempotency-Key: k3"); got.Code() != "subaccount_out_of_scope" {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
	if got := b.Do("POST", "/bikes", `{"code":"2"}`, "Idempotency-Key: k3"); got.Status != 201 || got.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
}

// TestNumbers: numeric query parameters.
func TestNumbers(t *testing.T) {
	b := openGarage(t)
	for query, ok := range map[string]bool{
		"lat=52.5": true, "lat=-90": true, "lat=90": true, "lat=1e1": true, "weight=-1e300": true,
		"lat=90.000001": false, "lat=NaN": false, "weight=NaN": false, "weight=Inf": false, "weight=1e999": false, "lat=": false, "lat=1,5": false, "weight=x": false,
	} {
		a := b.Get("/bikes?" + query)
		if ok && a.Status != 200 || !ok && a.Code() != "invalid_parameter" {
			t.Errorf("%s: got %d %s, want it taken: %t", query, a.Status, a.Body, ok)
		}
	}
}

// TestPassing: a body may repeat fields that change with time.
func TestPassing(t *testing.T) {
	b := openGarage(t)
	a := b.Do("POST", "/bikes", `{"code":"a"}`)
	where := a.Header.Get("Location")
	for body, code := range map[string]string{
		`{"gears":3,"distance_meters":17}`:                "",
		`{"created_at":"2020-01-01T00:00:00Z","gears":3}`: "validation_failed",
	} {
		if got := b.Do("PUT", where, body); got.Code() != code {
			t.Errorf("%s: got %d %s, want %q", body, got.Status, got.Body, code)
		}
	}
}
