package account

import "context"

// OccupyHasher holds one slot of the hashers until release is called.
func (s *Service) OccupyHasher() (release func()) {
	release, err := s.hashers.acquire(context.Background(), "")
	if err != nil {
		panic(err)
	}
	return release
}

// Prune deletes expired rows, as [Service.Run] does every hour.
func (s *Service) Prune(ctx context.Context) error { return s.deleteExpired(ctx) }
