//go:build linux

package settings

import (
	"strings"
	"testing"
)

func TestConfigFromEnv(t *testing.T) {
	for k, v := range map[string]string{
		"CUBBY_PYTHON": "/usr/bin/python3", "CUBBY_NODE": "", "CUBBY_NODE_MISSING": "install node", "CUBBY_BASH": "/bin/bash",
		"CUBBY_TOKEN": "x", "LANG": "C.UTF-8", "HOME": "/root",
	} {
		t.Setenv(k, v)
	}
	c := FromEnv()
	if c.Interpreters[Python] != "/usr/bin/python3" || c.Interpreters[JavaScript] != "" || c.Missing[JavaScript] != "install node" {
		t.Fatalf("%+v", c)
	}
	for _, e := range c.Env {
		if strings.HasPrefix(e, "CUBBY_") || strings.HasPrefix(e, "HOME=") {
			t.Errorf("the code would see %s", e)
		}
	}
}
