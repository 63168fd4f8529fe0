package template

import (
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Folders of the template's own programs. Those in wrapperDir are found before the
// toolchain's, those in fallbackDir after all others.
const (
	wrapperDir  = "/.cubby/bin"
	fallbackDir = "/.cubby/fallback"
)

// NetworkFile says inside a sandbox whether it has a network: "closed" on its first
// line, and then a sentence for whoever wanted one. Without the file, or with another
// first line, nobody is told anything. What programs read of it besides is in
// [PipClosedFile]: a sandbox whose network is open has neither.
const NetworkFile = "/etc/cubby/network"

// PipClosedFile is pip's configuration for a sandbox without a network: an address that
// says why, in every form in which pip is called. It is tried twice, for pip's errors
// name no cause: only its warning before the second attempt says that no connection
// was made. There is no pause between the two.
const PipClosedFile = "/etc/xdg/pip/pip.conf"

const networkClosed = "closed\nThe network of this sandbox is closed: nothing can be downloaded. " +
	"Use what is installed, or install from files that are in the sandbox.\n"

const pipClosed = "[global]\nretries = 1\nindex-url = https://the-network-of-this-sandbox-is-closed.invalid/simple\n"

// pipConf lets pip install into the user's own folder, as in E2B's template: what
// belongs to the distribution is read-only here.
const pipConf = "[global]\nbreak-system-packages = true\ndisable-pip-version-check = true\n"

// downloaders are programs that want the network, those of Python apart.
var downloaders = []string{"npm", "pnpm", "yarn", "uv", "apt", "apt-get"}

// tools provides `python` and `pip` where the toolchain has only python3, and wraps
// what installs packages: a failure without a network says that there is none.
func (c *composer) tools(tc Toolchain, searchPath string) {
	c.mkdir(wrapperDir, 0o755)
	c.mkdir(fallbackDir, 0o755)
	c.mkdir(FontDir, 0o777)
	c.mkdirAll(path.Dir(NetworkFile))
	c.write(NetworkFile, networkClosed, 0o644)
	c.mkdirAll(path.Dir(PipClosedFile))
	c.write(PipClosedFile, pipClosed, 0o644)
	c.write("/etc/pip.conf", pipConf, 0o644)

	var folders []string
	for _, dir := range strings.Split(searchPath, ":") {
		if !under(dir, "/home") && !under(dir, "/.cubby") {
			folders = append(folders, dir)
		}
	}
	for _, name := range downloaders {
		if real := c.lookUp(name, folders); real != "" {
			c.write(path.Join(wrapperDir, name), wrapper(quoteShell(real)), 0o755)
		}
	}
	python := tc.Python.Path
	if python == "" {
		return
	}
	if c.lookUp("python", folders) == "" {
		// Not a link: a virtual environment is found by the path that is executed.
		c.write(path.Join(fallbackDir, "python"), "#!/bin/sh\nexec "+quoteShell(python)+" \"$@\"\n", 0o755)
	}
	// The pip of this Python, whatever other there is on PATH.
	for _, name := range []string{"pip", "pip3"} {
		program := quoteShell(python) + " -m pip"
		if real := c.lookUp(name, []string{filepath.Dir(python)}); real != "" {
			program = quoteShell(real)
		}
		c.write(path.Join(wrapperDir, name), wrapper(program), 0o755)
	}
}

// lookUp returns the path of a program inside, "" if it is in none of the folders.
func (c *composer) lookUp(name string, folders []string) string {
	for _, dir := range folders {
		if _, err := os.Lstat(c.dir + path.Join(dir, name)); err == nil {
			return path.Join(dir, name)
		}
	}
	return ""
}

// wrapper is a script that runs a program, and after a failure to install something
// says that the network is closed, if it is.
func wrapper(program string) string {
	return `#!/bin/sh
{ read -r state && read -r words; } 2>/dev/null <` + NetworkFile + `
if [ "$state" = closed ]; then # npm tries again for more than a minute
	: "${npm_config_fetch_retries:=0}" "${npm_config_audit:=false}"
	export npm_config_fetch_retries npm_config_audit
fi
` + program + ` "$@"
status=$?
case " $* " in
*" install "* | *" i "* | *" ci "* | *" add "* | *" download "* | *" update "* | *" upgrade "* | *" sync "*)
	if [ "$status" -ne 0 ] && [ "$state" = closed ]; then printf '%s\n' "$words" >&2; fi
	;;
esac
exit "$status"
`
}

// quoteShell makes one word of a shell's script of a path.
func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
