package codeexec_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/codeexec"
)

func TestExtractCodeBlocks(t *testing.T) {
	type blocks = []codeexec.CodeBlock
	for name, tc := range map[string]struct {
		reply string
		opts  codeexec.ExtractOptions
		want  blocks
	}{
		"one fence among prose": {
			reply: "Let me see.\n```python\nprint(1)\n```\nDone.",
			want:  blocks{{Code: "print(1)\n", Language: "python"}},
		},
		"several fences in order": {
			reply: "```py\na\n```\ntext\n```bash\nb\n```\n```ts\nc\n```\n",
			want:  blocks{{Code: "a\n", Language: "py"}, {Code: "b\n", Language: "bash"}, {Code: "c\n", Language: "ts"}},
		},
		"a longer fence around a shorter one": {
			reply: "````python\ns = '''\n```\n'''\n````\n",
			want:  blocks{{Code: "s = '''\n```\n'''\n", Language: "python"}},
		},
		"tildes":                   {reply: "~~~python\nprint('```')\n~~~", want: blocks{{Code: "print('```')\n", Language: "python"}}},
		"backticks do not close ~": {reply: "~~~sh\na\n```\nb\n~~~", want: blocks{{Code: "a\n```\nb\n", Language: "sh"}}},
		"indented in a list": {
			reply: "1. First:\n\n   ```python\n   if x:\n       y()\n   ```\n",
			want:  blocks{{Code: "if x:\n    y()\n", Language: "python"}},
		},
		"on the line of a list's marker": {
			reply: "- ```python\n  if x:\n    y()\n  ```\n",
			want:  blocks{{Code: "if x:\n  y()\n", Language: "python"}},
		},
		"indented fence, code that is not": {
			reply: "    ```python\nfor i in x:\n    y(i)\n    ```\n",
			want:  blocks{{Code: "for i in x:\n    y(i)\n", Language: "python"}},
		},
		"info strings with attributes": {
			reply: "```python title=\"x\" {1,2}\na\n```\n```{.python .numberLines}\nb\n```\n```Python:main.py\nc\n```\n```python{3}\nd\n```\n```language-js\ne\n```",
			want: blocks{{Code: "a\n", Language: "python"}, {Code: "b\n", Language: "python"}, {Code: "c\n", Language: "Python"},
				{Code: "d\n", Language: "python"}, {Code: "e\n", Language: "js"}},
		},
		"a last fence that is not closed": {reply: "```python\nprint(1)\nprint(2)", want: blocks{{Code: "print(1)\nprint(2)", Language: "python"}}},
		"a fence that is not closed before the next": {
			reply: "```python\na\n\n```python\nb\n```\n",
			want:  blocks{{Code: "a\n\n", Language: "python"}, {Code: "b\n", Language: "python"}},
		},
		"CRLF": {reply: "```python\r\na\r\nb\r\n```\r\n", want: blocks{{Code: "a\nb\n", Language: "python"}}},
		"a pair of fences inside code": {
			reply: "```python\np = '''\n```json\n{}\n```\n'''\n```\n",
			want:  blocks{{Code: "p = '''\n```json\n{}\n```\n'''\n", Language: "python"}},
		},
		"code inside a document is part of it": {reply: "```markdown\n# Doc\n```python\nrm()\n```\n```\n"},
		"tool_code is Python":                  {reply: "```tool_code\na\n```", want: blocks{{Code: "a\n", Language: "tool_code"}}},
		"data is never run": {
			reply: "```json\n{}\n```\n```csv\na,b\n```\n```text\nx\n```\n```tool_output\n42\n```\n```console\n$ ls\n```",
			opts:  codeexec.ExtractOptions{Languages: []string{"json", "csv", "text", "tool_output", "console"}},
		},
		"a language that is not there":           {reply: "```rust\nfn main() {}\n```"},
		"a bare fence alone is Python":           {reply: "```\nprint(1)\n```", want: blocks{{Code: "print(1)\n"}}},
		"a bare fence beside code is its output": {reply: "```python\na\n```\nprints\n```\n42\n```", want: blocks{{Code: "a\n", Language: "python"}}},
		"unless all bare ones are asked for": {
			reply: "```python\na\n```\nprints\n```\n42\n```",
			opts:  codeexec.ExtractOptions{AllBare: true},
			want:  blocks{{Code: "a\n", Language: "python"}, {Code: "42\n"}},
		},
		"blank blocks are left out": {reply: "```python\n\n```\n```python\n```\n"},
		"a fence after text": {
			reply: "I run: ```python\nprint(1)\n```\nDone. And ```json\n{}\n```\n",
			want:  blocks{{Code: "print(1)\n", Language: "python"}},
		},
		"a fence that ends on a line of code": {
			reply: "```python\na = 1\nprint(a)```\nDone.\n\n```python\nb\n```\n",
			want:  blocks{{Code: "a = 1\nprint(a)", Language: "python"}, {Code: "b\n", Language: "python"}},
		},
		"blocks that begin with a mark": {
			reply: "```python\n# example\na\n```\n```python\nb\n```",
			opts:  codeexec.ExtractOptions{Ignore: []string{"# example"}},
			want:  blocks{{Code: "b\n", Language: "python"}},
		},
		"text in backticks is no fence":    {reply: "Use ```print(1)``` and\n```python print(2)```\n"},
		"no fence: no code":                {reply: "print(1)"},
		"no fence: code if that is asked":  {reply: "print(1)", opts: codeexec.ExtractOptions{WholeReply: true}, want: blocks{{Code: "print(1)"}}},
		"a fence of data: not the reply":   {reply: "```json\n{}\n```", opts: codeexec.ExtractOptions{WholeReply: true}},
		"only languages that are there":    {reply: "```python\na\n```\n```js\nb\n```", opts: codeexec.ExtractOptions{Languages: []string{"python"}}, want: blocks{{Code: "a\n", Language: "python"}}},
		"languages of a server of its own": {reply: "```R\na\n```", opts: codeexec.ExtractOptions{Languages: []string{"python", "r"}}, want: blocks{{Code: "a\n", Language: "R"}}},
		"delimiters: exactly those": {
			reply: "```python\na\n```\n```tool_code x=1\nb\n```\n```py\nc\n```\n```\nd\n```\n````tool_code\r\ne\r\n````",
			opts:  codeexec.ExtractOptions{Delimiters: fences("tool_code")},
			want:  blocks{{Code: "b", Language: "tool_code"}, {Code: "e", Language: "tool_code"}},
		},
		"local's preset": {
			reply: "```python\na\n```\n```bash\nb\n```\n```tool_code\nc\n```",
			opts:  codeexec.ExtractOptions{Delimiters: fences("python", "tool_code")},
			want:  blocks{{Code: "a", Language: "python"}, {Code: "c", Language: "tool_code"}},
		},
		"e2b's preset": {
			reply: "```python\na\n```\n```bash\nb\n```\n```sh\nc\n```",
			opts:  codeexec.ExtractOptions{Delimiters: fences("python", "tool_code", "bash")},
			want:  blocks{{Code: "a", Language: "python"}, {Code: "b", Language: "bash"}},
		},
		"delimiters that are no fences": {
			reply: "<code>a</code> and <execute>\nb\n</execute> and <code>bash\nc</code><code>d",
			opts: codeexec.ExtractOptions{Delimiters: []codeexec.CodeBlockDelimiter{
				{Start: "<code>", End: "</code>"}, {Start: "<execute>\n", End: "\n</execute>"},
			}},
			want: blocks{{Code: "a"}, {Code: "b"}, {Code: "c", Language: "bash"}, {Code: "d"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := codeexec.ExtractCodeBlocks(tc.reply, tc.opts)
			if len(got) != len(tc.want) {
				t.Fatalf("got %q, want %q", got, tc.want)
			}
			for i := range got {
				if got[i] != tc.want[i] {
					t.Errorf("block %d: got %q, want %q", i, got[i], tc.want[i])
				}
			}
		})
	}
}

// anyFence is the delimiter that is every fence.
var anyFence = codeexec.CodeBlockDelimiter{Start: "```", End: "```"}

// fences are delimiters as executors have them.
func fences(languages ...string) (all []codeexec.CodeBlockDelimiter) {
	for _, l := range languages {
		all = append(all, codeexec.CodeBlockDelimiter{Start: "```" + l + "\n", End: "\n```"})
	}
	return all
}

// A delimiter that is every fence takes blocks of data, too, but no blank ones.
func TestExtractEveryFence(t *testing.T) {
	got := codeexec.ExtractCodeBlocks("```python\na\n```\n```json\n{}\n```\n```\n\n```\n", codeexec.ExtractOptions{Delimiters: []codeexec.CodeBlockDelimiter{anyFence}})
	want := []codeexec.CodeBlock{{Code: "a\n", Language: "python"}, {Code: "{}\n", Language: "json"}}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Replies that would take a quadratic search minutes.
func TestExtractIsLinear(t *testing.T) {
	const n = 200_000
	for name, reply := range map[string]string{
		"openers without an end":    strings.Repeat("```python\n", n),
		"openers and one end":       strings.Repeat("```python\n", n) + "```\n",
		"fences of many lengths":    manyLengths(),
		"backticks":                 strings.Repeat("`", 10*n),
		"alternating characters":    strings.Repeat("```a\n~~~b\n", n),
		"indentation":               strings.Repeat(strings.Repeat(" ", 50)+"```py\n", n/10),
		"texts on one line":         strings.Repeat("<code>a</code>", n),
		"texts without an end":      strings.Repeat("<code>a", n),
		"bare fences":               strings.Repeat("```\n", n),
		"ends on lines of code":     strings.Repeat("~~~a\nx~~~\n```py\nx```\n", n),
		"nested and never finished": strings.Repeat("```a\n```b\n```\n", n),
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				codeexec.ExtractCodeBlocks(reply, codeexec.ExtractOptions{})
				codeexec.ExtractCodeBlocks(reply, codeexec.ExtractOptions{Delimiters: []codeexec.CodeBlockDelimiter{
					{Start: "<code>", End: "</code>"}, {Start: "<x>", End: "</x>"},
				}})
			}()
			select {
			case <-done:
			case <-time.After(time.Minute):
				t.Fatal("not done after a minute")
			}
		})
	}
}

