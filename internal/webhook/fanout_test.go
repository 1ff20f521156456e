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
	s := &Service{bodies: cache.New[bodyKey, []byte](1, 0)}
	e := event.Event{ID: "0198", Name: event.MessageCreated}
	first, err := s.rendered(&e, payload.Nested)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.rendered(&e, payload.Nested); err != nil || &again[0] != &first[0] {
		t.Errorf("got another body, %v", err)
	}
}
