// Package transform is the program that makes JavaScript of TypeScript. It is not part of
// the guest: the compiler that it is made of is a third of what the guest would be, and
// most sandboxes never need it.
package transform

import (
	"github.com/evanw/esbuild/pkg/api"

	"github.com/cubby-sandbox/cubby/cmd/internal/typescript"
)

// tsconfig keeps imports which this cell does not use: a later one may.
const tsconfig = `{"compilerOptions":{"verbatimModuleSyntax":true,"experimentalDecorators":true,"useDefineForClassFields":true}}`

// StripTypes turns TypeScript into JavaScript for the Node kernel. Source that is
// only valid with JSX in it is read as TSX.
func StripTypes(src string) (string, *typescript.SyntaxError) {
	js, err := transform(src, api.LoaderTS)
	if err == nil {
		return js, nil
	}
	if js, errX := transform(src, api.LoaderTSX); errX == nil {
		return js, nil
	}
	return "", err
}

func transform(src string, loader api.Loader) (string, *typescript.SyntaxError) {
	res := api.Transform(src, api.TransformOptions{
		Loader:            loader,
		Target:            api.ESNext,
		Format:            api.FormatDefault,
		TsconfigRaw:       tsconfig,
		Sourcefile:        "cell.ts",
		Sourcemap:         api.SourceMapInline,
		SourcesContent:    api.SourcesContentExclude,
		LegalComments:     api.LegalCommentsInline,
		Charset:           api.CharsetUTF8,
		TreeShaking:       api.TreeShakingFalse,
		LogLevel:          api.LogLevelSilent,
		LogLimit:          1,
		JSXFactory:        "React.createElement",
		JSXFragment:       "React.Fragment",
		MinifyWhitespace:  false,
		MinifySyntax:      false,
		MinifyIdentifiers: false,
	})
	if len(res.Errors) > 0 {
		m := res.Errors[0]
		e := &typescript.SyntaxError{Text: m.Text}
		if m.Location != nil {
			e.Line, e.Column, e.LineText = m.Location.Line, m.Location.Column+1, m.Location.LineText
		}
		return "", e
	}
	return string(res.Code), nil
}
