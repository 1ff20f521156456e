package oidc

var DefaultTransport = defaultTransport
