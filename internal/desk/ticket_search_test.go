package desk_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
)

func TestSearch(t *testing.T) {
	f := newFixture(t)
	first := f.intake(text(ana, "Die Bremse quietscht, Straße zum Café")).TicketID
	f.intake(text("+4915199999999", "my brake is broken. o'neil said so"))
	f.intake(text("+4915188888888", "ТОРМОЗ сломан 自転車が壊れた"))
	f.index()
	find := func(text string, want ...int64) {
		t.Helper()
		if got := f.numbers(orgA, desk.TicketQuery{Text: text}); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
		if got := f.numbers(orgB, desk.TicketQuery{Text: text}); got != nil {
			t.Errorf("%q of another organization: got %v, want none", text, got)
		}
	}
	find("bremse", 1)
	find("brem", 1)
	find("brem ")
	find("br") // too short for a prefix
	find("STRASSE", 1)
	find("cafe\u0301", 1)
	find("cafe", 1)
	find("O'Neil", 2)
	find("oneil")
	find(`"is broken"`, 2)
	find(`"broken is"`)
	find("broken my", 2)
	find("тормоз", 3)
	find("転車", 3)
	find("車転")
	find(strings.Repeat("x", 400))
	for _, hostile := range []string{`"`, `""`, `*`, `brake*`, `NOT`, `AND`, `a OR b`, `words:brake`, `NEAR(a b)`, `^brake`, `'`, `\`, `:*`, `!`, `&`, `<->`, `(`, "\u200b", "😀", `{words}:x`, `-brake`} {
		if _, _, err := f.desk.FindTickets(t.Context(), f.db, orgA, desk.TicketQuery{Text: hostile}); err != nil {
			t.Errorf("%q: %v", hostile, err)
		}
	}

	if _, err := f.update(orgA, first, desk.Update{Subject: new("Rückfrage")}); err != nil {
		t.Fatal(err)
	}
	f.index()
	find("ruckfrage", 1)
	find("bremse", 1) // its message still has the word
	f.delete(first)
	find("bremse") // before the index is updated, too
	f.index()
	find("ruckfrage")
	if n := f.count("search_pending"); n != 0 {
		t.Errorf("%d are pending, want none", n)
	}
	if n := f.count("search_docs WHERE doc > 0"); n != 4 {
		t.Errorf("%d documents are left, want the subject and the message of each of two others", n)
	}
}

// TestSearchFollows: a message is found soon after its commit, and an ended
// indexer leaves no goroutine behind.
func TestSearchFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fixtureOn(t, dbtest.NewSQLite(t))
		f.intake(text(ana, "before"))
		go f.desk.Run(t.Context())
		for _, word := range []string{"before", "after"} {
			if word == "after" {
				f.intake(text(ana, word))
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if got := f.numbers(orgA, desk.TicketQuery{Text: word}); len(got) != 1 {
				t.Errorf("%q: got %v, want one", word, got)
			}
		}
	})
}

// TestSearchesOfOthers: another organization's messages make no difference.
func TestSearchesOfOthers(t *testing.T) {
	f := newFixture(t)
	f.intake(text(ana, "common rare"))
	other := text(ana, "common")
	other.OrganizationID, other.ConnectionID = orgB, smsB
	f.intake(other)
	f.index()
	for org, want := range map[string]int{orgA: 1, orgB: 0} {
		if got := f.numbers(org, desk.TicketQuery{Text: "rare"}); len(got) != want {
			t.Errorf("%s: got %v, want %d", org, got, want)
		}
		if got := f.numbers(org, desk.TicketQuery{Text: "common"}); len(got) != 1 {
			t.Errorf("%s: got %v, want one", org, got)
		}
	}
}

// TestSearchAfterMoves: messages are found where they are.
func TestSearchAfterMoves(t *testing.T) {
	f := newFixture(t)
	first := f.intake(text(ana, "alpha"))
	f.intake(text(ana, "beta"))
	second := f.intake(text("+4915199999999", "gamma"))
	f.index()
	find := func(text string, want ...int64) {
		t.Helper()
		f.index()
		if got := f.numbers(orgA, desk.TicketQuery{Text: text}); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
	find("beta", 1)
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := f.desk.MergeTx(t.Context(), tx, orgA, first.TicketID, second.TicketID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	find("beta", 2)
	find("gamma", 2)
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := f.desk.UnmergeTx(t.Context(), tx, orgA, first.TicketID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	find("beta", 1)
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := f.desk.SplitTx(t.Context(), tx, orgA, first.TicketID, []string{first.MessageID})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	find("beta", 1)
	find("alpha", 3, 1) // the subject of the first is its first message
}
