//go:build linux

package interpreter

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
)

// normalise returns the language that name means and the language of its kernel.
func normalise(name string) (language, kernelLanguage string, err error) {
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "", "python", "py", "python3":
		return settings.Python, settings.Python, nil
	case "javascript", "js", "node":
		return settings.JavaScript, settings.JavaScript, nil
	case "typescript", "ts":
		return settings.TypeScript, settings.JavaScript, nil
	case "bash", "sh", "shell":
		return settings.Bash, settings.Bash, nil
	}
	return "", "", errUnknown
}

// errUnknown says that a language is none of ours.
var errUnknown = errors.New("unknown")

// noLanguage says what is wrong with a language that does not run here, and which
// do.
func (ip *Interpreter) noLanguage(name string, why error) string {
	var have []string
	for _, x := range []struct{ language, kernel string }{{settings.Python, settings.Python},
		{settings.JavaScript, settings.JavaScript}, {settings.TypeScript, settings.JavaScript}, {settings.Bash, settings.Bash}} {
		if ip.settings.Config.Interpreters[x.kernel] != "" {
			have = append(have, x.language)
		}
	}
	problem := why.Error()
	if errors.Is(why, errUnknown) {
		problem = fmt.Sprintf("unknown language %q", reply.Cut(name))
	}
	if len(have) == 0 {
		return problem + ": this sandbox runs none"
	}
	return problem + "; this sandbox runs " + strings.Join(have, ", ")
}
