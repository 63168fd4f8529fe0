//go:build linux

// Package sudo implements sudo and su for a sandbox. A sandbox is one trust domain:
// every user in it may become root, without a password and without a policy. These
// programs ask for nothing and keep no time stamps. They change the user, set up the
// environment as the real ones do, and replace themselves by the command with exec.
// The command runs in the same process, so exit status, standard streams, terminal,
// job control and signals work as if the caller had started it.
package sudo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cubby-sandbox/cubby/internal/version"
)

// command is the program that sudo or su executes in place of itself.
type command struct {
	user        passwdEntry
	gid         int // the primary group
	path        string
	argv        []string
	env         []string
	dir         string // to change to; empty stays
	dirOptional bool   // a dir that is not there is no error
	background  bool   // it is started as a child, which is not waited for
}

// sudoRequest is a parsed command line of sudo.
type sudoRequest struct {
	user, group  string
	dir          string
	login, shell bool
	list         bool
	setHome      bool
	background   bool
	preserveAll  bool
	preserve     []string // variables
	set          []string // NAME=VALUE
	args         []string // the command
	finished     bool     // there is no command to run
	output       string   // for standard output, if finished
}

const sudoUsage = `usage: sudo -h | -k | -K | -l [command] | -v | -V
usage: sudo [-AbEHnPS] [-D directory] [-g group] [-u user] [VAR=value] [-i | -s] [command [arg ...]]
`

// valueOptions are sudo's options that take a value, by their short and long
// names; flagOptions those that do not. Options that concern passwords, time stamps
// or the terminal's bell are accepted and have no effect.
var (
	valueOptions = map[string]string{"u": "user", "g": "group", "D": "chdir", "p": "prompt", "C": "close-from", "U": "other-user"}
	flagOptions  = map[string]string{
		"A": "askpass", "b": "background", "B": "bell", "E": "preserve-env", "H": "set-home", "h": "help", "i": "login",
		"K": "remove-timestamp", "k": "reset-timestamp", "l": "list", "N": "no-update", "n": "non-interactive",
		"P": "preserve-groups", "S": "stdin", "s": "shell", "V": "version", "v": "validate",
	}
)

// parseSudo reads sudo's arguments, without argv[0].
func parseSudo(args []string) (sudoRequest, error) {
	var r sudoRequest
	r.user = "root"
	standalone := "" // an option that is allowed without a command
	apply := func(name, value string) error {
		switch name {
		case "user":
			r.user = value
		case "group":
			r.group = value
		case "chdir":
			r.dir = value
		case "close-from":
			if n, err := strconv.Atoi(value); err != nil || n < 3 {
				return errors.New("the argument to -C must be a number greater than or equal to 3")
			}
		case "background":
			r.background = true
		case "preserve-env":
			if value == "" {
				r.preserveAll = true
			} else {
				r.preserve = append(r.preserve, strings.Split(value, ",")...)
			}
		case "set-home":
			r.setHome = true
		case "login":
			r.login = true
		case "shell":
			r.shell = true
		case "list":
			r.list = true
		case "help":
			r.finished, r.output = true, sudoUsage
		case "version":
			r.finished, r.output = true, "Sudo version 1.9 (Cubby "+version.Version+")\n"
		case "validate", "remove-timestamp", "reset-timestamp":
			standalone = name
		}
		return nil
	}
	i := 0
parsing:
	for ; i < len(args); i++ {
		arg := args[i]
		next := func(option string) (string, error) {
			if i++; i >= len(args) {
				return "", fmt.Errorf("option requires an argument -- '%s'", option)
			}
			return args[i], nil
		}
		switch {
		case arg == "--":
			i++
			break parsing
		case strings.HasPrefix(arg, "--"):
			name, value, given := strings.Cut(arg[2:], "=")
			var err error
			switch {
			case hasName(valueOptions, name):
				if !given {
					value, err = next(name)
				}
			case !hasName(flagOptions, name):
				return r, fmt.Errorf("unrecognized option '%s'", arg)
			case given && name != "preserve-env":
				return r, fmt.Errorf("option '--%s' doesn't allow an argument", name)
			}
			if err == nil {
				err = apply(name, value)
			}
			if err != nil {
				return r, err
			}
		case len(arg) > 1 && arg[0] == '-':
			for letters := arg[1:]; letters != ""; {
				letter := letters[:1]
				letters = letters[1:]
				name, value := flagOptions[letter], ""
				if name == "" {
					if name = valueOptions[letter]; name == "" {
						return r, fmt.Errorf("invalid option -- '%s'", letter)
					}
					if value, letters = letters, ""; value == "" {
						var err error
						if value, err = next(letter); err != nil {
							return r, err
						}
					}
				}
				if err := apply(name, value); err != nil {
					return r, err
				}
			}
		case isAssignment(arg):
			r.set = append(r.set, arg)
		default:
			break parsing
		}
	}
	// Assignments may also stand behind "--".
	for ; i < len(args) && isAssignment(args[i]); i++ {
		r.set = append(r.set, args[i])
	}
	r.args = args[i:]
	switch {
	case r.finished:
	case r.login && r.shell:
		return r, errors.New("you may not specify both the -i and -s options")
	case len(r.args) == 0 && standalone != "":
		r.finished = true
	case len(r.args) == 0 && !r.login && !r.shell && !r.list:
		return r, errUsage
	}
	return r, nil
}

