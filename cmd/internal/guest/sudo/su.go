//go:build linux

package sudo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// suRequest is a parsed command line of su.
type suRequest struct {
	user, command, shell string
	hasCommand           bool
	login, preserve      bool
	args                 []string // for the shell
	help                 bool
}

const suUsage = "usage: su [-] [-lmp] [-c command] [-s shell] [user [arg ...]]\n"

// parseSu reads su's arguments, without argv[0]. Options may follow the user's
// name.
func parseSu(args []string) (suRequest, error) {
	r := suRequest{user: "root"}
	var words []string
	long := map[string]string{"--login": "l", "--command": "c", "--session-command": "c", "--shell": "s", "--preserve-environment": "p",
		"--fast": "f", "--pty": "P", "--help": "h"}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		letters, value, given := "", "", false
		switch {
		case arg == "--":
			words = append(words, args[i+1:]...)
			i = len(args)
			continue
		case arg == "-":
			r.login = true
			continue
		case strings.HasPrefix(arg, "--"):
			name := arg
			name, value, given = strings.Cut(arg, "=")
			if letters = long[name]; letters == "" || given && letters != "c" && letters != "s" {
				return r, fmt.Errorf("unrecognized option '%s'", arg)
			}
		case strings.HasPrefix(arg, "-"):
			letters = arg[1:]
		default:
			words = append(words, arg)
			continue
		}
		for letters != "" {
			letter := letters[0]
			letters = letters[1:]
			switch letter {
			case 'l':
				r.login = true
			case 'm', 'p':
				r.preserve = true
			case 'f', 'P':
			case 'h':
				r.help = true
			case 'c', 's':
				if !given {
					if value, letters = letters, ""; value == "" {
						if i++; i >= len(args) {
							return r, fmt.Errorf("option requires an argument -- '%c'", letter)
						}
						value = args[i]
					}
				}
				if letter == 's' {
					r.shell = value
				} else {
					r.command, r.hasCommand = value, true
				}
			default:
				return r, fmt.Errorf("invalid option -- '%c'", letter)
			}
		}
	}
	if len(words) > 0 {
		r.user, r.args = words[0], words[1:]
	}
	return r, nil
}

// suMain runs su. Only root can use it: users of a sandbox have no passwords. It
// returns only if no shell was executed in its place, with the exit status.
func suMain(args []string) int {
	r, err := parseSu(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "su:", err)
		io.WriteString(os.Stderr, suUsage)
		return 1
	}
	if r.help {
		io.WriteString(os.Stdout, suUsage)
		return 0
	}
	accounts := readAccounts("/etc/passwd", "/etc/group")
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "su: nobody has a password in this sandbox: use sudo, which asks for none")
		return 1
	}
	c, err := r.resolve(accounts, os.Environ())
	if err != nil {
		fmt.Fprintln(os.Stderr, "su:", err)
		return 1
	}
	return c.become("su", accounts)
}

// resolve returns what the request executes for a caller with this environment.
func (r suRequest) resolve(accounts accounts, callerEnv []string) (*command, error) {
	user, ok := accounts.lookUp(r.user)
	if !ok {
		return nil, fmt.Errorf("user %s does not exist or the user entry does not contain all the required fields", r.user)
	}
	shell := user.shell
	if r.shell != "" {
		shell = r.shell
	}
	if !filepath.IsAbs(shell) {
		return nil, errors.New("the shell must be an absolute path")
	}
	old, env := newEnvironment(callerEnv), environment{}
	c := &command{user: user, gid: user.gid, path: shell, argv: []string{filepath.Base(shell)}}
	if r.login {
		c.dir, c.dirOptional = user.home, true
		c.argv[0] = "-" + c.argv[0]
		if term, ok := old["TERM"]; ok {
			env["TERM"] = term
		}
	} else {
		for name, v := range old {
			env[name] = v
		}
	}
	env["PATH"] = withFolders(old["PATH"], defaultPath)
	if !r.preserve || r.login {
		env["HOME"], env["SHELL"], env["USER"], env["LOGNAME"] = user.home, shell, user.name, user.name
	}
	if r.hasCommand {
		c.argv = append(c.argv, "-c", r.command)
	}
	c.argv = append(c.argv, r.args...)
	c.env = env.list()
	return c, nil
}
