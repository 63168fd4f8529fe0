//go:build linux

package sudo

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestMain lets the test binary be what a trampoline starts.
func TestMain(m *testing.M) {
	if Is(os.Args[0]) {
		os.Exit(Main(os.Args))
	}
	os.Exit(m.Run())
}

func testAccounts(t *testing.T) accounts {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return readAccounts(
		write("passwd", "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000:user:/home/user:/bin/bash\nbare:x:7:7::\nhalf:x:8:8:::\nodd:x:minus:1:::\n\x00::::::\n"),
		write("group", "root:x:0:\nsudo:x:27:user,other\nuser:x:1000:\nno:x:-1:user\nstaff:x:50:user\n"))
}

func TestAccounts(t *testing.T) {
	a := testAccounts(t)
	for name, want := range map[string]passwdEntry{
		"root":  {"root", 0, 0, "/root", "/bin/bash"},
		"half":  {"half", 8, 8, "/", "/bin/sh"},
		"#1000": {"user", 1000, 1000, "/home/user", "/bin/bash"},
		"#4242": {"#4242", 4242, 4242, "/", "/bin/sh"},
	} {
		if got, ok := a.lookUp(name); !ok || got != want {
			t.Errorf("%s: %+v %v", name, got, ok)
		}
	}
	for _, name := range []string{"bare", "odd", "nobody", "", "#", "#-1", "#99999999999", "#x"} {
		if got, ok := a.lookUp(name); ok {
			t.Errorf("%q: %+v", name, got)
		}
	}
	user, _ := a.lookUp("user")
	if got := a.groupsOf(user, 1000); !slices.Equal(got, []int{1000, 27, 50}) {
		t.Errorf("groups %v", got)
	}
	// Root is there even if somebody emptied the file.
	if root, ok := (accounts{}).lookUp("root"); !ok || root.uid != 0 || root.shell != "/bin/sh" {
		t.Errorf("%+v %v", root, ok)
	}
}

var callerEnv = []string{"PATH=/opt/tools:/usr/bin", "HOME=/home/user", "USER=user", "SHELL=/bin/dash", "TERM=xterm", "LC_ALL=C.UTF-8",
	"SECRET=1", "GOTRACEBACK=none"}

// TestSudo tells what sudo becomes, from what was typed.
func TestSudo(t *testing.T) {
	a := testAccounts(t)
	for _, c := range []struct {
		typed string
		user  string
		argv  []string
		dir   string
		env   []string // some of it; a name with a leading ! is not there
	}{
		{typed: "true", user: "root", argv: []string{"true"}, env: []string{"HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash",
			"SUDO_USER=user", "SUDO_UID=1000", "SUDO_GID=1000", "TERM=xterm", "LC_ALL=C.UTF-8", "!SECRET", "!GOTRACEBACK",
			"PATH=/opt/tools:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin"}},
		{typed: "-u user true -x", user: "user", argv: []string{"true", "-x"}, env: []string{"HOME=/home/user", "USER=user"}},
		{typed: "-uuser -- true", user: "user", argv: []string{"true"}},
		{typed: "--user=user true", user: "user", argv: []string{"true"}},
		{typed: "--user user true", user: "user", argv: []string{"true"}},
		{typed: "-nHSu #1000 true", user: "user", argv: []string{"true"}},
		{typed: "-u #77 -g staff true", user: "#77", argv: []string{"true"}},
		{typed: "-E true", user: "root", argv: []string{"true"}, env: []string{"SECRET=1", "HOME=/home/user", "USER=root", "!GOTRACEBACK"}},
		{typed: "-EH true", user: "root", argv: []string{"true"}, env: []string{"SECRET=1", "HOME=/root"}},
		{typed: "--preserve-env=SECRET,NONE true", user: "root", argv: []string{"true"}, env: []string{"SECRET=1", "HOME=/root", "!NONE"}},
		{typed: "A=1 B=x=y true C=2", user: "root", argv: []string{"true", "C=2"}, env: []string{"A=1", "B=x=y", "!C"}},
		{typed: "-- A=1 true", user: "root", argv: []string{"true"}, env: []string{"A=1"}},
		{typed: "-D / true", user: "root", argv: []string{"true"}, dir: "/"},
		{typed: "-s", user: "root", argv: []string{"/bin/dash"}},
		{typed: "-s echo a;b $HOME", user: "root", argv: []string{"/bin/dash", "-c", `echo a\;b $HOME`}},
		{typed: "-i", user: "root", argv: []string{"-bash"}, dir: "/root", env: []string{"HOME=/root", "TERM=xterm", "!LC_ALL", "!SECRET"}},
		{typed: "-iu user env", user: "user", argv: []string{"-bash", "-c", "env"}, dir: "/home/user"},
		{typed: "-E -i env", user: "root", argv: []string{"-bash", "-c", "env"}, dir: "/root", env: []string{"!SECRET", "HOME=/root"}},
		{typed: "-k true", user: "root", argv: []string{"true"}},
		{typed: "-C 5 -p pass: -b true", user: "root", argv: []string{"true"}},
		{typed: "-l", user: "root"},
	} {
		t.Run(c.typed, func(t *testing.T) {
			r, err := parseSudo(strings.Split(c.typed, " "))
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.command(a, a.byUID(1000), 1000, callerEnv)
			if err != nil {
				t.Fatal(err)
			}
			if got.user.name != c.user || !slices.Equal(got.argv, c.argv) || got.dir != c.dir {
				t.Fatalf("%+v", got)
			}
			for _, e := range c.env {
				if name, not := strings.CutPrefix(e, "!"); not {
					if slices.ContainsFunc(got.env, func(s string) bool { return strings.HasPrefix(s, name+"=") }) {
						t.Errorf("%s is in %q", name, got.env)
					}
				} else if !slices.Contains(got.env, e) {
					t.Errorf("%s is not in %q", e, got.env)
				}
			}
		})
	}
}

