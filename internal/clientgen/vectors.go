package clientgen

import (
	"encoding/json"
	"fmt"
)

// eventVector is a delivery in form B that all libraries read.
type eventVector struct {
	Name   string `json:"name"`
	Source string `json:"source"` // of the webhook
	Record string `json:"record"` // of the data; "": the library does not know the event
	Body   any    `json:"body"`
}

// addedLater is a member that no library knows.
const addedLater = "added_later"

// generateVectors returns clients/vectors/events.json: the example of each event in the documents, a
// body with all members of each, and an event that no library knows. The latter two have members that
// no library knows, too.
func generateVectors(apis []*API) ([]File, error) {
	var vectors []eventVector
	for _, a := range apis {
		add := func(name, record string, body any) {
			vectors = append(vectors, eventVector{a.Name + ": " + name, a.Name, record, body})
		}
		for _, e := range a.Events {
			if e.Example == nil {
				return nil, fmt.Errorf("the event %s of the %s has no example", e.Name, a.Name)
			}
			data, err := a.whole("data", &e.Data, 0)
			if err != nil {
				return nil, fmt.Errorf("event %s of the %s: %w", e.Name, a.Name, err)
			}
			add(e.Name, e.Data.Record, e.Example)
			add(e.Name+" with all members", e.Data.Record, eventBody(e.Name, data))
		}
		add("an event that was added later", "", eventBody("added.later", map[string]any{addedLater: 1}))
	}
	text, err := json.MarshalIndent(vectors, "", "  ")
	return []File{{Path: "vectors/events.json", Content: append(text, '\n')}}, err
}

func eventBody(event string, data any) any {
	return map[string]any{"id": "evt-1", "event": event, "created_at": "2026-11-21T09:00:00.250Z", "data": data, addedLater: 1}
}

// whole returns a value of a member. Records have all members, arrays and maps one value, and texts are
// the name of the member.
func (a *API) whole(name string, t *Type, depth int) (any, error) {
	if depth > 16 {
		return nil, fmt.Errorf("the record %s contains itself", t.Record)
	}
	switch t.Kind {
	case KindArray:
		item, err := a.whole(name, t.Of, depth+1)
		return []any{item}, err
	case KindMap:
		item, err := a.whole(name, t.Of, depth+1)
		return map[string]any{"key": item}, err
	case KindRecord:
		members := map[string]any{addedLater: 1}
		for _, m := range a.RecordNamed(t.Record).Members {
			value, err := a.whole(m.Name, &m.Type, depth+1)
			if err != nil {
				return nil, err
			}
			members[m.Name] = value
		}
		return members, nil
	case KindAny:
		return map[string]any{addedLater: 1}, nil
	case KindTime:
		return "2026-11-21T09:00:00.250Z", nil
	case KindNumber:
		return 1.5, nil
	case KindString:
		if len(t.Enum) == 0 {
			return name, nil
		}
	}
	return json.RawMessage(scalar(t)), nil
}
