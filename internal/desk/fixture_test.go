package desk_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// Two organizations, each with a number and a mail address.
const (
	orgA  = "0190c0de-0000-7000-8000-00000000000a"
	orgB  = "0190c0de-0000-7000-8000-00000000000b"
	smsA  = "0190c0de-0000-7000-8000-0000000000a1"
	smsA2 = "0190c0de-0000-7000-8000-0000000000a2"
	smsB  = "0190c0de-0000-7000-8000-0000000000b1"
	mailA = "0190c0de-0000-7000-8000-0000000000a3"
	saleA = "0190c0de-0000-7000-8000-0000000000a4"
	mailB = "0190c0de-0000-7000-8000-0000000000b3"

	graceID = "0190c0de-0000-7000-8000-0000000000d1"
	heidiID = "0190c0de-0000-7000-8000-0000000000d2"
)

// staff implements [desk.Directory] and [desk.Addresses].
type staff struct{}

var people = map[string]event.Person{
	orgA + graceID: {ID: graceID, Name: "Grace", Email: "grace@a.example"},
	orgB + heidiID: {ID: heidiID, Name: "Heidi", Email: "heidi@b.example"},
}

func (staff) Agent(_ context.Context, _ db.Querier, org, id string) (event.Person, bool, error) {
	p, ok := people[org+id]
	return p, ok, nil
}

func (staff) AgentByEmail(_ context.Context, _ db.Querier, org, email string) (event.Person, bool, error) {
	for key, p := range people {
		if strings.HasPrefix(key, org) && strings.EqualFold(p.Email, email) {
			return p, true, nil
		}
	}
	return event.Person{}, false, nil
}

func (staff) Agents(_ context.Context, _ db.Querier, org string) (list []event.Person, err error) {
	for _, key := range slices.Sorted(maps.Keys(people)) {
		if strings.HasPrefix(key, org) {
			list = append(list, people[key])
		}
	}
	return list, nil
}

// preferences are those of members in tests of notices, by id. Others have none.
var preferences sync.Map

func (staff) Preferences(_ context.Context, _ db.Querier, org string, ids []string) (map[string]json.RawMessage, error) {
	found := make(map[string]json.RawMessage)
	for _, id := range ids {
		if _, ok := people[org+id]; ok {
			found[id] = json.RawMessage("{}")
			if p, ok := preferences.Load(id); ok {
				found[id] = p.(json.RawMessage)
			}
		}
	}
	return found, nil
}

func (staff) Owns(_ context.Context, _ db.Querier, org, ticketChannel, address string) (bool, error) {
	switch org + " " + ticketChannel + " " + address {
	case orgA + " email support@a.example", orgA + " email sales@a.example", orgB + " email support@b.example":
		return true, nil
	}
	return false, nil
}

type fixture struct {
	testing.TB
	db    *db.DB
	queue *queue.Queue
	desk  *desk.Service
	blob  blob.Store

	events *event.Log

	mu  sync.Mutex
	log []event.Event // all emitted events, in order, after their commit
}

func newFixture(t testing.TB, change ...func(*desk.Config)) *fixture {
	t.Helper()
	return fixtureOn(t, dbtest.New(t), change...)
}

func fixtureOn(t testing.TB, d *db.DB, change ...func(*desk.Config)) *fixture {
	t.Helper()
	files, err := blob.Open("file:"+t.TempDir(), blob.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	events := new(event.Log)
	f := &fixture{TB: t, db: d, queue: queue.Open(d, queue.Config{Lease: time.Hour, Poll: time.Hour}), blob: files, events: events}
	c := desk.Config{
		DB: d, Queue: f.queue, Events: events, Blob: files, Directory: staff{}, Addresses: staff{}, BaseURL: "https://desk.example/",
		CopyMAC: func(org, header string) (string, bool) {
			id, mac, _ := strings.Cut(header, ".")
			return id, mac == "mac-of-"+org
		},
	}
	for _, f := range change {
		f(&c)
	}
	f.desk = desk.Open(c)
	if _, ok := t.(*testing.B); !ok {
		events.AfterCommit(func(e []event.Event) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.log = append(f.log, e...)
		})
	}
	return f
}
