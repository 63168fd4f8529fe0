package codeexectest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/artifact"
	"github.com/cubby-sandbox/cubby/codeexec/internal/artifactctx"
)

// WorkspaceTraits say what an engine's workspaces differ in.
type WorkspaceTraits struct {
	// Root is where workspaces are to be; empty accepts any.
	Root string
	// MaxOutput is the bound of a program's stdout, in bytes.
	MaxOutput int
	// NoTTY says that programs cannot have a terminal there; StartProgram must
	// then refuse one.
	NoTTY bool
}

// Workspaces runs the suite for engines: every method of manager, file system and
// runner, hostile input, hostile workspaces.
func Workspaces(t *testing.T, open func(t *testing.T) codeexec.Engine, traits WorkspaceTraits) {
	w := workspaces{open: open, traits: traits}
	t.Run("Manager", w.manager)
	t.Run("PutFiles", w.putFiles)
	t.Run("StageDirectory", w.stageDirectory)
	t.Run("StageInputs", w.stageInputs)
	t.Run("RunProgram", w.runProgram)
	t.Run("Limits", w.limits)
	t.Run("StartProgram", w.startProgram)
	t.Run("Collect", w.collect)
	t.Run("CollectOutputs", w.collectOutputs)
	t.Run("Hostile", w.hostile)
}

type workspaces struct {
	open   func(t *testing.T) codeexec.Engine
	traits WorkspaceTraits
}

// place is a workspace to try things in.
type place struct {
	codeexec.Engine
	ws codeexec.Workspace
}

func (w workspaces) place(t *testing.T) place {
	t.Helper()
	return newPlace(t, w.open(t))
}

func newPlace(t *testing.T, e codeexec.Engine) place {
	t.Helper()
	ws, err := e.Manager().CreateWorkspace(t.Context(), "suite", codeexec.WorkspacePolicy{})
	if err != nil {
		t.Fatalf("CreateWorkspace: %v", err)
	}
	t.Cleanup(func() {
		if err := e.Manager().Cleanup(context.Background(), ws); err != nil {
			t.Errorf("Cleanup: %v", err)
		}
	})
	return place{e, ws}
}

// sh runs a shell script, which must succeed, and returns its output.
func (p place) sh(t *testing.T, script string) string {
	t.Helper()
	r, err := p.Runner().RunProgram(t.Context(), p.ws, codeexec.RunProgramSpec{Cmd: "sh", Args: []string{"-c", script}, Timeout: time.Minute})
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("%s: %+v, %v", script, r, err)
	}
	return r.Stdout
}

func (p place) put(t *testing.T, files ...codeexec.PutFile) {
	t.Helper()
	if err := p.FS().PutFiles(t.Context(), p.ws, files); err != nil {
		t.Fatalf("PutFiles: %v", err)
	}
}

func (p place) collect(t *testing.T, patterns ...string) map[string]string {
	t.Helper()
	files, err := p.FS().Collect(t.Context(), p.ws, patterns)
	if err != nil {
		t.Fatalf("Collect(%q): %v", patterns, err)
	}
	got := map[string]string{}
	for _, f := range files {
		got[f.Name] = string(f.Content)
	}
	return got
}

func wantCode(t *testing.T, what string, err error, codes ...cubby.Code) {
	t.Helper()
	if err == nil || !slices.Contains(codes, cubby.CodeOf(err)) {
		t.Errorf("%s: got %v (%v), want one of the codes %v", what, err, cubby.CodeOf(err), codes)
	}
}

func same(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for name, content := range want {
		if g, ok := got[name]; !ok {
			t.Errorf("%s: %s is missing", what, name)
		} else if g != content {
			t.Errorf("%s: %s is %.100q, want %.100q", what, name, g, content)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %q was not expected", what, name)
		}
	}
}

