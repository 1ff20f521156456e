package desk

// SmallSteps makes lists work in steps of a few tickets.
func (s *Service) SmallSteps() {
	s.budget = budget{smallSet: 3, probe: 2, minChunk: 2, maxChunk: 5, wordChunk: 3, sortAfter: 4, intersectAfter: 8, largeSet: 12, largeSort: 5, documents: 4, indexEntries: 6, openTickets: 7}
}

// Document returns a search document: its number and its stored words.
func (s *Service) Document(code, number, place int64, text string) (int64, string) {
	first, _ := documentRange(code, number, number)
	return first + place, indexText(s.db.Postgres(), code, text)
}
