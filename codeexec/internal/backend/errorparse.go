package backend

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/clip"
)

// Bounds of what is read of an error, in bytes: its end is what tells.
const (
	maxErrorText = 64 << 10
	maxErrorType = 200
	maxErrorMsg  = 8 << 10
)

// ParseError finds type, message and line of an uncaught error in what a failed
// program of that language wrote to stderr, or in a traceback. It returns nil if
// there is none. The text is hostile.
func ParseError(language, text string) *codeexec.ExecutionError {
	text = clip.Tail(codeexec.CleanText(text), maxErrorText)
	var e *codeexec.ExecutionError
	switch codeexec.NormalizeLanguage(language) {
	case codeexec.Python:
		e = pythonError(text)
	case codeexec.JavaScript:
		e = nodeError(text)
	case codeexec.TypeScript:
		if e = typeScriptError(text); e == nil {
			e = nodeError(text)
		}
	case codeexec.Bash:
		e = bashError(text)
	}
	if e != nil {
		e.Type, e.Message = clip.Head(e.Type, maxErrorType), clip.Head(strings.TrimSpace(e.Message), maxErrorMsg)
		e.Traceback = strings.TrimSpace(e.Traceback)
	}
	return e
}

var (
	pyFrame = regexp.MustCompile(`^ +File "([^"]*)", line (\d+)`)
	pyName  = regexp.MustCompile(`^([A-Za-z_][\w.]*)(?:: ?(.*))?$`)
	// pyGroup is how the lines of an exception group begin.
	pyGroup = regexp.MustCompile(`^ *[|+][-+| ]*`)
)

const pyHead = "Traceback (most recent call last):"

// pythonError reads the last traceback, or a syntax error, which has none: a
// location, some lines that are indented, and the error's own line.
func pythonError(text string) *codeexec.ExecutionError {
	lines := strings.Split(text, "\n")
	begin := -1
	for i, line := range lines {
		if strings.HasSuffix(line, pyHead) {
			begin = i
		}
	}
	group := begin >= 0 && strings.Contains(lines[begin], "+ Exception Group")
	if begin < 0 {
		for i, line := range lines {
			if pyFrame.MatchString(line) && (i == 0 || !strings.HasPrefix(lines[i-1], " ")) {
				begin = i - 1 // the line before is where a head would be
			}
		}
		if begin < -1 || begin == -1 && (len(lines) == 0 || !pyFrame.MatchString(lines[0])) {
			return nil
		}
	}
	e := &codeexec.ExecutionError{}
	file := ""
	for i := begin + 1; i < len(lines); i++ {
		line := lines[i]
		if group {
			line = strings.TrimPrefix(strings.TrimPrefix(line, "  | "), "  +")
		}
		if m := pyFrame.FindStringSubmatch(line); m != nil {
			if file == "" && !libraryFile(m[1]) {
				file = m[1] // the outermost frame is the block itself
			}
			if m[1] == file {
				e.Line, _ = strconv.Atoi(m[2])
			}
			continue
		}
		if line == "" || line[0] == ' ' {
			continue
		}
		m := pyName.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		e.Type, e.Message = m[1], m[2]
		end := i + 1
		if !group {
			// What follows belongs to the message, as far as the error goes.
			for ; end < len(lines) && lines[end] != "" && !strings.Contains(lines[end], pyHead); end++ {
				e.Message += "\n" + lines[end]
			}
		} else {
			for ; end < len(lines) && pyGroup.MatchString(lines[end]); end++ {
			}
		}
		e.Traceback = strings.Join(lines[max(begin, 0):end], "\n")
		return e
	}
	return nil
}

func libraryFile(name string) bool {
	return strings.Contains(name, "/lib/python") || strings.Contains(name, "site-packages") || strings.HasPrefix(name, "<frozen ") ||
		strings.HasPrefix(name, "node:") || strings.Contains(name, "node_modules")
}

var (
	nodeWhere = regexp.MustCompile(`^([^ ].*):(\d+)$`)
	nodeFrame = regexp.MustCompile(`^ +at (?:.*\()?([^()]+):(\d+):\d+\)?(?: \{)?$`)
	nodeName  = regexp.MustCompile(`^(?:Uncaught )?([A-Za-z_$][\w$.]*)(?: \[\w+\])?(?:: (.*))?$`)
)