func TestSudoRefuses(t *testing.T) {
	a := testAccounts(t)
	for typed, want := range map[string]string{
		"":                      "no command",
		"-u root":               "no command",
		"-Z true":               "invalid option -- 'Z'",
		"-nZ true":              "invalid option -- 'Z'",
		"--no-such true":        "unrecognized option '--no-such'",
		"--login=x true":        "option '--login' doesn't allow an argument",
		"-u":                    "option requires an argument -- 'u'",
		"--user":                "option requires an argument -- 'user'",
		"-i -s":                 "you may not specify both the -i and -s options",
		"-C 1 true":             "the argument to -C must be a number greater than or equal to 3",
		"-e /etc/passwd":        "invalid option -- 'e'",
		"-u stranger true":      "unknown user stranger",
		"-g strangers true":     "unknown group strangers",
		"no-such-program-here":  "no-such-program-here: command not found",
		"/etc/passwd":           "/etc/passwd: command not found",
		"/tmp":                  "/tmp: command not found",
		"-D /usr ./bin/no-such": "./bin/no-such: command not found",
	} {
		r, err := parseSudo(strings.Fields(typed))
		if err == nil {
			_, err = r.command(a, a.byUID(1000), 1000, callerEnv)
		}
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v", typed, err)
		}
	}
	for _, typed := range []string{"-v", "-k", "-K", "-V", "--version", "-h", "--help", "-nv"} {
		if r, err := parseSudo(strings.Fields(typed)); err != nil || !r.finished {
			t.Errorf("%q: %+v %v", typed, r, err)
		}
	}
}

func TestSu(t *testing.T) {
	a := testAccounts(t)
	for _, c := range []struct {
		typed string
		user  string
		argv  []string
		dir   string
		home  string
	}{
		{"", "root", []string{"bash"}, "", "/root"},
		{"-", "root", []string{"-bash"}, "/root", "/root"},
		{"- user", "user", []string{"-bash"}, "/home/user", "/home/user"},
		{"-l user -c id", "user", []string{"-bash", "-c", "id"}, "/home/user", "/home/user"},
		{"user -c id x", "user", []string{"bash", "-c", "id", "x"}, "", "/home/user"},
		{"-lc id user", "user", []string{"-bash", "-c", "id"}, "/home/user", "/home/user"},
		{"--command=id --shell /bin/sh user", "user", []string{"sh", "-c", "id"}, "", "/home/user"},
		{"-s /bin/sh -m user", "user", []string{"sh"}, "", "/somewhere"},
		{"user -- -c x", "user", []string{"bash", "-c", "x"}, "", "/home/user"},
	} {
		r, err := parseSu(strings.Fields(c.typed))
		if err != nil {
			t.Errorf("%q: %v", c.typed, err)
			continue
		}
		got, err := r.resolve(a, []string{"HOME=/somewhere", "PATH=/bin"})
		if err != nil || got.user.name != c.user || !slices.Equal(got.argv, c.argv) || got.dir != c.dir || !slices.Contains(got.env, "HOME="+c.home) {
			t.Errorf("%q: %+v %v", c.typed, got, err)
		}
	}
	for _, typed := range []string{"-Z", "--no-such", "-c", "--login=x", "-s"} {
		if r, err := parseSu(strings.Fields(typed)); err == nil {
			t.Errorf("%q: %+v", typed, r)
		}
	}
	if _, err := (suRequest{user: "stranger"}).resolve(a, nil); err == nil {
		t.Error("a user who is not there")
	}
}

