package account

// OccupyHasher takes the turn of one hash until release is called.
func (s *Service) OccupyHasher() (release func()) {
	s.hashers <- struct{}{}
	return func() { <-s.hashers }
}
