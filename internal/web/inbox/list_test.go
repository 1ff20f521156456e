package inbox_test

import "testing"

func TestList(t *testing.T) {
	h := newHouse(t)
	h.text("+14155550111", "SM1", "Hello?")
	h.SignIn(h.Agent).Page("/inbox").Want("Inbox")
}
