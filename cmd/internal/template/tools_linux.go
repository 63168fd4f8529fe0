package template

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cubby-sandbox/cubby/cmd/internal/offline"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Folders of the template's own programs. Those in wrapperDir are found before the
// toolchain's, those in fallbackDir after all others.
const (
	wrapperDir  = "/.cubby/bin"
	fallbackDir = "/.cubby/fallback"
)

// pipConf lets pip install into the user's own folder, as in E2B's template: what
// belongs to the distribution is read-only here.
const pipConf = "[global]\nbreak-system-packages = true\ndisable-pip-version-check = true\n"

// downloaders are programs that want a registry of package offline, pip apart.
var downloaders = map[string]string{"npm": "npm", "pnpm": "npm", "yarn": "npm", "uv": "pypi", "apt": "debian", "apt-get": "debian"}

// localDir is where users' own programs and packages are: pip's by default, and npm's
// by npmEnv.
const localDir = protocol.DefaultHome + "/.local"

// npmEnv has npm install what is global below the home, as the host's own folder is
// read-only.
var npmEnv = []string{"NPM_CONFIG_GLOBALCONFIG=" + offline.NpmFile, "NPM_CONFIG_PREFIX=" + localDir}

// tools provides `python` and `pip` where the toolchain has only python3, and wraps
// what installs packages: a failure without a network says that there is none.
func (c *composer) tools(tc Toolchain, searchPath string) {
	c.mkdir(wrapperDir, 0o755)
	c.mkdir(fallbackDir, 0o755)
	c.mkdir(FontDir, 0o777)
	closed := offline.Files(offline.Registries) // the guest changes it
	for _, name := range slices.Sorted(maps.Keys(closed)) {
		c.mkdirAll(path.Dir(name))
		c.write(name, closed[name], 0o644)
	}
	c.write("/etc/pip.conf", pipConf, 0o644)

	var folders []string
	for _, dir := range strings.Split(searchPath, ":") {
		if !under(dir, "/home") && !under(dir, "/.cubby") {
			folders = append(folders, dir)
		}
	}
	for name, registry := range downloaders {
		if real := c.lookUp(name, folders); real != "" {
			c.write(path.Join(wrapperDir, name), wrapper(quoteShell(real), registry), 0o755)
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
		c.write(path.Join(wrapperDir, name), wrapper(quoteShell(python)+" -m pip", "pypi"), 0o755)
	}
	c.mkdirAll(userSite(python))
}

// userSite is where pip installs to for users. It is there before a kernel starts: Python
// looks there for packages only if it is. Other Pythons than CPython, and those whose
// name does not tell the version, have the user's folder alone; kernels of these look
// again after each call.
func userSite(python string) string {
	if real, err := filepath.EvalSymlinks(python); err == nil {
		if m := pythonName.FindStringSubmatch(filepath.Base(real)); m != nil {
			return path.Join(localDir, "lib", m[0], "site-packages")
		}
	}
	return localDir
}

var pythonName = regexp.MustCompile(`^python3\.[0-9]+t?$`)

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
// says that the network does not reach the registry, if it does not.
func wrapper(program, registry string) string {
	return `#!/bin/sh
` + program + ` "$@"
status=$?
[ "$status" -ne 0 ] || exit 0
case " $* " in
*" install "* | *" i "* | *" ci "* | *" add "* | *" download "* | *" update "* | *" upgrade "* | *" sync "*)
	{ read -r closed && read -r words; } 2>/dev/null <` + offline.NetworkFile + `
	case " $closed " in
	*" ` + registry + ` "*) printf '%s\n' "$words" >&2 ;;
	esac
	;;
esac
exit "$status"
`
}

// quoteShell makes one word of a shell's script of a path.
func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