// TestTrampoline runs the machine code: arguments, environment and, set-uid, the
// effective user arrive.
func TestTrampoline(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for d := dir; d != "/"; d = filepath.Dir(d) { // for another user
		if st, err := os.Stat(d); err == nil && st.Mode()&os.ModeSticky == 0 && os.Geteuid() == 0 {
			_ = os.Chmod(d, 0o755)
		}
	}
	tool := filepath.Join(dir, "tool")
	build := func(path, name string) {
		t.Helper()
		program, err := trampoline(runtime.GOARCH, path, name)
		if err == nil {
			err = installSetUID(tool, program)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	build("/bin/sh", "the-name")
	cmd := exec.Command(tool, "-c", `echo "$0" "$1" "$2" "$MARK"`, "zero", "one", "two words")
	cmd.Env = []string{"MARK=here"}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "zero one two words here\n" {
		t.Errorf("%q %v", out, err)
	}
	if out, err := exec.Command(tool, "-c", `exec cat /proc/$$/cmdline`).Output(); err != nil || !bytes.HasPrefix(out, []byte("cat\x00")) {
		t.Errorf("%q %v", out, err)
	}
	build("/no/such/program", "x")
	var exit *exec.ExitError
	if err := exec.Command(tool).Run(); !errors.As(err, &exit) || exit.ExitCode() != 127 {
		t.Errorf("a program that is not there: %v", err)
	}
	if _, err := trampoline("pdp11", "/bin/sh", "x"); err == nil {
		t.Error("an unknown machine")
	}

	if os.Geteuid() != 0 {
		return // whose set-uid file leads to nobody else
	}
	copied := filepath.Join(dir, "program")
	b, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(copied, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	build(copied, sudoName)
	cmd = exec.Command(tool, "-n", "/bin/sh", "-c", `id -u; id -ru; id -g; echo $SUDO_UID; umask; read line; echo $line; echo problem >&2; exit 7`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	cmd.Stdin = strings.NewReader("from stdin\n")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if string(out) != "0\n0\n0\n54321\n0022\nfrom stdin\n" || stderr.String() != "problem\n" || !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("%q %q %v", out, stderr.String(), err)
	}
}

// TestTrampolineOfARM64 checks the two addresses that are computed.
func TestTrampolineOfARM64(t *testing.T) {
	got, err := trampoline("arm64", "/p", "n")
	if err != nil {
		t.Fatal(err)
	}
	// adr x3, .+32; adr x0, .+26
	for at, want := range map[int]string{120 + 16: "\x03\x01\x00\x10", 120 + 24: "\xc0\x00\x00\x50", 120 + 48: "n\x00/p\x00"} {
		if s := string(got[at : at+len(want)]); s != want {
			t.Errorf("at %d: %q", at, s)
		}
	}
}

// FuzzParse holds that no arguments and no file bring sudo or su down.
func FuzzParse(f *testing.F) {
	f.Add("-u user A=1 true", "root:x:0:0:root:/root:/bin/sh")
	f.Add("-l user -c id --shell", ":::::::\n")
	f.Fuzz(func(t *testing.T, typed, passwd string) {
		path := filepath.Join(t.TempDir(), "passwd")
		if err := os.WriteFile(path, []byte(passwd), 0o600); err != nil {
			t.Fatal(err)
		}
		a := readAccounts(path, path)
		args := strings.Split(typed, " ")
		if r, err := parseSudo(args); err == nil {
			_, _ = r.command(a, a.byUID(1000), 1000, callerEnv)
		}
		if r, err := parseSu(args); err == nil {
			_, _ = r.resolve(a, callerEnv)
		}
	})
}
