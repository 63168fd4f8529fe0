// Package parsers has the parsers of JavaScript, TypeScript and Bash that validate
// and steps take, in a module of its own: they are esbuild and mvdan.cc/sh, which
// not every program that has an agent needs.
//
//	v, err := validate.New(executor, validate.Options{Policy: policy, Checkers: parsers.Checkers()})
//	report, err := steps.TestCode(ctx, executor, code, cases, steps.WithTranspiler(parsers.CommonJS))
//
// They run in this process. What they are given is hostile, and they recurse: the
// callers bound its length and nesting.
package parsers

import (
	"github.com/cubby-sandbox/cubby/agent/validate"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// Checkers returns a new map of all checkers here, for [validate.Options].
func Checkers() map[string]validate.Checker {
	return map[string]validate.Checker{
		codeexec.Bash: Bash{}, codeexec.JavaScript: JavaScript{}, codeexec.TypeScript: JavaScript{},
	}
}
