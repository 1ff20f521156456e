package desk

// SmallSteps has lists take every turn with a handful of tickets.
func (s *Service) SmallSteps() {
	s.pace = pace{few: 3, probe: 2, first: 2, last: 5, said: 3, scarce: 4, passed: 8, many: 12, sorted: 5, words: 4, entries: 6, tally: 7}
}

// Document is a document of a search: its number and its words as they are stored.
func (s *Service) Document(code, number, place int64, text string) (int64, string) {
	first, _ := docs(code, number, number)
	return first + place, indexed(s.db.Postgres(), code, text)
}
