package codeexec

import (
	"slices"
	"strings"
)

// Languages that executors know, by their normalised names. Executors of remote
// servers may have more, under those servers' names.
const (
	Python     = "python"
	JavaScript = "javascript"
	TypeScript = "typescript"
	Bash       = "bash"
)

// aliases are the names that models write. A Python 2 is not among them: its
// code fails as Python 3, and a transcript of a session is data.
var aliases = map[string]string{
	"": Python, "python": Python, "py": Python, "python3": Python, "py3": Python, "tool_code": Python,
	"ipython": Python, "ipython3": Python,
	"javascript": JavaScript, "js": JavaScript, "node": JavaScript, "nodejs": JavaScript, "mjs": JavaScript,
	"cjs": JavaScript, "ecmascript": JavaScript,
	"typescript": TypeScript, "ts": TypeScript, "mts": TypeScript, "cts": TypeScript,
	"bash": Bash, "sh": Bash, "shell": Bash, "zsh": Bash, "shellscript": Bash, "shell-script": Bash,
}

// dataLanguages label what is to be read, not run.
var dataLanguages = map[string]bool{
	"json": true, "json5": true, "jsonc": true, "jsonl": true, "ndjson": true, "csv": true, "tsv": true,
	"text": true, "txt": true, "plain": true, "plaintext": true, "output": true, "tool_output": true, "stdout": true,
	"stderr": true, "log": true, "logs": true, "console": true, "terminal": true, "shell-session": true,
	"shellsession": true, "pycon": true, "python-repl": true, "python-console": true, "traceback": true,
	"pytb": true, "yaml": true, "yml": true, "toml": true, "ini": true, "properties": true, "env": true,
	"dotenv": true, "xml": true, "html": true, "svg": true, "css": true, "markdown": true, "md": true, "mdx": true,
	"rst": true, "latex": true, "tex": true, "diff": true, "patch": true, "mermaid": true, "dot": true,
	"graphviz": true, "table": true, "math": true, "none": true,
}

// NormalizeLanguage returns the name under which executors know a language:
// "py", "Python3" and "" are [Python], "sh" is [Bash]. A name that it does not
// know comes back in lower case.
func NormalizeLanguage(language string) string {
	name := strings.ToLower(strings.TrimSpace(language))
	if known, ok := aliases[name]; ok {
		return known
	}
	// python3.12
	if minor, ok := strings.CutPrefix(name, "python3."); ok && minor != "" && strings.Trim(minor, "0123456789.") == "" {
		return Python
	}
	return name
}

// IsDataLanguage reports whether a fence of this name holds something to read,
// such as JSON, a table or the output of a program. It is never run.
func IsDataLanguage(language string) bool {
	return dataLanguages[strings.ToLower(strings.TrimSpace(language))]
}

// supports reports whether one of the languages, which are normalised, is the
// one that a model calls language.
func supports(languages []string, language string) bool {
	return !IsDataLanguage(language) && slices.Contains(languages, NormalizeLanguage(language))
}
