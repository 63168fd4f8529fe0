// Package doctor examines what this machine can do for Cubby, what is missing
// and how to get it. It changes nothing.
package doctor

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/cubby-sandbox/cubby/internal/clip"
)

// Status is the outcome of one check.
type Status string

// OK means as good as it gets; Warn that something works less well; Fail that
// Cubby cannot run code here.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Check is one thing that was looked at.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`           // what is
	Remedy string `json:"remedy,omitempty"` // what to do about it; empty if nothing
}

// Interpreter is one language's program.
type Interpreter struct {
	Language string            `json:"language"`
	Path     string            `json:"path,omitempty"` // empty if missing
	Version  string            `json:"version,omitempty"`
	Modules  map[string]string `json:"modules,omitempty"` // name to version
}

// Report is everything that was found.
type Report struct {
	Version string `json:"version"` // of Cubby
	System  string `json:"system"`  // one line
	// OK is false if any check failed: no code can be run.
	OK           bool          `json:"ok"`
	Checks       []Check       `json:"checks"`
	Interpreters []Interpreter `json:"interpreters"`
	// LimitsNotEnforced names the limits that do not hold here in every case, by
	// the names that results of runs use: "cpu" without control groups holds for
	// whole processors but not for fractions.
	LimitsNotEnforced []string `json:"limits_not_enforced"`
}

// add appends a check, its texts cleaned of whatever could upset a terminal.
func (r *Report) add(c Check) {
	c.Detail, c.Remedy = printable(c.Detail), printable(c.Remedy)
	r.Checks = append(r.Checks, c)
	if c.Status == Fail {
		r.OK = false
	}
}

// printable replaces control characters and cuts what is too long to be read.
func printable(s string) string {
	s = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, "?"))
	return clip.Ellipsis(strings.Join(strings.Fields(s), " "), 1000)
}

const (
	nameWidth = 18 // columns of the checks' names
	lineWidth = 100
)

// WriteText writes the report for people. Errors of w are returned.
func (r Report) WriteText(w io.Writer, color bool) error {
	paint := func(code, s string) string {
		if !color {
			return s
		}
		return "\x1b[" + code + "m" + s + "\x1b[0m"
	}
	marks := map[Status]string{OK: paint("32", "✓"), Warn: paint("33", "!"), Fail: paint("31", "✗")}

	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s\n\n", paint("1", "Cubby "+r.Version), r.System)
	indent := strings.Repeat(" ", nameWidth+5)
	warnings, failures := 0, 0
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "  %s %-*s ", marks[c.Status], nameWidth, c.Name)
		b.WriteString(wrap(c.Detail, indent))
		b.WriteByte('\n')
		if c.Remedy != "" {
			b.WriteString(indent[:len(indent)-1] + paint("36", "→ ") + wrap(c.Remedy, indent+" ") + "\n")
		}
		switch c.Status {
		case Warn:
			warnings++
		case Fail:
			failures++
		}
	}
	b.WriteByte('\n')
	switch {
	case failures > 0:
		b.WriteString(paint("31", fmt.Sprintf("Cubby cannot run code here: %s to mend first.", count(failures, "thing"))))
	case warnings > 0:
		b.WriteString(paint("32", "Cubby can run code here.") + fmt.Sprintf(" %s could be better.", capital(count(warnings, "thing"))))
	default:
		b.WriteString(paint("32", "Cubby can run code here. Nothing is missing."))
	}
	if len(r.LimitsNotEnforced) > 0 {
		b.WriteString("\nLimits that do not always hold here: " + strings.Join(r.LimitsNotEnforced, ", ") + ".")
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

func count(n int, noun string) string {
	if n == 1 {
		return "one " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// wrap breaks text at spaces; lines after the first begin with indent.
func wrap(text, indent string) string {
	var b strings.Builder
	column := len(indent)
	for i, word := range strings.Fields(text) {
		width := len([]rune(word))
		switch {
		case i == 0:
		case column+1+width > lineWidth:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += width
	}
	return b.String()
}
