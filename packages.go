package cubby

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/internal/clip"
)

// Packages are installed when a sandbox is created, before anything else happens in
// it: pip's for its user, npm's into node_modules of [Home]. While that lasts, the
// network reaches the registries alone: on a Cubby server what @pypi and @npm stand
// for, elsewhere pypi.org, files.pythonhosted.org and registry.npmjs.org.
type Packages struct {
	// Pip are requirements as PEP 508 writes them: numpy, requests[socks]>=2.31,
	// tomli; python_version < "3.11". Each may end in --hash=ALGORITHM:DIGEST options;
	// where one has them, all need them. URLs, paths and other options are refused.
	Pip []string
	// Npm are names with an optional version: left-pad, @types/node@20,
	// lodash@^4.17.0. URLs, paths, repositories and options are refused.
	Npm []string
	// Build lets packages run code of their own while they are installed: pip then
	// takes source distributions where there is no wheel, and npm runs install scripts.
	// When they are installed, every process in the sandbox is killed. Without it no
	// code of theirs runs before it is imported.
	Build bool
}

// WithPackages installs packages when the sandbox is created; [WithNetwork] holds from
// then on. It takes the time that it takes: unless the context has a deadline, at most
// ten minutes beside the create's own, all of which counts as the sandbox's life.
//
// [Client.Create] then fails also with [CodeInvalidArgument] for a name that is none,
// with [CodeUnimplemented] where the sandbox has no pip or npm, or a virtual environment's, with [CodeNotFound] for
// a package that there is not, and with [CodeUnavailable] where they could not be
// installed for another reason. There is no sandbox then.
func WithPackages(p Packages) CreateOption {
	return createOption(func(c *createConfig) { c.packages = p })
}

const (
	installTimeout = 10 * time.Minute
	// installOutput bounds what is read of an installer, in bytes.
	installOutput = 1 << 20
	// maxPackages bounds the packages of one kind, and maxPackage the bytes of one.
	maxPackages = 1000
	maxPackage  = 4096
)

func (p Packages) empty() bool { return len(p.Pip)+len(p.Npm) == 0 }

// Check finds what is no package's name, as [Client.Create] does before anything else:
// what pip or npm would take for a file, a URL or an option.
func (p Packages) Check() error {
	for _, list := range []struct {
		field, example string
		names          []string
		form           *regexp.Regexp
	}{
		{"Packages.Pip", "numpy, requests[socks]>=2.31", p.Pip, pipForm},
		{"Packages.Npm", "left-pad, @types/node@20", p.Npm, npmForm},
	} {
		if len(list.names) > maxPackages {
			return fmt.Errorf("%s has %d packages: at most %d are possible", list.field, len(list.names), maxPackages)
		}
		for _, name := range list.names {
			if why := misnamed(name, list.form); why != "" {
				return &Error{Code: CodeInvalidArgument, Err: fmt.Errorf("%s: %q: %s", list.field, clip.Ellipsis(name, 100), why),
					Hint: "a package is given by its name in the registry, with a version if need be: " + list.example}
			}
		}
	}
	return nil
}

// misnamed says why a text is no package's name, if it is none.
func misnamed(name string, form *regexp.Regexp) string {
	switch {
	case strings.TrimSpace(name) == "":
		return "it is empty"
	case len(name) > maxPackage:
		return "it is too long"
	case strings.HasPrefix(strings.TrimSpace(name), "-"):
		return "it begins with a dash, and options are not taken"
	case strings.Contains(name, "://") || strings.Contains(name, "git+"):
		return "it is a URL, which leads past the registry"
	case strings.HasPrefix(name, "/") || strings.HasPrefix(name, ".") || archive.MatchString(name):
		return "it is a path or an archive: copy it in and install it there"
	case !form.MatchString(name):
		return "it is no package's name"
	}
	return ""
}

var (
	pipForm = regexp.MustCompile(`^` + pipName + `\s*(\[\s*` + pipName + `(\s*,\s*` + pipName + `)*\s*\])?` +
		`\s*(` + pipVersions + `|\(\s*` + pipVersions + `\s*\))?` +
		`\s*(;\s*` + pipMarker + `(\s+` + pipMarker + `)*)?(\s+--hash=[a-z0-9]+:[0-9a-fA-F]+)*\s*$`)
	npmForm = regexp.MustCompile(`^(@[A-Za-z0-9_][A-Za-z0-9._~-]*/)?[A-Za-z0-9_][A-Za-z0-9._~-]*(@[A-Za-z0-9._~^<>=|*+ -]+)?$`)
	// archive is what pip and npm take for a file.
	archive = regexp.MustCompile(`(?i)\.(whl|zip|tar|tgz|tar\.[a-z0-9]+)$`)
)

const (
	pipName     = `[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?`
	pipVersion  = `(===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9_.*+!-]+`
	pipVersions = pipVersion + `(\s*,\s*` + pipVersion + `)*`
	// pipMarker is one word of a marker; none begins with a dash, as an option would.
	pipMarker = `[A-Za-z0-9_.'"<>=!~(),][A-Za-z0-9_.'"<>=!~(),*+-]*`
)

// registries are what an installer needs.
func (p Packages) registries(cubby bool) []string {
	var allow []string
	add := func(preset string, hosts ...string) {
		if cubby {
			hosts = []string{preset}
		}
		allow = append(allow, hosts...)
	}
	if len(p.Pip) > 0 {
		add("@pypi", "pypi.org", "files.pythonhosted.org")
	}
	if len(p.Npm) > 0 {
		add("@npm", "registry.npmjs.org")
	}
	return allow
}

