package rest

// pages are what people read.
type pages struct{}

func (a *API) newPages() (pages, error) { return pages{}, nil }
