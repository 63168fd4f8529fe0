//go:build linux

package settings

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
)

const (
	// maxString bounds, in bytes, an argument or a variable with its name, as Linux
	// does: the sandbox's kernel calls what is longer a file name that is too long.
	maxString = 128<<10 - 1
	// maxConfig bounds the arguments and the environment of one command, in bytes,
	// as Linux does.
	maxConfig = 2 << 20
	// maxVariables bounds the variables of one call. Bash and the C library take
	// the square of their number: seconds for 20,000.
	maxVariables = 4096
)

// BadVariable says that a name or a value is none.
type BadVariable string

func (name BadVariable) Error() string {
	return fmt.Sprintf("bad environment variable %q: a name is not empty and has no '=', and neither has a NUL", reply.Cut(string(name)))
}

// CheckEnv checks the variables of one call. An error that is no BadVariable says
// that they are too many or too large.
func CheckEnv(env map[string]string) error {
	total := 0
	for name, v := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(v, "\x00") {
			return BadVariable(name)
		}
		size := len(name) + 1 + len(v)
		if size > maxString {
			return fmt.Errorf("the environment is too large: %q has %d bytes, and a variable can have %d: put it into a file", reply.Cut(name), size, maxString)
		}
		total += size + 1
	}
	switch {
	case len(env) > maxVariables:
		return fmt.Errorf("the environment is too large: it has %d variables, and can have %d", len(env), maxVariables)
	case total > maxConfig:
		return fmt.Errorf("the environment is too large: it has %d bytes, and can have %d: put some of it into a file", total, maxConfig)
	}
	return nil
}

// CheckArguments says whether Linux starts a program with these arguments and
// variables, as far as can be seen from them.
func CheckArguments(args, env []string) error {
	total := 0
	for _, arg := range args {
		if strings.IndexByte(arg, 0) >= 0 {
			return errors.New("an argument has a NUL character: no program can be given one")
		}
		if len(arg) > maxString {
			return fmt.Errorf("an argument has %d bytes, and can have %d: put it into a file", len(arg), maxString)
		}
		total += len(arg) + 1
	}
	for _, variable := range env {
		total += len(variable) + 1
	}
	if total > maxConfig {
		return fmt.Errorf("the arguments and variables have %d bytes, and can have %d: put them into a file", total, maxConfig)
	}
	return nil
}
