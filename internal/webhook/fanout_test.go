package webhook

import (
	"testing"

	"github.com/kickstand-dev/kickstand/internal/cache"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

func TestPayloadOfJob(t *testing.T) {
	e := event.Event{ID: "0198", Name: event.MessageCreated}
	for _, want := range []jobPayload{{e.ID, "message.created", false}, {e.ID, "message.created", true}} {
		if got := decodePayload(encodePayload(want)); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestEventIsRenderedOnce(t *testing.T) {
	s := &Service{bodies: cache.New[bodyKey, []byte](10, 0)}
	e := event.Event{ID: "0198", Name: event.MessageCreated}
	render := func(start cache.Mark) []byte {
		s.render(&e, payload.Nested, start)
		body, _ := s.bodies.Get(bodyKey{e.ID, payload.Nested})
		return body
	}
	first := render(s.bodies.Start())
	if again := render(s.bodies.Start()); len(first) == 0 || &again[0] != &first[0] {
		t.Errorf("got %q, then another body", first)
	}
	start := s.bodies.Start()
	s.bodies.Delete(bodyKey{e.ID, payload.Nested}) // redacted after the event was read
	if body := render(start); body != nil {
		t.Errorf("got %q of a redacted event", body)
	}
}