// nodeError reads what Node prints of an uncaught error: the place, its line and
// a caret; name and message; the stack, innermost first.
func nodeError(text string) *codeexec.ExecutionError {
	lines := strings.Split(text, "\n")
	place, begin := 0, 0
	for i, line := range lines {
		if m := nodeWhere.FindStringSubmatch(line); m != nil && i+1 < len(lines) {
			begin, place = i, 0
			if !libraryFile(m[1]) {
				place, _ = strconv.Atoi(m[2])
			}
		}
	}
	// The first line of the stack is below the message.
	stack := -1
	for i := begin; i < len(lines); i++ {
		if nodeFrame.MatchString(lines[i]) {
			stack = i
			break
		}
	}
	if stack < 0 {
		return thrownValue(lines, begin, place)
	}
	for i := begin; i < stack; i++ {
		m := nodeName.FindStringSubmatch(lines[i])
		if m == nil || m[2] == "" && i+1 < stack || !errorName(m[1]) {
			continue
		}
		e := &codeexec.ExecutionError{Type: m[1], Message: strings.Join(append([]string{m[2]}, lines[i+1:stack]...), "\n")}
		e.Line = nodeLine(lines[stack:], place)
		e.Traceback = strings.Join(lines[begin:], "\n")
		return e
	}
	return nil
}

// errorName reports whether a word can be the name of an error, which no rule
// says: it begins with a capital letter.
func errorName(s string) bool { return s[0] >= 'A' && s[0] <= 'Z' }

// nodeLine finds the innermost frame that is in the same file as the outermost
// one of the code.
func nodeLine(stack []string, otherwise int) int {
	file, line := "", otherwise
	for i := len(stack) - 1; i >= 0; i-- {
		m := nodeFrame.FindStringSubmatch(stack[i])
		if m == nil || libraryFile(m[1]) {
			continue
		}
		if file == "" {
			file = m[1]
		}
		if m[1] == file {
			line, _ = strconv.Atoi(m[2])
		}
	}
	return line
}

// thrownValue reads what Node prints when what was thrown is no error.
func thrownValue(lines []string, begin, place int) *codeexec.ExecutionError {
	for i := begin; i < len(lines); i++ {
		if value, ok := strings.CutPrefix(lines[i], "Uncaught "); ok {
			return &codeexec.ExecutionError{Type: "Error", Message: value, Line: place, Traceback: strings.Join(lines[i:], "\n")}
		}
		if trimmed := strings.TrimSpace(lines[i]); trimmed != "" && strings.Trim(trimmed, "^") == "" && i+1 < len(lines) {
			return &codeexec.ExecutionError{Type: "Error", Message: lines[i+1], Line: place, Traceback: strings.Join(lines[begin:], "\n")}
		}
	}
	return nil
}

var (
	tscError     = regexp.MustCompile(`(?m)^.*\((\d+),\d+\): error (TS\d+): (.*)$`)
	esbuildError = regexp.MustCompile(`(?m)^[^\n]*?:(\d+):\d+: (?:ERROR|error): (.*)$`)
)

func typeScriptError(text string) *codeexec.ExecutionError {
	if m := tscError.FindStringSubmatch(text); m != nil {
		line, _ := strconv.Atoi(m[1])
		return &codeexec.ExecutionError{Type: m[2], Message: m[3], Line: line, Traceback: text}
	}
	if m := esbuildError.FindStringSubmatch(text); m != nil {
		line, _ := strconv.Atoi(m[1])
		return &codeexec.ExecutionError{Type: "SyntaxError", Message: m[2], Line: line, Traceback: text}
	}
	return nil
}

var shellError = regexp.MustCompile(`(?m)^[^\n:]+: (?:line )?(\d+): (.+)$`)

// bashError takes the last complaint of a shell, but the first of those about
// one syntax error, whose second line only quotes.
func bashError(text string) *codeexec.ExecutionError {
	all := shellError.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return nil
	}
	m := all[len(all)-1]
	for _, candidate := range all {
		if strings.Contains(candidate[2], "syntax error") || strings.Contains(candidate[2], "unexpected") {
			m = candidate
			break
		}
	}
	e := &codeexec.ExecutionError{Type: "ShellError", Message: m[2], Traceback: text}
	e.Line, _ = strconv.Atoi(m[1])
	switch {
	case strings.Contains(m[2], "syntax error") || strings.Contains(m[2], "unexpected"):
		e.Type = "SyntaxError"
	case strings.HasSuffix(m[2], "not found"):
		e.Type = "CommandNotFound"
	case strings.HasSuffix(m[2], "unbound variable"):
		e.Type = "UnboundVariable"
	}
	return e
}
