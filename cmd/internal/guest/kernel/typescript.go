package kernel

import (
	"fmt"

	"github.com/evanw/esbuild/pkg/api"
)

// SyntaxError says where TypeScript could not be read.
type SyntaxError struct {
	// Line counts from 1, Column from 1 in bytes. Both are 0 if unknown.
	Line, Column int
	// Text is the complaint, LineText the whole line it is about.
	Text, LineText string
}

func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return e.Text
	}
	return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Text)
}

// tsconfig keeps imports which this cell does not use: a later one may.
const tsconfig = `{"compilerOptions":{"verbatimModuleSyntax":true,"experimentalDecorators":true,"useDefineForClassFields":true}}`

// StripTypes turns TypeScript into JavaScript for the Node kernel. Source that is
// only valid with JSX in it is read as TSX. The error is a *SyntaxError.
func StripTypes(src string) (string, error) {
	js, err := transform(src, api.LoaderTS)
	if err == nil {
		return js, nil
	}
	if js, errX := transform(src, api.LoaderTSX); errX == nil {
		return js, nil
	}
	return "", err
}

func transform(src string, loader api.Loader) (string, error) {
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
		e := &SyntaxError{Text: m.Text}
		if m.Location != nil {
			e.Line, e.Column, e.LineText = m.Location.Line, m.Location.Column+1, m.Location.LineText
		}
		return "", e
	}
	return string(res.Code), nil
}
