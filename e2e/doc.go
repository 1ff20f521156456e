// Package e2e tests the whole program from where people sit: in a browser.
//
// Every test starts a program of its own, with empty databases, and opens its
// pages in headless Chromium. What a page must never do, whatever the test is
// about, fails it: an error in the console, a script's exception, a breach of the
// content security policy, a request to another host than the program's.
//
// A table of all pages is walked by the tests that look at one page at a time:
// how it is laid out, wide and narrow, what it weighs, and what hinders people who
// do not see it or use no mouse. The other tests follow people through their work.
//
// Without Chromium the tests are skipped; `.ci/run browser` installs it.
package e2e
