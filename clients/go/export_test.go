package kickstand

// SetRandom replaces the random numbers of waits.
func (o *Options) SetRandom(f func() float64) { o.random = f }
