package app

import "testing"

func TestLoopback(t *testing.T) {
	for baseURL, want := range map[string]bool{
		"http://localhost":                   true,
		"http://localhost:8080":              true,
		"http://LocalHost:8080":              true,
		"http://localhost.:8080":             true,
		"https://kickstand.localhost":        true,
		"http://127.0.0.1:8080":              true,
		"http://127.8.9.10":                  true,
		"http://[::1]:8080":                  true,
		"http://[::ffff:127.0.0.1]:8080":     true,
		"https://help.example.com":           false,
		"http://192.168.1.7:8080":            false,
		"http://0.0.0.0:8080":                false,
		"http://[::]:8080":                   false,
		"https://localhost.example.com":      false,
		"https://notlocalhost":               false,
		"https://127.0.0.1.example.com":      false,
		"https://localhost@help.example.com": false,
		"http://.localhost.example":          false,
		"":                                   false,
		"http://%zz":                         false,
	} {
		if got := (Config{BaseURL: baseURL}).Loopback(); got != want {
			t.Errorf("Loopback of %q = %t, want %t", baseURL, got, want)
		}
	}
}
