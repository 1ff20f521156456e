package importer

import "net/http"

// SetBatch sets the number of tickets of a transaction.
func (s *Service) SetBatch(n int) { s.batch = n }

// SetPublic sets the transport that fetches files.
func (s *Service) SetPublic(t http.RoundTripper) { s.public = t }