var errUsage = errors.New("no command")

func hasName(options map[string]string, name string) bool {
	for _, long := range options {
		if long == name {
			return true
		}
	}
	return false
}

func isAssignment(arg string) bool {
	name, _, ok := strings.Cut(arg, "=")
	return ok && name != "" && !strings.Contains(name, "/")
}

// sudoMain runs sudo. It returns only if no command was executed in its place, with
// the exit status.
func sudoMain(args []string) int {
	r, err := parseSudo(args)
	if err != nil {
		if !errors.Is(err, errUsage) {
			fmt.Fprintln(os.Stderr, "sudo:", err)
		}
		io.WriteString(os.Stderr, sudoUsage)
		return 1
	}
	if r.finished {
		io.WriteString(os.Stdout, r.output)
		return 0
	}
	accounts := readAccounts("/etc/passwd", "/etc/group")
	caller := accounts.byUID(os.Getuid())
	c, err := r.command(accounts, caller, os.Getegid(), os.Environ())
	if err != nil {
		fmt.Fprintln(os.Stderr, "sudo:", err)
		return 1
	}
	if r.list {
		if len(r.args) > 0 {
			fmt.Println(c.path)
			return 0
		}
		host, _ := os.Hostname()
		fmt.Printf("User %s may run the following commands on %s:\n    (ALL : ALL) NOPASSWD: ALL\n", caller.name, host)
		return 0
	}
	return c.become("sudo", accounts)
}

// keptByDefault are the variables of the caller that the command gets by default.
var keptByDefault = []string{"COLORS", "COLORTERM", "DISPLAY", "HOSTNAME", "KRB5CCNAME", "LANG", "LANGUAGE", "LINGUAS", "LS_COLORS",
	"PATH", "PS1", "PS2", "TERM", "TZ", "XAUTHORITY", "XAUTHORIZATION", "XDG_CURRENT_DESKTOP"}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// command returns what the request executes for a caller with this group and
// environment. It fails if the user, the group or the program is not known.
func (r sudoRequest) command(accounts accounts, caller passwdEntry, callerGID int, callerEnv []string) (*command, error) {
	user, ok := accounts.lookUp(r.user)
	if !ok {
		return nil, fmt.Errorf("unknown user %s", r.user)
	}
	c := &command{user: user, gid: user.gid, dir: r.dir, background: r.background}
	if r.group != "" {
		gid, ok := accounts.group(r.group)
		if !ok {
			return nil, fmt.Errorf("unknown group %s", r.group)
		}
		c.gid = gid
	}
	old, env := newEnvironment(callerEnv), environment{}
	delete(old, "GOTRACEBACK") // Go's runtime sets it in a set-uid program
	for name, v := range old {
		if r.preserveAll && !r.login || slices.Contains(r.preserve, name) ||
			!r.login && (slices.Contains(keptByDefault, name) || strings.HasPrefix(name, "LC_")) {
			env[name] = v
		}
	}
	if r.login {
		for _, name := range []string{"TERM", "PATH", "DISPLAY", "XAUTHORITY"} {
			if v, ok := old[name]; ok {
				env[name] = v
			}
		}
		if c.dir == "" {
			c.dir, c.dirOptional = user.home, true
		}
	}
	// The caller's folders come first, because its tools may be installed in one that
	// only it has. The default ones follow: a user's PATH often lacks /usr/sbin.
	env["PATH"] = withFolders(old["PATH"], defaultPath)
	if !(r.preserveAll && !r.setHome && old["HOME"] != "") || r.login {
		env["HOME"] = user.home
	}
	env["USER"], env["LOGNAME"], env["SHELL"], env["MAIL"] = user.name, user.name, user.shell, "/var/mail/"+user.name
	env["SUDO_USER"], env["SUDO_UID"], env["SUDO_GID"] = caller.name, strconv.Itoa(caller.uid), strconv.Itoa(callerGID)
	for _, assignment := range r.set {
		name, v, _ := strings.Cut(assignment, "=")
		env[name] = v
	}
	args := r.args
	if r.login || r.shell {
		shell := user.shell
		if s := old["SHELL"]; r.shell && s != "" {
			shell = s
		}
		c.path, c.argv = shell, []string{shell}
		if r.login {
			c.argv[0] = "-" + filepath.Base(shell)
		}
		if len(args) > 0 {
			c.argv = append(c.argv, "-c", escapeWords(args))
		}
	} else if len(args) > 0 {
		path, err := findCommand(args[0], env["PATH"], r.dir)
		if err != nil {
			return nil, err
		}
		c.path, c.argv = path, args
	}
	env["SUDO_COMMAND"] = strings.Join(append([]string{c.path}, args[min(len(args), 1):]...), " ")
	c.env = env.list()
	return c, nil
}

