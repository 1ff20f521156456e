package clientgen

import (
	"strings"
	"testing"
)

func TestRubyNames(t *testing.T) {
	for in, want := range map[string]string{"on_hold": "ON_HOLD", "ticket.created": "TICKET_CREATED", "-name": "NAME_DESCENDING", "*": "ANY", "2fa": "VALUE_2FA"} {
		if got := rubyConstant(in); got != want {
			t.Errorf("rubyConstant(%q) is %q, expected %q", in, got, want)
		}
	}
	for in, want := range map[string]string{"hash": "hash_value", "method": "method_value", "member_value": "member_value_value", "value": "value", "subject": "subject"} {
		if got := rubyReader(in); got != want {
			t.Errorf("rubyReader(%q) is %q, expected %q", in, got, want)
		}
	}
}

// Names that the hand-written part or the language has are refused.
func TestRubyRefusesNames(t *testing.T) {
	op := Operation{ID: "createNote", Name: "create", Method: "POST", Path: "/notes/{id}", PathParams: []Param{{Name: "id"}}}
	for name, a := range map[string]*API{
		"Page":      {Name: "helpdesk", Records: []Record{{Name: "page"}}},
		"Transport": {Name: "helpdesk", Enums: []Enum{{Name: "transport"}}},
		"keyword":   {Name: "helpdesk", Records: []Record{{Name: "note_create", Input: true, Members: []Member{{Name: "end"}}}}, Groups: []Group{{Operations: []Operation{op}}}},
		"twice":     {Name: "helpdesk", Records: []Record{{Name: "note_create", Input: true, Members: []Member{{Name: "id"}}}}, Groups: []Group{{Operations: []Operation{op}}}},
	} {
		for i := range a.Groups {
			a.Groups[i].Operations[0].Body = &Type{Kind: KindRecord, Record: "note_create"}
		}
		if _, err := generateRuby([]*API{a}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
