//go:build linux || darwin

package skill_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/local"
	"github.com/cubby-sandbox/cubby/codeexec/skill"
)

// files is a folder's content, by path.
type files map[string]string

// folder makes a folder of files.
func folder(t *testing.T, all files) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range all {
		full := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(content), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func repository(t *testing.T, roots ...string) *skill.Folders {
	t.Helper()
	repo, err := skill.NewFolders(roots...)
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

func engine(t *testing.T) codeexec.Engine {
	t.Helper()
	e, err := local.NewUnsafe(t.Context(), local.Config{WorkspaceRoot: filepath.Join(t.TempDir(), "run"), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e.Engine()
}

// open returns the tools of a conversation with these skills.
func open(t *testing.T, repo skill.Repository, change func(*skill.Config)) *skill.Tools {
	t.Helper()
	cfg := skill.Config{Repository: repo, Engine: engine(t), ExecutionID: t.Name()}
	if change != nil {
		change(&cfg)
	}
	tools, err := skill.NewTools(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tools.Close(); err != nil {
			t.Error(err)
		}
	})
	return tools
}

func wantCode(t *testing.T, what string, err error, code cubby.Code) {
	t.Helper()
	if cubby.CodeOf(err) != code {
		t.Errorf("%s: got %v (%v), want %v", what, err, cubby.CodeOf(err), code)
	}
}
