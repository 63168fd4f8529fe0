package parsers

import (
	"github.com/evanw/esbuild/pkg/api"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// CommonJS makes a script of JavaScript or TypeScript that Node's vm.Script takes:
// without types, and with require and module.exports in the place of import and
// export. The error is the first of the code's. It is what steps.WithTranspiler
// takes; the code may have any length that the caller bears.
func CommonJS(language, code string) (string, *codeexec.ExecutionError) {
	loader := api.LoaderTS
	if language == codeexec.JavaScript {
		loader = api.LoaderJS
	}
	out := api.Transform(code, api.TransformOptions{
		Loader: loader, Format: api.FormatCommonJS, Target: api.ES2022, LogLevel: api.LogLevelSilent,
	})
	if len(out.Errors) > 0 {
		e := &codeexec.ExecutionError{Type: "SyntaxError", Message: out.Errors[0].Text}
		if at := out.Errors[0].Location; at != nil {
			e.Line = at.Line
		}
		return "", e
	}
	return string(out.Code), nil
}
