// Package validate looks at code before it runs, without running it: does its
// language's compiler take it, and what does it do that a policy has a rule for.
//
//	v, err := validate.New(executor, validate.Options{Policy: validate.Production(), Checkers: parsers.Checkers()})
//	…
//	report, err := v.Validate(ctx, validate.Code{Language: "python", Source: source})
//	switch {
//	case !report.Valid: // report.Errors say why, with line and column
//	case report.Decision == validate.Deny: // report.Findings say what, and what to write instead
//	}
//
// # This is advice. The sandbox is the wall.
//
// A policy finds what honest code says openly, which is what most models write: it
// saves a run that would fail, asks a person where a person should look, and tells
// the model what to write instead. It holds nobody back. Some of what it does not
// see, each of which a test of this package shows:
//
//   - names that are put together while the code runs, such as
//     getattr(os, "sys" + "tem"), and objects that travel through lists,
//     arguments or other functions
//   - what libraries do on the code's behalf: pandas reads files and URLs, and
//     str.format reads attributes
//   - code in files that the code writes and then runs or imports
//   - other languages in strings and here-documents: python3 -c in Bash, SQL
//   - commands of Bash that variables, aliases or encodings hide
//   - what earlier code in the same sandbox has left in the way, including in the
//     way of the Python that checks Python
//
// So nothing may rely on a report for safety. Run all code in a sandbox whatever
// the report says.
//
// # How each language is looked at
//
// Python is compiled, and not run, by the Python of a [codeexec.CodeExecutor]:
// that is the grammar that will run it, magics and top-level await included, and a
// compiler that crashes does so in the sandbox. JavaScript, TypeScript and Bash are
// looked at by a [Checker] that the caller gives, in this process; what it is given
// is bounded in length and nesting. The module agent/parsers has checkers with
// esbuild and mvdan.cc/sh. Languages without a checker are [Report.Unchecked],
// which is always a finding, and to be reviewed where the policy has rules that
// restrict the language.
package validate
