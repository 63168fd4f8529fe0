package codeexec

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby"
)

// WorkspaceInitHook prepares a workspace that was made or found.
type WorkspaceInitHook func(ctx context.Context, e Engine, ws Workspace) error

// NewWorkspaceInitExecutor runs hooks, in order, on each workspace that the
// executor's manager makes or finds again. When one fails, CreateWorkspace does,
// and the workspace is cleaned up unless it persists.
func NewWorkspaceInitExecutor(e CodeExecutor, hooks ...WorkspaceInitHook) CodeExecutor {
	return rewire(e, func(own Engine) Engine {
		return engine{initManager{own.Manager(), own, hooks}, own.FS(), own.Runner(), own.Describe()}
	})
}

type initManager struct {
	WorkspaceManager
	own   Engine
	hooks []WorkspaceInitHook
}

func (m initManager) CreateWorkspace(ctx context.Context, execID string, policy WorkspacePolicy) (Workspace, error) {
	ws, err := m.WorkspaceManager.CreateWorkspace(ctx, execID, policy)
	if err != nil {
		return ws, err
	}
	for i, hook := range m.hooks {
		if err := hook(ctx, m.own, ws); err != nil {
			err = fmt.Errorf("hook %d: %w", i, err)
			if !policy.Persist {
				// ctx may be what failed.
				clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
				defer cancel()
				err = errors.Join(err, m.Cleanup(clean, ws))
			}
			return Workspace{}, Fail("create workspace", cubby.CodeInternal, err)
		}
	}
	return ws, nil
}

// InstanceID passes on what the manager below says, if it does.
func (m initManager) InstanceID(ctx context.Context) (string, error) {
	if p, ok := m.WorkspaceManager.(WorkspaceInstanceProvider); ok {
		return p.InstanceID(ctx)
	}
	return "", nil
}

// DefaultMarkerPath is where a bootstrap notes that it is done.
const DefaultMarkerPath = DirWork + "/.bootstrap"

// WorkspaceBootstrapSpec is what a workspace begins with.
type WorkspaceBootstrapSpec struct {
	Files    []WorkspaceFile    `json:"files,omitempty"`
	Inputs   []InputSpec        `json:"inputs,omitempty"`
	Commands []WorkspaceCommand `json:"commands,omitempty"`
	// MarkerPath is a file in the workspace that holds the fingerprint of the spec
	// that was done; empty means [DefaultMarkerPath].
	MarkerPath string `json:"-"`
	// Fingerprint tells specs apart; empty means a hash of the spec. A workspace
	// whose marker has it is left as it is.
	Fingerprint string `json:"-"`
}

// WorkspaceFile is a file to begin with.
type WorkspaceFile struct {
	Path    string `json:"path"`
	Content []byte `json:"content"`
	Mode    uint32 `json:"mode,omitempty"`
}

// WorkspaceCommand is a command to begin with; it must exit with 0.
type WorkspaceCommand struct {
	Cmd     string            `json:"cmd"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	Timeout time.Duration     `json:"timeout,omitempty"`
}

// NewWorkspaceBootstrapHook returns a hook that does a spec once for each
// workspace: files first, then inputs, then commands.
func NewWorkspaceBootstrapHook(spec WorkspaceBootstrapSpec) WorkspaceInitHook {
	marker := cmp.Or(spec.MarkerPath, DefaultMarkerPath)
	return func(ctx context.Context, e Engine, ws Workspace) error {
		fingerprint := spec.Fingerprint
		if fingerprint == "" {
			b, err := json.Marshal(spec)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(b)
			fingerprint = hex.EncodeToString(sum[:])
		}
		done, err := e.FS().Collect(ctx, ws, []string{escapeGlob(marker)})
		if err != nil {
			return err
		}
		if len(done) == 1 && string(done[0].Content) == fingerprint {
			return nil
		}
		if err := spec.do(ctx, e, ws); err != nil {
			return err
		}
		return e.FS().PutFiles(ctx, ws, []PutFile{{Path: marker, Content: []byte(fingerprint)}})
	}
}

// escapeGlob makes a path a pattern for nothing but itself.
func escapeGlob(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune(`*?[]{}\`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

func (spec WorkspaceBootstrapSpec) do(ctx context.Context, e Engine, ws Workspace) error {
	files := make([]PutFile, len(spec.Files))
	for i, f := range spec.Files {
		files[i] = PutFile(f)
	}
	if err := e.FS().PutFiles(ctx, ws, files); err != nil {
		return err
	}
	if len(spec.Inputs) > 0 {
		if err := e.FS().StageInputs(ctx, ws, spec.Inputs); err != nil {
			return err
		}
	}
	for _, c := range spec.Commands {
		r, err := e.Runner().RunProgram(ctx, ws, RunProgramSpec{Cmd: c.Cmd, Args: c.Args, Env: c.Env, Cwd: c.Cwd, Timeout: c.Timeout})
		if err != nil {
			return err
		}
		if r.ExitCode != 0 {
			said, _ := cutMiddle(CleanText(r.Stdout+r.Stderr), 1000, "its output")
			return &cubby.Error{Code: cubby.CodeInternal, Err: fmt.Errorf("%s: exit code %d: %s", c.Cmd, r.ExitCode, strings.TrimSpace(said))}
		}
	}
	return nil
}