// escapeWords joins words for `sh -c` and escapes what the shell would interpret,
// except for $: sudo, too, leaves that to the shell.
func escapeWords(words []string) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		for _, c := range []byte(w) {
			plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80 || strings.IndexByte("_-$", c) >= 0
			if !plain {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		}
	}
	return b.String()
}

// withFolders appends to a search path the folders of more that it lacks.
func withFolders(path, more string) string {
	dirs := strings.FieldsFunc(path, func(c rune) bool { return c == ':' })
	for dir := range strings.SplitSeq(more, ":") {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, ":")
}

// findCommand returns the file that name stands for. It only has to be executable
// for somebody: that need not be the user who looks for it.
func findCommand(name, path, dir string) (string, error) {
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = nil
		for d := range strings.SplitSeq(path, ":") {
			candidates = append(candidates, filepath.Join(d, name))
		}
	}
	for _, candidate := range candidates {
		at := candidate
		if dir != "" && !filepath.IsAbs(at) {
			at = filepath.Join(dir, at)
		}
		if st, err := os.Stat(at); err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o111 != 0 {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("%s: command not found", name)
}

// become changes the user and executes the command in place of this program. It
// returns an exit status if that failed, or if the command was started in the
// background.
func (c *command) become(tool string, accounts accounts) int {
	fail := func(what string, err error) int {
		fmt.Fprintf(os.Stderr, "%s: %s: %v\n", tool, what, err)
		return 1
	}
	if os.Geteuid() != 0 {
		return fail("becoming root", errors.New("the effective uid is not 0: is this file set-uid, on a file system without nosuid?"))
	}
	syscall.Umask(syscall.Umask(0) | 0o022)
	if err := syscall.Setgroups(accounts.groupsOf(c.user, c.gid)); err != nil {
		return fail("setgroups", err)
	}
	if err := syscall.Setresgid(c.gid, c.gid, c.gid); err != nil {
		return fail("setgid", err)
	}
	if err := syscall.Setresuid(c.user.uid, c.user.uid, c.user.uid); err != nil {
		return fail("setuid", err)
	}
	if c.dir != "" {
		if err := os.Chdir(c.dir); err != nil {
			if !c.dirOptional {
				return fail("unable to change directory", err)
			}
			fmt.Fprintf(os.Stderr, "%s: unable to change directory: %v\n", tool, err)
		}
	}
	if c.background {
		if _, err := syscall.ForkExec(c.path, c.argv, &syscall.ProcAttr{Env: c.env, Files: []uintptr{0, 1, 2},
			Sys: &syscall.SysProcAttr{Setpgid: true}}); err != nil {
			return fail("unable to execute "+c.path, err)
		}
		return 0
	}
	err := syscall.Exec(c.path, c.argv, c.env)
	if errors.Is(err, syscall.ENOEXEC) { // a script without a #! line
		err = syscall.Exec("/bin/sh", append([]string{"sh", c.path}, c.argv[1:]...), c.env)
	}
	return fail("unable to execute "+c.path, err)
}