func manyLengths() string {
	var b strings.Builder
	for i := range 1500 {
		b.WriteString(strings.Repeat("`", 3+i) + "a\n")
	}
	return b.String() + strings.Repeat("```a\n", 100_000)
}

func TestNormalizeLanguage(t *testing.T) {
	for want, names := range map[string][]string{
		codeexec.Python:     {"", " ", "py", "Python", "PYTHON3", "python3.12", "tool_code", "ipython"},
		codeexec.JavaScript: {"js", "node", "nodejs", "mjs", "cjs", "JavaScript"},
		codeexec.TypeScript: {"ts", "TypeScript", "mts"},
		codeexec.Bash:       {"sh", "bash", "shell", "zsh"},
		"r":                 {"R"},
		"python2":           {"python2"},
		"c++":               {"C++"},
	} {
		for _, name := range names {
			if got := codeexec.NormalizeLanguage(name); got != want {
				t.Errorf("NormalizeLanguage(%q) = %q, want %q", name, got, want)
			}
		}
	}
}

// Whatever a model writes: no panic, each block's lines are lines of the reply
// but for indentation and CR, in their order, and data is never code.
func FuzzExtract(f *testing.F) {
	for _, s := range []string{
		"```python\nprint(1)\n```", "~~~\na\n~~~", "- ```py\r\n  a\r\n  ```", "````md\n```py\na\n```\n````", "```python\n```python\n```",
		"<code>\na</code>", "```json\n{}\n```", "1) ```{.sh}\n\tb",
	} {
		f.Add(s, "<code>", "</code>")
	}
	f.Fuzz(func(t *testing.T, reply, start, end string) {
		sets := []codeexec.ExtractOptions{
			{}, {AllBare: true, WholeReply: true}, {Delimiters: fences("python", "tool_code", "bash")},
			{Delimiters: []codeexec.CodeBlockDelimiter{anyFence}},
			{Delimiters: []codeexec.CodeBlockDelimiter{{Start: start, End: end}, anyFence}},
		}
		for i, opts := range sets {
			rest := strings.ReplaceAll(reply, "\r\n", "\n")
			for _, b := range codeexec.ExtractCodeBlocks(reply, opts) {
				if strings.TrimSpace(b.Code) == "" {
					t.Errorf("set %d: a blank block", i)
				}
				if len(opts.Delimiters) == 0 && codeexec.IsDataLanguage(b.Language) {
					t.Errorf("set %d: data as code: %q", i, b)
				}
				for line := range strings.Lines(b.Code) {
					line = strings.TrimLeft(line, " \t")
					at := strings.Index(rest, line)
					if at < 0 {
						t.Fatalf("set %d: %q of block %q is not in the rest of the reply", i, line, b.Code)
					}
					rest = rest[at+len(line):]
				}
			}
		}
	})
}
