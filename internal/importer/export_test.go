package importer

// SetBatch sets the number of tickets of a transaction.
func (s *Service) SetBatch(n int) { s.batch = n }
