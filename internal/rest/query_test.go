package rest_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/rest/resttest"
)

type listOf struct {
	Object string     `json:"object"`
	URL    string     `json:"url"`
	Data   []wireNote `json:"data"`
	More   bool       `json:"has_more"`
	Next   *string    `json:"next_cursor"`
}

func TestQueries(t *testing.T) {
	n := open(t)
	for i := range 3 {
		n.Do("POST", "/notes", fmt.Sprintf(`{"text":"n%d","stars":%d}`, i, i))
	}
	n.Do("POST", "/notes", `{"text":"loud","kind":"loud","stars":3}`)
	var all listOf
	n.Get("/notes?sort=created_at").JSON(&all)
	second := all.Data[1].CreatedAt.Std().Format("2006-01-02T15:04:05.000Z")
	for _, test := range []struct{ query, want string }{
		{"", "loud n2 n1 n0"},
		{"?sort=created_at", "n0 n1 n2 loud"},
		{"?sort=-created_at&limit=2", "loud n2"},
		{"?limit=100", "loud n2 n1 n0"},
		{"?kind=loud", "loud"},
		{"?kind=loud,plain", "loud n2 n1 n0"},
		{"?kind=loud%2Cplain", "loud n2 n1 n0"},
		{"?kind=loud&kind=plain", "loud n2 n1 n0"},
		{"?kind=loud,loud&kind=loud", "loud"},
		{"?done=true", ""},
		{"?done=false&kind=loud", "loud"},
		{"?stars[gte]=1&stars[lt]=3", "n2 n1"},
		{"?stars%5Bgt%5D=1&stars%5Blte%5D=3", "loud n2"},
		{"?stars[gt]=0&stars[gte]=2", "loud n2"},
		{"?stars[gte]=5", ""},
		{"?created_at[lt]=0001-01-01T00:00:00Z", ""}, // Go's zero time
		{"?created_at[gte]=2020-01-01T00:00:00Z", "loud n2 n1 n0"},
		{"?created_at[lt]=2020-01-01T00:00:00%2B01:00", ""},
		{"?created_at[gt]=" + all.Data[3].CreatedAt.Std().Add(time.Hour).Format(time.RFC3339), ""},
		{"?sort=created_at&limit=1&created_at[lte]=" + second + "&stars[gte]=1", "n1"}, // compared with the shown precision
		{"?created_at[gte]=" + second + "&stars[lte]=1&stars[gte]=1", "n1"},
	} {
		a := n.Get("/notes" + test.query)
		var got listOf
		a.JSON(&got)
		var texts []string
		for _, d := range got.Data {
			texts = append(texts, d.Text)
		}
		if a.Status != 200 || strings.Join(texts, " ") != test.want || got.Object != "list" || got.URL != "/api/v1/notes" {
			t.Errorf("%s: got %d %s, want %s", test.query, a.Status, a.Body, test.want)
		}
	}
	for _, test := range []struct{ query, parameter string }{
		{"?limit=0", "limit"}, {"?limit=101", "limit"}, {"?limit=x", "limit"}, {"?limit=", "limit"}, {"?limit=5&limit=5", "limit"},
		{"?nothing=1", "nothing"}, {"?kind=quiet", "kind"}, {"?kind=loud,", "kind"}, {"?kind[gte]=loud", "kind[gte]"}, {"?kind[]=loud", "kind[]"}, {"?done%5B%5D=true", "done[]"}, {"?created_at[]=2020-01-01T00:00:00Z", "created_at[]"}, {"?done=true&done=true", "done"},
		{"?done=1", "done"}, {"?stars=1", "stars"}, {"?stars[eq]=1", "stars[eq]"}, {"?stars[gte]=1.5", "stars[gte]"}, {"?stars[gte]=99999999999999999999", "stars[gte]"},
		{"?created_at[gte]=2020-01-01", "created_at[gte]"}, {"?created_at[gte]=2020-01-01T00:00:00", "created_at[gte]"}, {"?created_at[gte]=2020-01-01T00:00:00+01:00", "created_at[gte]"},
		{"?sort=text", "sort"}, {"?sort=--created_at", "sort"}, {"?expand[]=nobody", "expand[]"}, {"?expand[]=author&expand[]=author", "expand[]"}, {"?expand=author", "expand"},
		{"?q=", "q"}, {"?q=12345678901", "q"}, {"?q=%00", "q"}, {"?q=%ff", "q"}, {"?constructor[", "constructor["},
	} {
		a := n.Get("/notes" + test.query)
		p := a.Problem()
		if a.Status != 400 || p.Code != "invalid_parameter" || len(p.Errors) != 1 || p.Errors[0].Parameter != test.parameter {
			t.Errorf("%s: got %d %s, want 400 about %s", test.query, a.Status, a.Body, test.parameter)
		}
	}
	if p := n.Get("/notes?limit=0&done=1&x=1").Problem(); len(p.Errors) != 3 || p.Detail != "3 parameters are not valid." {
		t.Errorf("three faults: got %+v", p)
	}
	if a := n.Get("/notes?%zz"); a.Status != 400 || a.Code() != "invalid_parameter" {
		t.Errorf("not well formed: got %d %s", a.Status, a.Body)
	}
	if a := n.Get("/key?x=1"); a.Status != 400 {
		t.Errorf("a parameter where there are none: got %d", a.Status)
	}
	var got listOf
	n.Get("/notes?expand[]=author&limit=1").JSON(&got)
	if got.Data[0].Author == nil || got.Data[0].Author.Name != "Ada" {
		t.Errorf("expanded: got %+v", got.Data)
	}
}

