package backend

import "github.com/cubby-sandbox/cubby/codeexec"

// Fences returns the delimiters that are fences of these languages, as they are
// written in a reply.
func Fences(languages ...string) []codeexec.CodeBlockDelimiter {
	all := make([]codeexec.CodeBlockDelimiter, len(languages))
	for i, language := range languages {
		all[i] = codeexec.CodeBlockDelimiter{Start: "```" + language + "\n", End: "\n```"}
	}
	return all
}
