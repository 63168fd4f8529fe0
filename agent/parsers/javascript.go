package parsers

import (
	"context"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/cubby-sandbox/cubby/agent/internal/source"
	"github.com/cubby-sandbox/cubby/agent/validate"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// tsconfig keeps imports that nothing uses, as the kernel does.
const tsconfig = `{"compilerOptions":{"verbatimModuleSyntax":true,"experimentalDecorators":true,"useDefineForClassFields":true}}`

// JavaScript looks at JavaScript and TypeScript. The output of a compiler,
// esbuild, is what is searched: it has no types, no comments and no JSX, escapes in
// names are gone, and constant texts are in one piece.
type JavaScript struct{}

// Check implements [validate.Checker]. Its error is always nil.
func (JavaScript) Check(_ context.Context, code validate.Code) (validate.Observation, error) {
	src := source.New(code.Source)
	loaders := []api.Loader{api.LoaderJS}
	if codeexec.NormalizeLanguage(code.Language) == codeexec.TypeScript {
		loaders = []api.Loader{api.LoaderTS, api.LoaderTSX}
	}
	var first api.TransformResult
	for i, loader := range loaders {
		res := api.Transform(src.Text, api.TransformOptions{
			Loader: loader, Target: api.ESNext, TsconfigRaw: tsconfig, Sourcefile: "code", Sourcemap: api.SourceMapExternal,
			SourcesContent: api.SourcesContentExclude, LegalComments: api.LegalCommentsNone, Charset: api.CharsetUTF8,
			MinifySyntax: true, TreeShaking: api.TreeShakingFalse, LogLevel: api.LogLevelSilent, LogLimit: 10,
			JSXFactory: "React.createElement", JSXFragment: "React.Fragment",
		})
		if len(res.Errors) == 0 {
			return validate.Observation{Facts: scriptFacts(src, string(res.Code), res.Map)}, nil
		}
		if i == 0 {
			first = res
		}
	}
	var s validate.Observation
	for _, m := range first.Errors {
		f := validate.Fact{Message: source.Visible(m.Text)}
		if m.Location != nil {
			f.Line, f.Column = m.Location.Line, src.Column(m.Location.Line, m.Location.Column)
			f.Remedy = source.Visible(m.Location.Suggestion)
		}
		s.Errors = append(s.Errors, f)
	}
	return s, nil
}

// script searches the tokens of a script.
type script struct {
	src    *source.Source
	tokens []token
	places *sourceMap
	facts  []validate.Fact
}

func scriptFacts(src *source.Source, js string, mapJSON []byte) []validate.Fact {
	s := &script{src: src, tokens: tokenize(js), places: readSourceMap(mapJSON)}
	for i := range s.tokens {
		s.look(i)
	}
	return s.facts
}

func (s *script) add(i int, id, message, remedy string) {
	line, column := s.places.original(s.tokens[i].line, s.tokens[i].column)
	column = s.columnOf(line, column)
	s.facts = append(s.facts, validate.Fact{
		ID: id, Line: line, Column: column, Message: message, Remedy: remedy,
	})
}

// columnOf turns UTF-16 units of a line, from 0, into characters from 1.
func (s *script) columnOf(line, units int) int {
	column := 1
	for _, r := range s.src.Line(line) {
		if units--; units < 0 {
			break
		}
		if r > 0xFFFF {
			units--
		}
		column++
	}
	return column
}

// is reports whether the tokens from i on are these.
func (s *script) is(i int, texts ...string) bool {
	for k, text := range texts {
		if i+k < 0 || i+k >= len(s.tokens) || s.tokens[i+k].kind == tokenString || s.tokens[i+k].text != text {
			return false
		}
	}
	return true
}

func (s *script) text(i int) (string, bool) {
	if i >= 0 && i < len(s.tokens) && s.tokens[i].kind == tokenString {
		return s.tokens[i].text, true
	}
	return "", false
}

// member reports whether token i is the name of a property, and of what name.
func (s *script) member(i int) (object string, ok bool) {
	if i >= 1 && s.tokens[i].kind == tokenName && (s.is(i-1, ".") || s.is(i-1, "?.")) {
		if i >= 2 && s.tokens[i-2].kind == tokenName {
			object = s.tokens[i-2].text
		}
		return object, true
	}
	return "", false
}

func (s *script) look(i int) {
	t := s.tokens[i]
	if t.kind != tokenName {
		if t.kind == tokenString && s.is(i-1, "[") && s.is(i+1, "]") {
			s.insides(i, t.text)
		}
		return
	}
	object, member := s.member(i)
	global := !member || object == "globalThis" || object == "global" || object == "window" || object == "self"
	property := s.is(i+1, ":") && (s.is(i-1, "{") || s.is(i-1, ","))
	switch {
	case member && t.text == "constructor", member && t.text == "__proto__":
		s.insides(i, t.text)
	case object == "process":
		s.process(i)
	case object == "Module" && (t.text == "createRequire" || t.text == "_load"), !member && t.text == "createRequire":
		s.add(i, "javascript.dynamic.createRequire", "makes a function that loads modules", "import the modules by their names")
	case !global || property || s.defined(i):
	case t.text == "import", t.text == "require":
		s.load(i)
	case t.text == "from" && !member:
		if name, ok := s.text(i + 1); ok && i > 0 {
			s.module(i+1, name)
		}
	case t.text == "eval", t.text == "Function":
		s.add(i, "javascript.dynamic."+t.text, t.text+" runs text as code", "write the code itself; JSON.parse reads data")
	case t.text == "fetch", t.text == "WebSocket", t.text == "XMLHttpRequest", t.text == "EventSource":
		s.add(i, "javascript.network."+t.text, t.text+" uses the network", "use the files that are there")
	case t.text == "WebAssembly":
		s.add(i, "javascript.native.WebAssembly", "WebAssembly runs machine code", "write JavaScript")
	case t.text == "process" && s.is(i+1, "["):
		if _, ok := s.text(i + 2); !ok {
			s.add(i, "javascript.dynamic.process", "reaches into the object process with a computed name", "write the name itself")
		}
	case (t.text == "globalThis" || t.text == "global") && s.is(i+1, "["):
		if _, ok := s.text(i + 2); !ok {
			s.add(i, "javascript.dynamic.globalThis", "reaches for a global with a computed name", "write the name itself")
		}
	}
}

// defined reports whether token i names a function or method that begins here:
// its brackets are followed by a body.
func (s *script) defined(i int) bool {
	if !s.is(i+1, "(") {
		return false
	}
	depth := 0
	for k := i + 1; k < len(s.tokens); k++ {
		switch {
		case s.is(k, "("):
			depth++
		case s.is(k, ")"):
			if depth--; depth == 0 {
				return s.is(k+1, "{")
			}
		}
	}
	return false
}

// load looks at import, import() and require().
func (s *script) load(i int) {
	word := s.tokens[i].text
	if name, ok := s.text(i + 1); ok && word == "import" {
		s.module(i+1, name)
		return
	}
	if !s.is(i+1, "(") {
		return // import … from, import.meta, or the function itself
	}
	name, ok := s.text(i + 2)
	if ok && (s.is(i+3, ")") || s.is(i+3, ",")) {
		s.module(i+2, name)
		return
	}
	s.add(i, "javascript.dynamic."+word, "loads a module whose name is not known before it runs", "write the module's name itself")
}

func (s *script) module(i int, name string) {
	name = source.Label(strings.TrimPrefix(name, "node:"))
	s.add(i, "javascript.import."+name, "imports the module "+name, "")
}

func (s *script) process(i int) {
	name := s.tokens[i].text
	switch name {
	case "exit", "kill", "abort", "chdir", "setuid", "setgid", "getBuiltinModule", "env", "mainModule", "reallyExit":
		s.add(i, "javascript.process."+name, "uses process."+name, "")
		if module, ok := s.text(i + 2); ok && name == "getBuiltinModule" {
			s.module(i+2, module)
		}
	case "binding", "_linkedBinding", "dlopen":
		s.add(i, "javascript.native.process."+name, "process."+name+" loads machine code", "use Node's modules")
	}
}

// insides looks at names that lead to the code that makes functions.
func (s *script) insides(i int, name string) {
	if name == "constructor" && (s.is(i+1, ".", "constructor") || s.is(i+1, "(") || s.is(i+1, "]", "(") || s.is(i+1, "]", "[")) && !s.is(i-1, "super") {
		s.add(i, "javascript.dynamic.constructor", "makes a function of text by way of a constructor", "write the function itself")
	}
	if name == "__proto__" {
		s.add(i, "javascript.dynamic.__proto__", "changes what objects inherit", "make objects with Object.create or a class")
	}
}
