package steps

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby/agent/validate"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/clip"
)

// MaxCodeChars bounds code that no [Validator] looks at, in characters.
const MaxCodeChars = 10_000

// Validator looks at code before it runs; *validate.Validator is one.
type Validator interface {
	Validate(ctx context.Context, code validate.Code) (validate.Report, error)
}

// Verdict is what is said about code before it runs. It is advice: the sandbox
// is the wall.
type Verdict struct {
	// Valid says that the code may run: it compiles, and no rule denies it.
	Valid bool
	// Review says that a person should look at it first.
	Review bool
	Reason string // why it is not valid, or to be reviewed; for people and models
	Report validate.Report
}

// ValidateCodeInput looks at code before it runs: length, NUL bytes, syntax and
// policy as v has them. Without v (nil) only length, NUL and UTF-8.
func ValidateCodeInput(ctx context.Context, v Validator, code codeexec.CodeBlock) (Verdict, error) {
	if v == nil {
		return plainVerdict(code), nil
	}
	report, err := v.Validate(ctx, validate.Code{Language: code.Language, Source: code.Code})
	if err != nil {
		return Verdict{}, fmt.Errorf("validate code: %w", err)
	}
	verdict := Verdict{Valid: report.Valid && report.Decision != validate.Deny, Report: report}
	switch {
	case !report.Valid:
		verdict.Reason = "Not valid: " + listing(report.Errors, validate.Allow)
	case !verdict.Valid:
		verdict.Reason = "Unsafe operations: " + listing(report.Findings, validate.Deny)
	case report.Decision == validate.Review:
		verdict.Review = true
		verdict.Reason = "To be reviewed: " + listing(report.Findings, validate.Review)
	}
	return verdict, nil
}

func plainVerdict(code codeexec.CodeBlock) Verdict {
	v := Verdict{Report: validate.Report{Language: codeexec.NormalizeLanguage(code.Language), Unchecked: true, Decision: validate.Deny}}
	switch n := utf8.RuneCountInString(code.Code); {
	case n > MaxCodeChars:
		v.Reason = fmt.Sprintf("Code too long: %d characters (max %d)", n, MaxCodeChars)
	case strings.ContainsRune(code.Code, 0):
		v.Reason = "Invalid characters in code: NUL"
	case !utf8.ValidString(code.Code):
		v.Reason = "Invalid characters in code: it is not UTF-8"
	default:
		v.Valid, v.Report.Valid, v.Report.Decision = true, true, validate.Allow
	}
	return v
}

// listing names findings of at least a decision, the first few of them.
func listing(findings []validate.Finding, least validate.Decision) string {
	const most = 5
	var all []string
	for _, f := range findings {
		if least == validate.Deny && f.Decision != validate.Deny || least == validate.Review && f.Decision == validate.Allow {
			continue
		}
		s := codeexec.CleanText(f.Message)
		if f.Line > 0 {
			s = fmt.Sprintf("line %d: %s", f.Line, s)
		}
		if f.Remedy != "" {
			s += " (" + codeexec.CleanText(f.Remedy) + ")"
		}
		all = append(all, clip.Ellipsis(s, 500))
	}
	if len(all) > most {
		all = append(all[:most], fmt.Sprintf("and %d more", len(all)-most))
	}
	return strings.Join(all, "; ")
}
