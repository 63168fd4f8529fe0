//go:build linux

package fromenv_test

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/container"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
	"github.com/cubby-sandbox/cubby/codeexec/fromenv"
	"github.com/cubby-sandbox/cubby/codeexec/local"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
	"github.com/cubby-sandbox/cubby/embedded"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// clear takes from the environment what could choose or configure.
func clear(t *testing.T) {
	t.Helper()
	for _, name := range []string{fromenv.Variable, fromenv.NetVariable, fromenv.AllowVariable, "E2B_API_URL", "E2B_API_KEY", "CUBE_TEMPLATE_ID", "DOCKER_HOST"} {
		t.Setenv(name, "")
	}
}

// isolation runs code with what New returns and says how it is kept apart.
func isolation(t *testing.T, cfg fromenv.Config) string {
	t.Helper()
	e, err := fromenv.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	r, err := e.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{Code: "print(6*7)"})
	if err != nil || r.Output != "42\n" {
		t.Errorf("got %+v, %v", r, err)
	}
	engine, err := codeexec.EngineOf(e)
	if err != nil {
		t.Fatal(err)
	}
	return engine.Describe().Isolation
}

func TestSandboxIsTheDefault(t *testing.T) {
	for _, value := range []string{"", "sandbox", " Sandbox\n"} {
		clear(t)
		testenv.CheckLeaks(t)
		t.Setenv(fromenv.Variable, value)
		if got := isolation(t, fromenv.Config{}); got != "gvisor" {
			t.Errorf("%q: %s", value, got)
		}
	}
}

func TestE2B(t *testing.T) {
	clear(t)
	server := testenv.Serve(t)
	t.Setenv("E2B_API_URL", server.URL)
	t.Setenv("E2B_API_KEY", server.Key)
	t.Setenv("CUBE_TEMPLATE_ID", "base")
	for _, value := range []string{"e2b", "cube"} {
		t.Setenv(fromenv.Variable, value)
		if got := isolation(t, fromenv.Config{}); got != "remote" {
			t.Errorf("%q: %s", value, got)
		}
	}
}

// What the program says of a server goes before what the environment says.
func TestE2BOfTheProgram(t *testing.T) {
	clear(t)
	server := testenv.Serve(t)
	t.Setenv("E2B_API_URL", "http://127.0.0.1:1")
	cfg := fromenv.Config{Type: fromenv.E2B, E2B: e2b.Config{APIURL: server.URL, APIKey: server.Key, Template: "base"}}
	if got := isolation(t, cfg); got != "remote" {
		t.Errorf("got %s", got)
	}
}

func TestUnsafeLocal(t *testing.T) {
	clear(t)
	t.Setenv(fromenv.Variable, "unsafe_local")
	var log bytes.Buffer
	got := isolation(t, fromenv.Config{
		Logger: slog.New(slog.NewTextHandler(&log, nil)), UnsafeLocal: local.Config{WorkspaceRoot: filepath.Join(t.TempDir(), "run")},
	})
	if got != "none" {
		t.Errorf("got %s", got)
	}
	if !strings.Contains(log.String(), "backend=unsafe_local") || strings.Contains(log.String(), "6*7") {
		t.Errorf("the log is %s", log.String())
	}
}

func TestTypeGivenByTheProgram(t *testing.T) {
	clear(t)
	t.Setenv(fromenv.Variable, "container")
	if got := isolation(t, fromenv.Config{Type: fromenv.UnsafeLocal}); got != "none" {
		t.Errorf("got %s", got)
	}
}

func TestAnotherValueListsThese(t *testing.T) {
	for _, value := range []string{"docker", "local", "unsafe", "none", "sandbox,container"} {
		clear(t)
		t.Setenv(fromenv.Variable, value)
		e, err := fromenv.New(t.Context(), fromenv.Config{})
		if e != nil || cubby.CodeOf(err) != cubby.CodeInvalidArgument {
			t.Fatalf("%q: %v, %v", value, e, err)
		}
		for _, want := range []string{value, fromenv.Variable, "sandbox", "container", "e2b", "cube", "unsafe_local"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: the error does not name %s: %v", value, want, err)
			}
		}
	}
}

// Nothing weaker takes the place of what cannot run.
func TestNothingElseIsChosen(t *testing.T) {
	clear(t)
	noSandbox := fromenv.Config{Sandbox: sandbox.Config{Embedded: embedded.Config{Binary: filepath.Join(t.TempDir(), "cubby")}}}
	for what, tc := range map[string]struct {
		value string
		is    error
		names []string
	}{
		"no sandbox, by default": {"", nil, []string{fromenv.Variable + " is not set", "cubby", "container or e2b"}},
		"no sandbox":             {"sandbox", nil, []string{"chose sandbox", "cubby"}},
		"no Docker":              {"container", container.ErrNoDaemon, []string{"chose container", "Docker"}},
		"no server":              {"e2b", nil, []string{"chose e2b", "E2B_API_URL"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "docker.sock"))
			t.Setenv(fromenv.Variable, tc.value)
			e, err := fromenv.New(t.Context(), noSandbox)
			if e != nil || err == nil || cubby.CodeOf(err) == 0 {
				t.Fatalf("got %v, %v", e, err)
			}
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("got %v, want %v", err, tc.is)
			}
			if tc.value != "" { // the same, when a program chose it: its option has a name of its own
				chosen := noSandbox
				chosen.Type = tc.value
				_, err := fromenv.New(t.Context(), chosen)
				if err == nil || strings.Contains(err.Error(), "Type") || !strings.Contains(err.Error(), "the executor "+tc.value+" cannot run") {
					t.Errorf("chosen by the program: %v", err)
				}
			}
			for _, name := range tc.names {
				if !strings.Contains(err.Error(), name) {
					t.Errorf("the error does not name %q: %v", name, err)
				}
			}
		})
	}
}
