package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestUnit checks the unit of systemd: no unknown setting, and little exposure.
func TestUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("units are checked by systemd-analyze")
	}
	// The program need not be installed here.
	unit := filepath.Join(t.TempDir(), "kickstand.service")
	text := run(t, root, "sed", "s|^ExecStart=.*|ExecStart=/bin/true|", "deploy/systemd/kickstand.service")
	write(t, unit, text)
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "kickstand.service") {
			t.Error(line)
		}
	}
	if err != nil {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	rated := run(t, "", "systemd-analyze", "security", "--offline=yes", unit)
	m := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindStringSubmatch(rated)
	if m == nil {
		t.Fatalf("systemd-analyze security does not rate the unit:\n%s", rated)
	}
	if level, err := strconv.ParseFloat(m[1], 64); err != nil || level > 1.2 {
		t.Errorf("the exposure level is %s, documented is 1.2", m[1])
	}
}