// install installs packages, and then gives the sandbox its network.
func (s *Sandbox) install(ctx context.Context, p Packages, network Network) error {
	ctx, cancel := bounded(ctx, installTimeout)
	defer cancel()
	if err := s.SetNetwork(ctx, Network{Allow: p.registries(s.cubby)}); err != nil {
		return err
	}
	if len(p.Pip) > 0 {
		pip := installer{
			program: "pip", missing: "python3-pip (Alpine: py3-pip, Arch: python-pip)",
			argv: []string{"python3", "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--no-warn-script-location",
				"--no-cache-dir", "--progress-bar=off", "--quiet"},
			list: strings.Join(p.Pip, "\n") + "\n", absent: regexp.MustCompile(`No matching distribution found`),
		}
		if !p.Build {
			pip.argv = append(pip.argv, "--only-binary=:all:")
			pip.hint = "only packages with a wheel are installed, unless they may run code of their own meanwhile: --build, Packages.Build"
		}
		if err := s.runInstaller(ctx, pip); err != nil {
			return err
		}
	}
	if len(p.Npm) > 0 {
		npm := installer{
			program: "npm", missing: "npm",
			argv:   []string{"npm", "install", "--prefix=" + Home, "--no-audit", "--no-fund", "--no-update-notifier", "--no-progress", "--loglevel=error"},
			absent: regexp.MustCompile(`npm error code (E404|ETARGET)`),
		}
		if !p.Build {
			npm.argv = append(npm.argv, "--ignore-scripts")
		}
		npm.argv = append(append(npm.argv, "--"), p.Npm...)
		if err := s.runInstaller(ctx, npm); err != nil {
			return err
		}
	}
	if p.Build {
		// What packages have started goes on after their installer's end, maybe as root.
		if _, err := s.Commands().Exec(ctx, []string{"/bin/sh", "-c", "kill -9 -1"}, WithUser("root")); err != nil {
			return fmt.Errorf("ending what packages have started: %w", err)
		}
	}
	return s.SetNetwork(ctx, network)
}

// installer is a call of one.
type installer struct {
	program, missing string // its name, and what to install where it is missing
	argv             []string
	list             string         // a requirements file
	absent           *regexp.Regexp // finds in its output that there is no such package
	hint             string         // of a failure
}

// installScript runs its arguments with the file of what it reads behind them, if that is
// not empty. The status 127 says that there is no such program.
const installScript = `command -v "$1" >/dev/null || exit 127
list=$(mktemp) && cat >"$list" || exit
if [ -s "$list" ]; then set -- "$@" "--requirement=$list"; fi
"$@"
status=$?
rm -f "$list"
exit "$status"
`

func (s *Sandbox) runInstaller(ctx context.Context, in installer) error {
	began := time.Now()
	res, err := s.Commands().Exec(ctx, append([]string{"/bin/sh", "-c", installScript, "sh"}, in.argv...),
		WithStdin(strings.NewReader(in.list)), WithMaxOutput(installOutput))
	if err != nil {
		return err
	}
	said := strings.TrimSpace(res.Stderr + "\n" + res.Stdout)
	switch {
	case res.ExitCode == 0:
		return nil
	case res.ExitCode == 127 || strings.Contains(said, "No module named pip"):
		return &Error{Code: CodeUnimplemented, Err: fmt.Errorf("there is no %s in the sandbox", in.program),
			Hint: "on the computer that has the sandbox, install " + in.missing}
	}
	if in.program == "pip" && unwritable.MatchString(said) {
		return &Error{Code: CodeUnimplemented, Err: errors.New("the Python of the sandbox is a virtual environment, which takes no packages of the sandbox's user"),
			Hint: "on the computer that has the sandbox, choose the Python that the environment was made with (CUBBY_PYTHON), or install the packages into the environment"}
	}
	e := &Error{Code: CodeUnavailable, Err: fmt.Errorf("%s: %s", in.program, complaint(said, res.Status)), Hint: in.hint}
	if in.absent.MatchString(said) {
		e.Code = CodeNotFound
	}
	if refused := s.refusals(ctx, time.Since(began)); len(refused) > 0 {
		e.Code, e.Hint = CodeUnavailable, refused[0].Reason
	}
	return e
}

// unwritable finds in pip's output that there is no place for the user's packages: a
// virtual environment has none but its own, which is the host's.
var unwritable = regexp.MustCompile(`Permission denied: '[^'\n]*/site-packages/`)

// complaint is what an installer said was wrong: its lines that say so, or its last.
func complaint(said, status string) string {
	var lines []string
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		for _, begin := range []string{"ERROR: ", "npm error "} {
			if text, ok := strings.CutPrefix(line, begin); ok && !strings.HasPrefix(text, "A complete log") && len(lines) < 4 {
				lines = append(lines, text)
			}
		}
	}
	if len(lines) == 0 {
		if said == "" {
			return status
		}
		lines = []string{strings.TrimSpace(said[strings.LastIndexByte(said, '\n')+1:])}
	}
	return clip.Ellipsis(strings.Join(lines, "; "), 1000)
}

// withPackages installs what a create asked for; a sandbox in which that failed is ended.
func (s *Sandbox) withPackages(ctx context.Context, cfg createConfig) error {
	err := s.install(ctx, cfg.packages, cfg.network)
	if err == nil {
		return nil
	}
	err = fail("install packages", CodeUnavailable, err)
	if gone := s.Close(); gone != nil && CodeOf(gone) != CodeNotFound {
		err = fail("install packages", CodeOf(err), errors.Join(err, fmt.Errorf("the sandbox could not be ended: %w", gone)))
	}
	return err
}
