package workdir

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/artifact"
)

// Scheme says where an input is.
type Scheme string

// The schemes.
const (
	SchemeArtifact  Scheme = "artifact"
	SchemeHost      Scheme = "host"
	SchemeWorkspace Scheme = "workspace"
	SchemeSkill     Scheme = "skill"
)

// Input is an InputSpec that was understood.
type Input struct {
	Scheme Scheme
	// Path is the artifact's name, the host's absolute path in its own form, or
	// the clean path below the workspace; a skill's is below DirSkills there.
	Path    string
	Version *int // of an artifact; nil: the newest
	To      string
	Link    bool
	codeexec.InputSpec
}

// DirInputs is where inputs go that do not say where.
var DirInputs = path.Join(codeexec.DirWork, "inputs")

// ParseInput understands one input. A bad one is [codeexec.ErrBadPath].
func ParseInput(spec codeexec.InputSpec) (Input, error) {
	in, err := parseInput(spec)
	if err != nil {
		return Input{}, fmt.Errorf("%w: input %.200q: %w", codeexec.ErrBadPath, spec.From, err)
	}
	return in, nil
}

func parseInput(spec codeexec.InputSpec) (Input, error) {
	scheme, rest, ok := strings.Cut(spec.From, "://")
	if !ok {
		return Input{}, errors.New("want artifact://NAME[@VERSION], host://ABSOLUTE/PATH, workspace://PATH or skill://NAME/PATH")
	}
	in := Input{Scheme: Scheme(scheme), InputSpec: spec}
	switch spec.Mode {
	case "", "copy":
	case "link":
		in.Link = true
	default:
		return Input{}, fmt.Errorf("mode %.40q: want copy or link", spec.Mode)
	}
	var base string
	switch in.Scheme {
	case SchemeArtifact:
		name, version, err := artifact.ParseRef(rest)
		if err != nil {
			return Input{}, err
		}
		in.Path, in.Version = name, version
		base = path.Base(strings.TrimPrefix(name, "user:"))
	case SchemeHost:
		p := filepath.FromSlash(rest)
		if !filepath.IsAbs(p) || strings.IndexByte(p, 0) >= 0 {
			return Input{}, errors.New("the host's path is not absolute")
		}
		in.Path = filepath.Clean(p)
		base = filepath.Base(in.Path)
	case SchemeWorkspace, SchemeSkill:
		p, err := CleanFile(rest)
		if err != nil {
			return Input{}, err
		}
		in.Path = p
		if in.Scheme == SchemeSkill {
			in.Path = path.Join(codeexec.DirSkills, p)
		}
		base = path.Base(p)
	default:
		return Input{}, fmt.Errorf("unknown scheme %.40q: want artifact, host, workspace or skill", scheme)
	}
	to := spec.To
	if to == "" {
		if base == "." || base == "/" || base == string(filepath.Separator) || base == ".." {
			return Input{}, errors.New("it has no name of its own: say where it goes")
		}
		to = path.Join(DirInputs, base)
	}
	clean, err := CleanFile(to)
	if err != nil {
		return Input{}, err
	}
	in.To = clean
	return in, nil
}

// CheckHostBase refuses a path of the host that is not below base, whatever its
// links say. An empty base refuses nothing.
func CheckHostBase(base, name string) error {
	if base == "" {
		return nil
	}
	base, err := filepath.EvalSymlinks(base)
	if err != nil {
		return err
	}
	if base, err = filepath.Abs(base); err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	if rel, err := filepath.Rel(base, real); err != nil || !filepath.IsLocal(rel) {
		return fmt.Errorf("%w: %s is not below %s, where inputs may come from", codeexec.ErrBadPath, name, base)
	}
	return nil
}