func TestCursors(t *testing.T) {
	n := open(t)
	for i := range 5 {
		n.add(t, fmt.Sprintf("n%d", i))
	}
	a := n.Get("/notes?limit=2&kind=plain&sort=created_at")
	var first listOf
	a.JSON(&first)
	if !first.More || first.Next == nil || len(first.Data) != 2 {
		t.Fatalf("first page: got %s", a.Body)
	}
	link := a.Header.Get("Link")
	address, ok := strings.CutSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
	u, err := url.Parse(address)
	if !ok || err != nil || u.Host != "api.example.com" || u.Query().Get("cursor") != *first.Next || u.Query().Get("kind") != "plain" {
		t.Fatalf("Link: got %s", link)
	}
	var texts []string
	for next := u.RequestURI(); next != ""; {
		a := n.Get(next)
		var page listOf
		a.JSON(&page)
		for _, d := range page.Data {
			texts = append(texts, d.Text)
		}
		if next = ""; page.More {
			u, _ := url.Parse(strings.TrimSuffix(strings.TrimPrefix(a.Header.Get("Link"), "<"), `>; rel="next"`))
			next = u.RequestURI()
		} else if page.Next != nil || a.Header.Get("Link") != "" {
			t.Errorf("last page: got %s with Link %q", a.Body, a.Header.Get("Link"))
		}
	}
	if got := strings.Join(texts, " "); got != "n2 n3 n4" {
		t.Errorf("the rest: got %s, want n2 n3 n4", got)
	}
	c := url.QueryEscape(*first.Next)
	whole, err := base64.RawURLEncoding.DecodeString(c)
	if err != nil {
		t.Fatal(err)
	}
	// Clients can forge cursors, so the position can be anything.
	for _, position := range []string{`{"id":"\u0000"}`, `{"id":"a","id":"b"}`, `{"id":"` + "\xff" + `"}`, `{"id":1}`, `{"no":1}`, `["a"]`, `{"id":"a"} 1`} {
		forged := base64.RawURLEncoding.EncodeToString(append(whole[:8:8], position...))
		if a := n.Get("/notes?sort=created_at&kind=plain&cursor=" + forged); a.Status != 400 || a.Code() != "invalid_cursor" {
			t.Errorf("forged %q: got %d %s", position, a.Status, a.Body)
		}
	}
	for query, want := range map[string]int{
		"?sort=created_at&kind=plain&cursor=" + c:          200, // another limit is fine
		"?kind=plain&cursor=" + c:                          400, // another order
		"?sort=created_at&cursor=" + c:                     400, // other filters
		"?sort=created_at&kind=loud&cursor=" + c:           400,
		"?sort=created_at&kind=plain&cursor=":              400,
		"?sort=created_at&kind=plain&cursor=x":             400,
		"?sort=created_at&kind=plain&cursor=" + c[:10]:     400,
		"?sort=created_at&kind=plain&cursor=" + c + "AAAA": 400,
		"?sort=created_at&kind=plain&cursor=" + c + "=":    400,
	} {
		a := n.Get("/notes" + query)
		if a.Status != want || want == 400 && a.Code() != "invalid_cursor" {
			t.Errorf("%s: got %d %s, want %d", query, a.Status, a.Body, want)
		}
	}
}

// TestCursorWalkLosesNothing pages through a list while records are added and deleted: records
// present throughout appear exactly once.
func TestCursorWalkLosesNothing(t *testing.T) {
	n := open(t)
	r := rand.New(rand.NewPCG(1, 2))
	stay, all := map[string]bool{}, []string{}
	for i := range 40 {
		id := n.add(t, fmt.Sprintf("n%d", i)).ID
		all = append(all, id)
		stay[id] = i%3 != 0
	}
	for _, order := range []string{"created_at", "-created_at"} {
		met := map[string]int{}
		for query := resttest.Query("limit", "3", "sort", order); query != ""; {
			var page listOf
			n.Get("/notes" + query).JSON(&page)
			for _, d := range page.Data {
				met[d.ID]++
			}
			if query = ""; page.Next != nil {
				query = resttest.Query("limit", "3", "sort", order, "cursor", *page.Next)
			}
			n.add(t, "new")
			if gone := all[r.IntN(len(all))]; !stay[gone] {
				n.Do("DELETE", "/notes/"+gone, "")
			}
			if len(met) > 200 {
				break // records are added as fast as pages are read
			}
		}
		for _, id := range all {
			if stay[id] && met[id] != 1 {
				t.Errorf("%s: %s was met %d times, want once", order, id, met[id])
			}
		}
		for id, times := range met {
			if times > 1 {
				t.Errorf("%s: %s was met %d times", order, id, times)
			}
		}
	}
}
