// Package e2e tests the whole program in a browser.
//
// Every test starts a program with empty databases and opens its pages in headless
// Chromium. Any rule violation fails the test: an error in the console, an exception in a
// script, a violation of the content security policy, a request to another host.
//
// A table of all pages drives the tests of single pages: layout on wide and narrow
// screens, size, and accessibility. The other tests are user journeys.
//
// Without Chromium the tests are skipped; `.ci/run browser` installs it.
package e2e
