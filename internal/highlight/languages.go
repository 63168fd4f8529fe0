package highlight

import (
	"slices"
	"strings"
)

const (
	pythonWords = "False None True and as assert async await break case class continue def del elif else except finally for " +
		"from global if import in is lambda match nonlocal not or pass raise return try while with yield"
	scriptWords = "async await break case catch class const continue debugger default delete do else export extends false " +
		"finally for from function get if import in instanceof let new null of return set static super switch this throw true " +
		"try typeof undefined var void while yield"
	typeWords = "abstract any as boolean declare enum implements interface keyof namespace never number private protected " +
		"public readonly satisfies string type unknown"
	shellWords = "case cd do done echo elif else esac eval exec exit export fi for function if in local read readonly return " +
		"select set shift source then trap unset until while"
	sqlWords = "all alter and as asc between by case create cross delete desc distinct drop else end exists from full group " +
		"having in index inner insert into is join key left like limit not null offset on or order outer over partition primary " +
		"right select set table then union unique update using values view when where with"
)

// languageOf returns what is known of a language.
func languageOf(name string) (language, bool) {
	quotes := []delimiter{{text: `"`}, {text: `'`}}
	switch name {
	case "python":
		return language{
			comment: "#", keywords: sorted(pythonWords), defining: []string{"def", "class"},
			strings: append([]delimiter{{text: `"""`, lines: true}, {text: `'''`, lines: true}}, quotes...),
		}, true
	case "javascript", "typescript", "jsx", "tsx":
		l := language{
			comment: "//", block: [2]string{"/*", "*/"}, keywords: sorted(scriptWords), defining: []string{"function", "class"},
			strings: append(quotes, delimiter{text: "`", lines: true}),
		}
		if strings.HasPrefix(name, "t") {
			l.keywords = sorted(scriptWords + " " + typeWords)
			l.defining = append(l.defining, "interface", "enum", "namespace")
		}
		return l, true
	case "bash":
		return language{
			comment: "#", words: true, keywords: sorted(shellWords), defining: []string{"function"},
			strings: []delimiter{{text: `"`, lines: true}, {text: `'`, lines: true, raw: true}},
		}, true
	case "json":
		return language{strings: quotes[:1], keywords: sorted("false null true")}, true
	case "sql":
		return language{
			comment: "--", block: [2]string{"/*", "*/"}, keywords: sorted(sqlWords), upper: true,
			strings: []delimiter{{text: `'`, lines: true, raw: true}, {text: `"`, raw: true}},
		}, true
	}
	return language{}, false
}

func sorted(words string) []string {
	all := strings.Fields(words)
	slices.Sort(all)
	return all
}