func (w workspaces) manager(t *testing.T) {
	e := w.open(t)
	m := e.Manager()
	ctx := t.Context()

	t.Run("a workspace is ws_ID_TIME with its four folders", func(t *testing.T) {
		ws, err := m.CreateWorkspace(ctx, "demo-1", codeexec.WorkspacePolicy{})
		if err != nil {
			t.Fatal(err)
		}
		if ws.ID != "demo-1" || !strings.HasPrefix(path.Base(ws.Path), "ws_demo-1_") {
			t.Errorf("got %+v", ws)
		}
		if w.traits.Root != "" && path.Dir(ws.Path) != w.traits.Root {
			t.Errorf("%s is not in %s", ws.Path, w.traits.Root)
		}
		out := place{e, ws}.sh(t, "ls -d */ | tr '\\n' ' '; test -f metadata.json && echo record")
		if want := "out/ runs/ skills/ work/ record\n"; out != want {
			t.Errorf("it holds %q, want %q", out, want)
		}
		if err := m.Cleanup(ctx, ws); err != nil {
			t.Error(err)
		}
	})
	t.Run("each is new, one that persists is found again", func(t *testing.T) {
		for _, persist := range []bool{false, true} {
			a, err := m.CreateWorkspace(ctx, "twice", codeexec.WorkspacePolicy{Persist: persist})
			if err != nil {
				t.Fatal(err)
			}
			place{e, a}.put(t, codeexec.PutFile{Path: "work/kept", Content: []byte("x")})
			b, err := m.CreateWorkspace(ctx, "twice", codeexec.WorkspacePolicy{Persist: persist})
			if err != nil {
				t.Fatal(err)
			}
			if (a == b) != persist {
				t.Errorf("persist %v: %+v and %+v", persist, a, b)
			}
			if _, kept := (place{e, b}.collect(t, "work/*"))["work/kept"]; kept != persist {
				t.Errorf("persist %v: the file is there: %v", persist, kept)
			}
			if err := m.CleanupID(ctx, "twice"); err != nil {
				t.Error(err)
			}
			for _, ws := range []codeexec.Workspace{a, b} {
				_, err := e.Runner().RunProgram(ctx, ws, codeexec.RunProgramSpec{Cmd: "true"})
				if !errors.Is(err, codeexec.ErrWorkspaceGone) {
					t.Errorf("after CleanupID: %v", err)
				}
			}
		}
	})
	t.Run("ids that look alike are apart", func(t *testing.T) {
		a, err1 := m.CreateWorkspace(ctx, "a/b", codeexec.WorkspacePolicy{Persist: true})
		b, err2 := m.CreateWorkspace(ctx, "a_b", codeexec.WorkspacePolicy{Persist: true})
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if a.Path == b.Path {
			t.Errorf("both are %s", a.Path)
		}
		if err := m.CleanupID(ctx, "a/b"); err != nil {
			t.Error(err)
		}
		place{e, b}.sh(t, "true")
		if err := m.CleanupID(ctx, "a_b"); err != nil {
			t.Error(err)
		}
	})
	t.Run("ids that are hostile stay below the root", func(t *testing.T) {
		for _, id := range []string{"", "../../etc", "/abs", "a b;rm -rf $HOME", "ü\x00\n", strings.Repeat("x", 3000)} {
			ws, err := m.CreateWorkspace(ctx, id, codeexec.WorkspacePolicy{})
			if err != nil {
				t.Errorf("%.20q: %v", id, err)
				continue
			}
			base := path.Base(ws.Path)
			if !strings.HasPrefix(base, "ws_") || len(base) > 100 || strings.Contains(ws.Path, "..") {
				t.Errorf("%.20q: %s", id, ws.Path)
			}
			if err := m.CleanupID(ctx, id); err != nil {
				t.Errorf("%.20q: %v", id, err)
			}
		}
	})
	t.Run("what is gone is gone", func(t *testing.T) {
		ws, err := m.CreateWorkspace(ctx, "gone", codeexec.WorkspacePolicy{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time is no error either
			if err := m.Cleanup(ctx, ws); err != nil {
				t.Error(err)
			}
		}
		if err := e.FS().PutFiles(ctx, ws, []codeexec.PutFile{{Path: "a"}}); !errors.Is(err, codeexec.ErrWorkspaceGone) {
			t.Errorf("PutFiles: %v", err)
		}
		if _, err := e.FS().Collect(ctx, ws, []string{"**"}); !errors.Is(err, codeexec.ErrWorkspaceGone) {
			t.Errorf("Collect: %v", err)
		}
		if _, err := e.Runner().RunProgram(ctx, ws, codeexec.RunProgramSpec{Cmd: "true"}); !errors.Is(err, codeexec.ErrWorkspaceGone) {
			t.Errorf("RunProgram: %v", err)
		} else if !codeexec.IsWorkspaceRetrySafe(err) {
			t.Error("nothing ran: that is safe to do again")
		}
	})
	t.Run("a folder that is no workspace is refused", func(t *testing.T) {
		for _, p := range []string{"", "/", "/etc", "/tmp", "relative", path.Join(w.root(t, e), "other"), w.root(t, e) + "/ws_x/../../.."} {
			ws := codeexec.Workspace{ID: "x", Path: p}
			wantCode(t, "Cleanup "+p, m.Cleanup(ctx, ws), cubby.CodeInvalidArgument)
			wantCode(t, "PutFiles "+p, e.FS().PutFiles(ctx, ws, []codeexec.PutFile{{Path: "a"}}), cubby.CodeInvalidArgument)
			_, err := e.Runner().RunProgram(ctx, ws, codeexec.RunProgramSpec{Cmd: "true"})
			wantCode(t, "RunProgram "+p, err, cubby.CodeInvalidArgument)
			_, err = e.FS().Collect(ctx, ws, []string{"**"})
			wantCode(t, "Collect "+p, err, cubby.CodeInvalidArgument)
		}
	})
	t.Run("cleaning up ends what runs, and takes what is protected", func(t *testing.T) {
		p := newPlace(t, e)
		s, err := e.Runner().StartProgram(ctx, p.ws,
			codeexec.InteractiveProgramSpec{RunProgramSpec: codeexec.RunProgramSpec{Cmd: "sleep", Args: []string{"600"}}})
		if err != nil {
			t.Fatal(err)
		}
		p.sh(t, "mkdir work/ro && touch work/ro/f && chmod 400 work/ro/f && chmod 500 work/ro")
		if err := m.Cleanup(ctx, p.ws); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Wait(ctx); err == nil && r.ExitCode == 0 {
			t.Errorf("the program went on: %+v", r)
		}
	})
}

// root is where the engine's workspaces are.
func (w workspaces) root(t *testing.T, e codeexec.Engine) string {
	t.Helper()
	return path.Dir(newPlace(t, e).ws.Path)
}

func (w workspaces) putFiles(t *testing.T) {
	p := w.place(t)
	t.Run("content, modes, parents", func(t *testing.T) {
		big := strings.Repeat("0123456789abcdef", 1<<16)
		p.put(t,
			codeexec.PutFile{Path: "work/a.txt", Content: []byte("a\n")},
			codeexec.PutFile{Path: "work/deep/er/run.sh", Content: []byte("#!/bin/sh\necho ran\n"), Mode: 0o755},
			codeexec.PutFile{Path: "work/empty"},
			codeexec.PutFile{Path: "work/-rf *'\" ü", Content: []byte{0, 255, 10, 13}},
			codeexec.PutFile{Path: "./work//big", Content: []byte(big)},
			codeexec.PutFile{Path: "top", Content: []byte("t")},
		)
		same(t, "collected", p.collect(t, "work/**", "top"), map[string]string{
			"work/a.txt": "a\n", "work/deep/er/run.sh": "#!/bin/sh\necho ran\n", "work/empty": "",
			"work/-rf *'\" ü": "\x00\xff\n\r", "work/big": big, "top": "t",
		})
		if out := p.sh(t, "./work/deep/er/run.sh; stat -c %a work/a.txt work/deep/er/run.sh"); out != "ran\n644\n755\n" {
			t.Errorf("got %q", out)
		}
	})
	t.Run("a file is replaced", func(t *testing.T) {
		p.put(t, codeexec.PutFile{Path: "work/r", Content: []byte("longer than the next")})
		p.put(t, codeexec.PutFile{Path: "work/r", Content: []byte("short")})
		if got := p.collect(t, "work/r")["work/r"]; got != "short" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("paths outside are refused, and nothing is written", func(t *testing.T) {
		for _, bad := range badPaths {
			err := p.FS().PutFiles(t.Context(), p.ws, []codeexec.PutFile{{Path: "work/before", Content: []byte("x")}, {Path: bad, Content: []byte("x")}})
			wantCode(t, fmt.Sprintf("PutFiles(%.40q)", bad), err, cubby.CodeInvalidArgument)
		}
		if got := p.collect(t, "work/before"); len(got) > 0 {
			t.Errorf("a part was written: %v", got)
		}
	})
	t.Run("nothing at all", func(t *testing.T) { p.put(t) })
}

var badPaths = []string{
	"", ".", "..", "../x", "work/../../x", "/etc/passwd", "a\x00b", "a\nb", "a\\b", "\xff", "work/\u202e",
	strings.Repeat("x", 2000),
}

func (w workspaces) stageDirectory(t *testing.T) {
	p := w.place(t)
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) {
		t.Helper()
		full := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(content), mode),
			os.Chmod(full, mode)); err != nil {
			t.Fatal(err)
		}
	}
	write("SKILL.md", "# Skill\n", 0o644)
	write("scripts/run.sh", "#!/bin/sh\necho skill\n", 0o755)
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "nothing"), 0o755), os.Symlink("SKILL.md", filepath.Join(dir, "link.md"))); err != nil {
		t.Fatal(err)
	}
	stage := func(t *testing.T, src, to string, opt codeexec.StageOptions) error {
		t.Helper()
		return p.FS().StageDirectory(t.Context(), p.ws, src, to, opt)
	}
	t.Run("a tree with modes, empty folders, links inside", func(t *testing.T) {
		if err := stage(t, dir, "skills/x", codeexec.StageOptions{}); err != nil {
			t.Fatal(err)
		}
		same(t, "staged", p.collect(t, "skills/x/**"), map[string]string{
			"skills/x/SKILL.md": "# Skill\n", "skills/x/scripts/run.sh": "#!/bin/sh\necho skill\n", "skills/x/link.md": "# Skill\n",
		})
		if out := p.sh(t, "./skills/x/scripts/run.sh && test -d skills/x/nothing && test -w skills/x/SKILL.md && echo writable"); out != "skill\nwritable\n" {
			t.Errorf("got %q", out)
		}
	})
	t.Run("read-only", func(t *testing.T) {
		for range 2 { // and again, in the same place
			if err := stage(t, dir, "skills/ro", codeexec.StageOptions{ReadOnly: true, AllowLink: true}); err != nil {
				t.Fatal(err)
			}
		}
		// Root may write all the same: the modes are what counts.
		out := p.sh(t, "./skills/ro/scripts/run.sh; find -L skills/ro \\( -type f -o -type d \\) -perm /222 -print | head -3")
		if out != "skill\n" {
			t.Errorf("got %q", out)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "SKILL.md")); err != nil || string(got) != "# Skill\n" {
			t.Errorf("the source is now %q, %v", got, err)
		}
	})
	t.Run("what is no file is named", func(t *testing.T) {
		bad := t.TempDir()
		for name, make := range map[string]func(string) error{
			"link-out":  func(n string) error { return os.Symlink("/etc/hostname", n) },
			"link-dead": func(n string) error { return os.Symlink("nowhere", n) },
			"link-loop": func(n string) error { return os.Symlink(".", n) },
			"pipe":      func(n string) error { return mkfifo(n) },
		} {
			full := filepath.Join(bad, name)
			if err := make(full); err != nil {
				t.Fatal(err)
			}
			err := stage(t, bad, "work/bad", codeexec.StageOptions{})
			wantCode(t, name, err, cubby.CodeInvalidArgument, cubby.CodeNotFound)
			if err != nil && !strings.Contains(err.Error(), name) {
				t.Errorf("%s: the error does not name it: %v", name, err)
			}
			if err := os.Remove(full); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("no such folder, or no such place", func(t *testing.T) {
		wantCode(t, "missing", stage(t, filepath.Join(dir, "none"), "work/n", codeexec.StageOptions{}), cubby.CodeNotFound, cubby.CodeInvalidArgument)
		for _, bad := range []string{"..", "/abs", "work/../../x"} {
			wantCode(t, bad, stage(t, dir, bad, codeexec.StageOptions{}), cubby.CodeInvalidArgument)
		}
	})
}

func (w workspaces) stageInputs(t *testing.T) {
	p := w.place(t)
	store := &artifact.Memory{}
	info := artifact.SessionInfo{AppName: "app", UserID: "user", SessionID: "session"}
	ctx := codeexec.WithArtifactSession(codeexec.WithArtifactService(t.Context(), store), info)
	save := func(content string) {
		t.Helper()
		if _, err := artifactctx.Save(ctx, "data.csv", []byte(content), "text/csv"); err != nil {
			t.Fatal(err)
		}
	}
	save("v0")
	save("v1")
	stage := func(inputs ...codeexec.InputSpec) error { return p.FS().StageInputs(ctx, p.ws, inputs) }
	host := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(host, "h.txt"), []byte("host"), 0o600), os.Mkdir(filepath.Join(host, "d"), 0o755),
		os.WriteFile(filepath.Join(host, "d", "e"), []byte("e"), 0o644)); err != nil {
		t.Fatal(err)
	}
	p.put(t, codeexec.PutFile{Path: "work/own", Content: []byte("own")}, codeexec.PutFile{Path: "skills/s/f", Content: []byte("skill")})

	t.Run("every scheme, in one call", func(t *testing.T) {
		if err := stage(
			codeexec.InputSpec{From: "artifact://data.csv"},
			codeexec.InputSpec{From: "artifact://data.csv@0", To: "work/old.csv", ReadOnly: true},
			codeexec.InputSpec{From: "host://" + filepath.Join(host, "h.txt")},
			codeexec.InputSpec{From: "host://" + filepath.Join(host, "d"), To: "work/d"},
			codeexec.InputSpec{From: "workspace://work/own", To: "work/copy"},
			codeexec.InputSpec{From: "workspace://work/own", To: "work/link", Mode: "link"},
			codeexec.InputSpec{From: "workspace://work/old.csv", To: "work/again/x y", ReadOnly: true},
			codeexec.InputSpec{From: "skill://s/f"},
		); err != nil {
			t.Fatal(err)
		}
		got := p.collect(t, "work/**")
		delete(got, "work/link") // a second name of work/own
		same(t, "staged", got, map[string]string{
			"work/inputs/data.csv": "v1", "work/old.csv": "v0", "work/inputs/h.txt": "host", "work/d/e": "e", "work/own": "own",
			"work/copy": "own", "work/again/x y": "v0", "work/inputs/f": "skill",
		})
		if out := p.sh(t, "echo more >> work/link; cat work/own; stat -c %a work/old.csv 'work/again/x y'"); out != "ownmore\n444\n444\n" {
			t.Errorf("got %q", out)
		}
	})
	t.Run("a pin keeps the first version", func(t *testing.T) {
		pin := codeexec.InputSpec{From: "artifact://data.csv", To: "work/pinned", Pin: true}
		for range 2 {
			if err := stage(pin); err != nil {
				t.Fatal(err)
			}
			if got := p.collect(t, "work/pinned")["work/pinned"]; got != "v1" {
				t.Errorf("got %q", got)
			}
			save("newer")
		}
		pin.Pin = false
		if err := stage(pin); err != nil {
			t.Fatal(err)
		}
		if got := p.collect(t, "work/pinned")["work/pinned"]; got != "newer" {
			t.Errorf("without a pin: %q", got)
		}
	})
	t.Run("bad inputs", func(t *testing.T) {
		for _, tc := range []struct {
			in    codeexec.InputSpec
			codes []cubby.Code
		}{
			{codeexec.InputSpec{}, nil},
			{codeexec.InputSpec{From: "data.csv"}, nil},
			{codeexec.InputSpec{From: "https://example.org/x"}, nil},
			{codeexec.InputSpec{From: "artifact://"}, nil},
			{codeexec.InputSpec{From: "host://relative"}, nil},
			{codeexec.InputSpec{From: "workspace://../x"}, nil},
			{codeexec.InputSpec{From: "workspace:///etc/passwd"}, nil},
			{codeexec.InputSpec{From: "skill://../../x"}, nil},
			{codeexec.InputSpec{From: "workspace://work/own", To: "../x"}, nil},
			{codeexec.InputSpec{From: "workspace://work/own", Mode: "move"}, nil},
			{codeexec.InputSpec{From: "workspace://work", To: "work/sub"}, nil},
			{codeexec.InputSpec{From: "artifact://none"}, []cubby.Code{cubby.CodeNotFound}},
			{codeexec.InputSpec{From: "artifact://data.csv@99"}, []cubby.Code{cubby.CodeNotFound}},
			{codeexec.InputSpec{From: "workspace://work/none"}, []cubby.Code{cubby.CodeNotFound}},
			{codeexec.InputSpec{From: "host://" + filepath.Join(host, "none")}, []cubby.Code{cubby.CodeNotFound}},
		} {
			codes := tc.codes
			if codes == nil {
				codes = []cubby.Code{cubby.CodeInvalidArgument}
			}
			err := stage(tc.in)
			wantCode(t, fmt.Sprintf("%+v", tc.in), err, codes...)
			if slices.Contains(codes, cubby.CodeNotFound) && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%+v: %v is no fs.ErrNotExist", tc.in, err)
			}
		}
	})
	t.Run("links of the workspace do not lead out", func(t *testing.T) {
		p.sh(t, "ln -s /etc work/etc; ln -s /etc/hostname work/hostname")
		for _, in := range []codeexec.InputSpec{
			{From: "workspace://work/hostname", To: "work/stolen"}, {From: "workspace://work/etc/hostname", To: "work/stolen"},
			{From: "workspace://work/own", To: "work/etc/x"},
		} {
			wantCode(t, in.From+" to "+in.To, stage(in), cubby.CodeInvalidArgument)
		}
	})
	t.Run("without a service", func(t *testing.T) {
		err := p.FS().StageInputs(t.Context(), p.ws, []codeexec.InputSpec{{From: "artifact://data.csv"}})
		if !errors.Is(err, codeexec.ErrNoArtifacts) {
			t.Errorf("got %v", err)
		}
	})
}
