//go:build linux || darwin

package local_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/codeexectest"
	"github.com/cubby-sandbox/cubby/codeexec/local"
)

// TestMain gives examples and tests a folder for what is temporary.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "local-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		os.Setenv("TMPDIR", dir)
		return m.Run()
	}())
}

// open returns an executor that leaves neither files nor processes behind.
func open(t *testing.T, cfg local.Config) *local.UnsafeExecutor {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(dir, "cubby-*"))
		if err != nil || len(left) > 0 && !cfg.KeepFiles {
			t.Errorf("left behind: %q, %v", left, err)
		}
		processes, err := filepath.Glob("/proc/[0-9]*/environ")
		if err != nil {
			t.Error(err)
		}
		for _, p := range processes {
			if env, err := os.ReadFile(p); err == nil && strings.Contains(string(env), "RUN_DIR="+dir) {
				t.Errorf("left behind: %s", p)
			}
		}
	})
	if cfg.Timeout == 0 {
		cfg.Timeout = 2 * time.Minute
	}
	if cfg.WorkspaceRoot == "" {
		cfg.WorkspaceRoot = filepath.Join(os.Getenv("TMPDIR"), "run")
	}
	e, err := local.NewUnsafe(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return e
}

func run(t *testing.T, e codeexec.CodeExecutor, language, code string) codeexec.CodeExecutionResult {
	t.Helper()
	r, err := e.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{CodeBlocks: []codeexec.CodeBlock{{Language: language, Code: code}}})
	if err != nil {
		t.Fatalf("ExecuteCode: %v", err)
	}
	return r
}

func TestSuite(t *testing.T) {
	codeexectest.Run(t, func(t *testing.T) codeexec.CodeExecutor { return open(t, local.Config{}) }, codeexectest.Traits{
		Short:      func(t *testing.T) codeexec.CodeExecutor { return open(t, local.Config{Timeout: 3 * time.Second}) },
		Timeout:    3 * time.Second,
		Workspaces: &codeexectest.WorkspaceTraits{MaxOutput: cubby.DefaultMaxOutput},
	})
}

// The same, in a folder that lasts.
func TestSuiteInWorkDir(t *testing.T) {
	dir := ""
	in := func(t *testing.T) codeexec.CodeExecutor {
		dir = filepath.Join(t.TempDir(), "work")
		return open(t, local.Config{WorkDir: dir})
	}
	codeexectest.Run(t, in, codeexectest.Traits{
		Files: true,
		Lose: func(t *testing.T, _ codeexec.CodeExecutor, _ string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		},
		Short: func(t *testing.T) codeexec.CodeExecutor {
			return open(t, local.Config{WorkDir: t.TempDir(), Timeout: 3 * time.Second})
		},
		Timeout: 3 * time.Second,
	})
}

