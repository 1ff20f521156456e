package desk

// SmallSteps makes lists work in steps of a few tickets.
func (s *Service) SmallSteps() {
	s.limits = limits{walk: 3, work: 10_000, documents: 4, searched: 10_000, open: 7, customers: 3}
}

// NarrowLimits makes lists refuse pages that examine more than a few tickets.
func (s *Service) NarrowLimits() {
	s.limits = limits{walk: 8, work: 120, documents: 40, searched: 20, open: 7, customers: 3}
}

// PackAll makes PackReports pack any number of changes.
func (s *Service) PackAll() { s.limits.changes = 1 }

// Document returns a search document: its number and its stored words.
func (s *Service) Document(code, number, place int64, text string) (int64, string) {
	first, _ := documentRange(code, number, number)
	return first + place, indexText(s.db.Postgres(), code, text)
}

// AnswerText and AnswerLine are for tests of answers to notices.
var (
	AnswerText  = answerText
	SurvivorIDs = survivorIDs
)

// AnswerLine divides an answer from its notice.
const AnswerLine = answerLine