func TestNothingSecretIsInherited(t *testing.T) {
	t.Setenv("API_SECRET", "s3cret")
	t.Setenv("WANTED", "yes")
	for _, tc := range []struct {
		cfg  local.Config
		want string
	}{
		{local.Config{}, "[][][]"},
		{local.Config{Inherit: []string{"WANTED"}}, "[][yes][]"},
		{local.Config{InheritAll: true}, "[s3cret][yes][]"},
		{local.Config{Env: map[string]string{"OWN": "o"}}, "[][][o]"},
	} {
		e := open(t, tc.cfg)
		if r := run(t, e, "bash", `echo "[$API_SECRET][$WANTED][$OWN]"`); r.Output != tc.want+"\n" {
			t.Errorf("a block of %+v sees %q", tc.cfg, r.Output)
		}
		ws, err := e.Engine().Manager().CreateWorkspace(t.Context(), "env", codeexec.WorkspacePolicy{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := e.Engine().Runner().RunProgram(t.Context(), ws, codeexec.RunProgramSpec{Cmd: "sh", Args: []string{"-c", `echo "[$API_SECRET][$WANTED][$OWN]"`}})
		if err != nil || r.Stdout != tc.want+"\n" {
			t.Errorf("a program of %+v sees %q, %v", tc.cfg, r.Stdout, err)
		}
	}
	r := run(t, open(t, local.Config{}), "bash", `env | cut -d= -f1 | grep -v -e '^_$' -e SHLVL -e PWD | sort | tr '\n' ' '; [ "$HOME" = "$PWD" ] && echo home`)
	names := strings.Fields(r.Output)
	for _, name := range names {
		if !slices.Contains([]string{"HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "OUTPUT_DIR", "PATH", "RUN_DIR", "TMPDIR", "home"}, name) {
			t.Errorf("%s is handed over", name)
		}
	}
	if !slices.Contains(names, "home") {
		t.Errorf("HOME is not the folder of the code: %s", r.Output)
	}
}

// What leaves its group, its session and its parent is ended all the same, as
// long as it keeps its variables.
func TestTimeoutEndsWhatLeftTheGroup(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("there is no setsid here: nothing can leave its session from a shell")
	}
	dir := t.TempDir()
	for what, code := range map[string]string{
		"a timeout": `setsid sh -c 'echo $$ > ` + dir + `/pid; sleep 600' & setsid sh -c '(sleep 600 &) ; sleep 600' & sleep 600`,
		"its end":   `setsid sh -c '(echo $$ > ` + dir + `/pid; sleep 600) &' ; setsid sleep 600 & while [ ! -s ` + dir + `/pid ]; do sleep 0.01; done`,
	} {
		timeout := 2 * time.Minute
		if what == "a timeout" {
			timeout = 6 * time.Second
		}
		r := run(t, open(t, local.Config{Timeout: timeout}), "bash", code)
		if r.TimedOut != (what == "a timeout") {
			t.Errorf("%s: %+v", what, r)
		}
		pid, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err != nil {
			t.Fatal(err)
		}
		if state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/environ"); err == nil && strings.Contains(string(state), "cubby-local-") {
			t.Errorf("%s: process %s goes on", what, pid)
		}
		left, _ := exec.CommandContext(t.Context(), "pgrep", "-f", "sleep 600").Output()
		for _, p := range strings.Fields(string(left)) {
			if env, err := os.ReadFile("/proc/" + p + "/environ"); err == nil && strings.Contains(string(env), os.Getenv("TMPDIR")) {
				t.Errorf("%s: process %s is left", what, p)
			}
		}
		if err := os.Remove(filepath.Join(dir, "pid")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOutputDoesNotWaitForWhatIsLeft(t *testing.T) {
	e := open(t, local.Config{})
	began := time.Now()
	if r := run(t, e, "bash", "sleep 600 & echo done"); r.Output != "done\n" || r.Outcome != codeexec.OutcomeOK {
		t.Errorf("got %+v", r)
	}
	if time.Since(began) > time.Minute {
		t.Error("it waited for the child")
	}
}

func TestFilesInOutAreShown(t *testing.T) {
	e := open(t, local.Config{})
	r, err := e.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{
		CodeBlocks: []codeexec.CodeBlock{
			{Code: "import os\nopen('out/plot.png','wb').write(b'\\x89PNG\\r\\n\\x1a\\n----')\nos.mkdir('out/sub')\nopen(os.environ['OUTPUT_DIR']+'/sub/t.csv','w').write('a,b\\n')"},
			{Language: "bash", Code: "ln -s /etc/passwd out/stolen; ln -s ../../../.. out/up; mkfifo out/pipe; cat out/sub/t.csv"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Output != "a,b\n" || len(r.OutputFiles) != 2 {
		t.Fatalf("got %+v", r)
	}
	for i, want := range []codeexec.File{{Name: "plot.png", MIMEType: "image/png", SizeBytes: 12}, {Name: "sub/t.csv", MIMEType: "text/csv", SizeBytes: 4}} {
		if f := r.OutputFiles[i]; f.Name != want.Name || f.MIMEType != want.MIMEType ||
			f.SizeBytes != want.SizeBytes || int64(len(f.Content)) != want.SizeBytes {
			t.Errorf("got %+v, want %+v", f, want)
		}
	}
	if !r.Truncated {
		t.Error("that links and a pipe were left is not told")
	}
}

func TestWorkDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "for it")
	e := open(t, local.Config{WorkDir: dir})
	run(t, e, "python", "open('kept.txt','w').write('k'); open('out/old.txt','w').write('old')\nopen('mine.py','w').write('x = 7\\n')")
	if err := os.WriteFile(filepath.Join(dir, "code_0.py"), []byte("the user's own\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, e, "python", "import mine\nprint(open('kept.txt').read(), mine.x)\nopen('out/new.txt','w').write('new')")
	if r.Output != "k 7\n" || len(r.OutputFiles) != 1 || r.OutputFiles[0].Name != "new.txt" {
		t.Errorf("got %+v", r)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "code_0.py")); err != nil || string(b) != "the user's own\n" {
		t.Errorf("the user's file is now %q, %v", b, err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "code_*"))
	if err != nil || len(names) != 1 {
		t.Errorf("code was left: %q, %v", names, err)
	}
	if r := run(t, e, "bash", "rm -r out kept.txt mine.py __pycache__ code_0.py; ls -A | grep -v code_"); r.Output != "" {
		t.Errorf("the folder holds %q", r.Output)
	}
}

func TestKeepFiles(t *testing.T) {
	dir := t.TempDir()
	e := open(t, local.Config{WorkDir: dir, KeepFiles: true})
	run(t, e, "python", "print(1)")
	if b, err := os.ReadFile(filepath.Join(dir, "code_0.py")); err != nil || string(b) != "print(1)" {
		t.Errorf("got %q, %v", b, err)
	}
}

// What code protects against its owner is removed, too.
func TestTemporaryFilesAreRemoved(t *testing.T) {
	e := open(t, local.Config{})
	run(t, e, "bash", `mkdir -p a/b "$TMPDIR/c"; touch a/b/f; chmod 400 a/b/f; chmod 500 a/b; chmod 0 a "$TMPDIR/c"; mktemp`)
	left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "cubby-local-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

func TestLimits(t *testing.T) {
	en := open(t, local.Config{}).Engine()
	if !slices.Contains(en.Describe().Limits, "memory_bytes") {
		_, err := local.NewUnsafe(t.Context(), local.Config{Limits: codeexec.ResourceLimits{MemoryBytes: 1 << 30}})
		if !errors.Is(err, codeexec.ErrLimitNotEnforceable) {
			t.Fatalf("limits do not hold here, and are not refused: %v", err)
		}
		return
	}
	e := open(t, local.Config{Limits: codeexec.ResourceLimits{MemoryBytes: 512 << 20, FileSizeBytes: 1 << 20}, MaxOpenFiles: 64})
	for what, tc := range map[string]struct{ code, want string }{
		"memory":     {"x = bytearray(1 << 30)", "MemoryError"},
		"shared":     {"import mmap\nmmap.mmap(-1, 1 << 30)", "OSError"},
		"file size":  {"open('f','wb').write(bytes(2 << 20))", "OSError"},
		"open files": {"f = [open('/dev/null') for _ in range(100)]", "OSError"},
		"lifting them": {"import resource\nfor r in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):\n" +
			"    try: resource.setrlimit(r, (resource.RLIM_INFINITY,)*2)\n    except (ValueError, OSError): pass\n    else: print('lifted')\nraise KeyError('held')", "KeyError"},
	} {
		r := run(t, e, "python", tc.code)
		if r.Error == nil || r.Error.Type != tc.want || strings.Contains(r.Output, "lifted") {
			t.Errorf("%s: %+v", what, r)
		}
	}
	if r := run(t, e, "python", "print(len(bytes(64 << 20)))"); r.Output != "67108864\n" {
		t.Errorf("below its limit: %+v", r)
	}
	ws, err := en.Manager().CreateWorkspace(t.Context(), "limits", codeexec.WorkspacePolicy{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := en.Runner().RunProgram(t.Context(), ws, codeexec.RunProgramSpec{
		Cmd: "python3", Args: []string{"-c", "bytearray(1 << 30)"}, Limits: codeexec.ResourceLimits{MemoryBytes: 512 << 20},
	})
	if err != nil || !strings.Contains(r.Stderr, "MemoryError") {
		t.Errorf("got %+v, %v", r, err)
	}
	for _, l := range []codeexec.ResourceLimits{{CPUs: 1}, {MaxPIDs: 5}, {DiskBytes: 1 << 20}} {
		if _, err := local.NewUnsafe(t.Context(), local.Config{Limits: l}); !errors.Is(err, codeexec.ErrLimitNotEnforceable) {
			t.Errorf("%+v: %v", l, err)
		}
	}
}

func TestConfig(t *testing.T) {
	for what, cfg := range map[string]local.Config{
		"a negative timeout":     {Timeout: -1},
		"an interpreter missing": {Python: "/no/such/python"},
		"a bad variable":         {Env: map[string]string{"A=B": ""}},
		"root of all":            {WorkspaceRoot: "/"},
		"a negative limit":       {Limits: codeexec.ResourceLimits{MemoryBytes: -1}},
	} {
		_, err := local.NewUnsafe(t.Context(), cfg)
		if cubby.CodeOf(err) != cubby.CodeInvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
	}
	t.Setenv("PATH", t.TempDir())
	_, err := local.NewUnsafe(t.Context(), local.Config{})
	if e, ok := errors.AsType[*cubby.Error](err); !ok || e.Code != cubby.CodeUnavailable || e.Hint == "" {
		t.Errorf("without an interpreter: %v", err)
	}
}

func TestLanguagesAreThoseThatAreThere(t *testing.T) {
	bin := t.TempDir()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(bash, filepath.Join(bin, "bash")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	e := open(t, local.Config{})
	if got := e.Languages(); len(got) != 1 || got[0] != codeexec.Bash {
		t.Errorf("got %v", got)
	}
	if r := run(t, e, "python", "print(1)"); len(r.Blocks) != 1 || !r.Blocks[0].Unsupported {
		t.Errorf("got %+v", r)
	}
}

// Root is where others could wait with a folder of their own.
func TestRootMustBeOurs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	e := open(t, local.Config{WorkspaceRoot: dir})
	_, err := e.Engine().Manager().CreateWorkspace(t.Context(), "x", codeexec.WorkspacePolicy{})
	if cubby.CodeOf(err) != cubby.CodePermissionDenied || !strings.Contains(err.Error(), "Root") {
		t.Errorf("got %v", err)
	}
}

func TestCloseEndsWhatRuns(t *testing.T) {
	e := open(t, local.Config{})
	ended := make(chan error)
	go func() {
		_, err := e.ExecuteCode(context.Background(), codeexec.CodeExecutionInput{Code: "import time\nopen('" + os.Getenv("TMPDIR") + "/begun','w')\ntime.sleep(600)"})
		ended <- err
	}()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(os.Getenv("TMPDIR"), "begun")); err == nil {
			break
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; cubby.CodeOf(err) != cubby.CodeConflict {
		t.Errorf("got %v", err)
	}
}

func TestSignals(t *testing.T) {
	e := open(t, local.Config{})
	if r := run(t, e, "bash", "kill -9 $$"); r.ExitCode != 137 || r.Outcome != codeexec.OutcomeFailed {
		t.Errorf("got %+v", r)
	}
}

// What was printed before an error stands before it, however the two pipes are
// read.
func TestOutputComesBeforeTheErrorThatFollowsIt(t *testing.T) {
	e := open(t, local.Config{})
	for range 50 {
		if r := run(t, e, "bash", "seq 5; echo err >&2"); r.Output != "1\n2\n3\n4\n5\nerr\n" {
			t.Fatalf("got %q", r.Output)
		}
	}
}
