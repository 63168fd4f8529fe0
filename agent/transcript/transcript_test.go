package transcript_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"image"
	"image/color"
	"image/png"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/transcript"
	"github.com/cubby-sandbox/cubby/agent/validate"
	"github.com/cubby-sandbox/cubby/codeexec"
)

var start = time.Date(2026, 3, 4, 15, 6, 0, 0, time.UTC)

// chart is a small picture.
func chart(t *testing.T) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, 480, 160))
	for x := range 480 {
		for y := range 160 {
			c := color.RGBA{255, 255, 255, 255}
			if bar := x / 40; x%40 > 8 && 160-y < 20+(bar*bar*7)%120 {
				c = color.RGBA{70, 120, 200, 255}
			}
			m.Set(x, y, c)
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// story is a question that is answered after a failure.
func story(t *testing.T) []agent.Event {
	wrong, right := "import pandas as pd\ndf = pd.read_csv('weather.csv')\nprint(df.rain.sum())", "print(df.columns.tolist())\ndf.groupby('year').precipitation.sum().plot.bar()\nplt.savefig('rain.png')"
	events := []agent.Event{
		{Type: agent.EventQuestion, Text: "Which year was the wettest? Draw it.", Files: []codeexec.File{{Name: "weather.csv", Content: []byte("date,precipitation\n2012-01-01,0.0\n2012-01-02,10.9\n")}}},
		{Type: agent.EventThinking, Turn: 1, Text: "The file has dates. "},
		{Type: agent.EventThinking, Turn: 1, Text: "I sum by year."},
		{Type: agent.EventText, Turn: 1, Text: "Let me"},
		{Type: agent.EventReply, Turn: 1, Text: "Let me look at **the file** first.\n\n```python\n" + wrong + "\n```\n\nThen we see.", Usage: &agent.Usage{Input: 900, Output: 80}},
		{Type: agent.EventCode, Turn: 1, Run: 1, Language: "python", Code: wrong, Decision: "approved",
			Findings: []validate.Finding{{Rule: "python.open", Decision: validate.Review, Message: "reads a file", Line: 2, Remedy: "Nothing."}}},
		{Type: agent.EventResult, Turn: 1, Run: 1, IsError: true, Result: &codeexec.CodeExecutionResult{
			Output: "\x1b[31mTraceback (most recent call last):\x1b[0m\n  File \"<cell>\", line 3\nAttributeError: 'DataFrame' object has no attribute 'rain'", Outcome: codeexec.OutcomeFailed, ExitCode: 1,
			Error: &codeexec.ExecutionError{Type: "AttributeError", Message: "'DataFrame' object has no attribute 'rain'", Line: 3}, Duration: 412 * time.Millisecond,
		}},
		{Type: agent.EventReply, Turn: 2, Text: "The column has another name.\n\n```python\n" + right + "\n```", Usage: &agent.Usage{Input: 1400, Output: 60}},
		{Type: agent.EventCode, Turn: 2, Run: 2, Language: "python", Code: right, Decision: "allow"},
		{Type: agent.EventOutput, Turn: 2, Run: 2, Stream: "stdout", Text: "['date', 'precipitation', 'year']\n"},
		{Type: agent.EventResult, Turn: 2, Run: 2, Result: &codeexec.CodeExecutionResult{Output: "['date', 'precipitation', 'year']\n",
			Outcome: codeexec.OutcomeOK, Duration: 1300 * time.Millisecond},
			Files: []codeexec.File{{Name: "rain.png", Content: chart(t)}, {Name: "rain.csv", Content: []byte("year,mm\n2012,1226\n2013,828\n2014,1232\n2015,1139\n")},
				{Name: "model.bin", Content: []byte{0, 1, 2, 3}, SizeBytes: 5_000_000, Truncated: true}}},
		{Type: agent.EventToolCall, Turn: 3, Tool: "lookup", Arguments: []byte(`{"station":"Seattle","deep":{"a":[1,2]}}`)},
		{Type: agent.EventToolResult, Turn: 3, Tool: "lookup", Text: "47.6 N, 122.3 W"},
		{Type: agent.EventNotice, Turn: 3, Text: "the model is asked again in 2s: overloaded"},
		{Type: agent.EventReply, Turn: 3, Text: "**2014** was the wettest year.\n\n| Year | mm |\n|---|--:|\n| 2014 | 1232 |\n| 2012 | 1226 |\n\nSee ![the chart](rain.png), and `rain.csv`.", Usage: &agent.Usage{Input: 1900, Output: 70}},
		{Type: agent.EventAnswer, Turn: 3, Text: "**2014** was the wettest year.\n\n| Year | mm |\n|---|--:|\n| 2014 | 1232 |\n| 2012 | 1226 |\n\nSee ![the chart](rain.png), and `rain.csv`.", Usage: &agent.Usage{Input: 4200, Output: 210}},
	}
	for i := range events {
		events[i].Time = start.Add(time.Duration(i) * 700 * time.Millisecond)
	}
	return events
}

func write(t *testing.T, events []agent.Event) string {
	t.Helper()
	var b strings.Builder
	if err := transcript.Write(&b, "", events); err != nil {
		t.Fatal(err)
	}
	inert(t, b.String())
	return b.String()
}

// inert fails the test if a page holds an element or attribute that could do more
// than show text and pictures.
func inert(t *testing.T, page string) {
	t.Helper()
	elements := map[string]string{ // and their attributes
		"html": "lang", "head": "", "meta": "charset http-equiv content name", "title": "", "style": "", "body": "", "main": "", "footer": "", "header": "",
		"section": "class dir", "details": "class id", "summary": "", "div": "class dir", "p": "class dir id", "span": "class", "pre": "class", "code": "",
		"figure": "id", "figcaption": "", "img": "src alt", "small": "", "b": "", "ul": "class", "ol": "start", "li": "class", "h1": "", "h2": "", "h3": "", "h4": "", "h5": "", "h6": "",
		"a": "href title rel", "em": "", "strong": "", "del": "", "blockquote": "", "hr": "", "br": "", "table": "", "thead": "", "tbody": "", "tr": "", "th": "align", "td": "align",
	}
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	styles := 0
	for n := range doc.Descendants() {
		if n.Type == html.CommentNode {
			t.Errorf("a comment: %.100q", n.Data)
		}
		if n.Type != html.ElementNode {
			continue
		}
		attributes, ok := elements[n.Data]
		if !ok {
			t.Errorf("element <%s>", n.Data)
		}
		styles += strings.Count(n.Data, "style")
		for _, a := range n.Attr {
			if !strings.Contains(" "+attributes+" ", " "+a.Key+" ") || a.Key == "" {
				t.Errorf("<%s %s=%.100q>", n.Data, a.Key, a.Val)
			}
			switch a.Key {
			case "href":
				if !regexp.MustCompile(`^(https?://|mailto:|#file-\d+$)`).MatchString(a.Val) {
					t.Errorf("a link to %.100q", a.Val)
				}
			case "src":
				if !regexp.MustCompile(`^data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$`).MatchString(a.Val) {
					t.Errorf("a picture from %.100q", a.Val)
				}
			}
		}
	}
	if styles != 1 {
		t.Errorf("%d style sheets", styles)
	}
}

func TestStory(t *testing.T) {
	page := write(t, story(t))
	if path := os.Getenv("CUBBY_TRANSCRIPT_OUT"); path != "" { // to be looked at
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// What a reader sees, in its order.
	at := 0
	for _, want := range []string{
		"<title>Which year was the wettest? Draw it.</title>", "4 March 2026, 15:06 UTC", "weather.csv", "2012-01-02,10.9", "I sum by year.",
		"<strong>the file</strong>", "Run 1", "approved", "412 ms", "exit code 1", "read_csv", "reads a file", "Traceback (most recent call last):", "AttributeError: &#39;DataFrame&#39; object has no attribute &#39;rain&#39; (line 3)",
		"Then we see.", "another name", "Run 2", "1.3 s", "[&#39;date&#39;, &#39;precipitation&#39;, &#39;year&#39;]", "data:image/png;base64,", "rain.png", "rain.csv", "model.bin <small>5.0 MB, of which 4 bytes came back",
		"Tool lookup", "&#34;station&#34;: &#34;Seattle&#34;", "47.6 N", "asked again", "Answer", "<td align=\"right\">1232</td>", `<a href="#file-2">the chart</a>`, "3 replies · 2 runs · 4410 tokens (4200 in, 210 out) · 10.5 s",
	} {
		i := strings.Index(page[at:], want)
		if i < 0 {
			t.Fatalf("%q is not there, or too early, in\n%s", want, page[at:])
		}
		at += i
	}
	for what, n := range map[string]int{"data:image": 1, "AttributeError": 2, "wettest year": 1, "read_csv": 1, "Let me": 1, "\x1b": 0} {
		if got := strings.Count(page, what); got != n {
			t.Errorf("%q is there %d times, want %d", what, got, n)
		}
	}
}

// The policy names the style sheet by its hash.
func TestPolicy(t *testing.T) {
	page := write(t, story(t))
	css := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(page)
	sum := sha256.Sum256([]byte(css[1]))
	want := `content="default-src 'none'; img-src data:; style-src 'sha256-` + base64.StdEncoding.EncodeToString(sum[:]) + `'; base-uri 'none'; form-action 'none'"`
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range doc.Descendants() {
		if n.Data == "meta" && len(n.Attr) == 2 && n.Attr[0].Val == "Content-Security-Policy" {
			if got := `content="` + n.Attr[1].Val + `"`; got != want {
				t.Errorf("%s, want %s", got, want)
			}
			return
		}
	}
	t.Error("the page has no policy")
}

// Whatever stands wherever, the page stays text: inert checks each.
func TestHostile(t *testing.T) {
	for name, evil := range map[string]string{
		"script":      `<script>alert(1)</script>`,
		"closing":     `</style></title></pre></textarea></section><script>alert(1)</script>`,
		"attribute":   `" onerror="alert(1)" x='`,
		"template":    `{{.CSS}}{{template "files" .}}`,
		"img":         `<img src=x onerror=alert(1)>`,
		"svg":         `<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script></svg>`,
		"comment":     `<!-- --> <!--><script>x</script>-->`,
		"cdata":       `<![CDATA[<script>x</script>]]> <?php x ?> <!DOCTYPE x>`,
		"link":        "[a](javascript:alert(1)) [b](JaVaScRiPt:alert(1)) [c](data:text/html,<script>x</script>) [d](vbscript:x) [e](file:///etc/passwd) [f](//evil.test) [g](/x)",
		"entity link": "[a](&#106;avascript:alert(1)) [b](java&#10;script:x) [c](\tjavascript:x) <javascript:alert(1)> <data:text/html,x>",
		"web link":    "[a](https://evil.test/?\"><script>x</script>) <https://evil.test/'onclick=> [b](https://evil.test 'x\" onclick=\"y')",
		"image":       "![a](https://evil.test/beacon.png) ![b](data:image/svg+xml;base64,AAAA) ![c](data:image/png;base64,AAAA) ![<script>](x 'y')",
		"definition":  "[x]\n\n[x]: javascript:alert(1) \"t\"",
		"fence":       "````\"onclick=x <script>\n</pre><script>x</script>\n````",
		"attributes":  "# Title {onclick=alert(1) style=x}\n\n| a |\n|:-:|\n| <b onclick=x>b</b> |",
		"null":        "a\x00b<scr\x00ipt>x</script>\xff\xfe",
		"terminal":    "\x1b]8;;javascript:alert(1)\x07x\x1b]8;;\x07\x1b[31mred",
	} {
		t.Run(name, func(t *testing.T) {
			for _, s := range []string{evil, "```html\n" + evil + "\n```", "> " + evil, "- " + evil} {
				page := write(t, []agent.Event{
					{Type: agent.EventQuestion, Text: s, Files: []codeexec.File{{Name: s, Content: []byte(s)}}},
					{Type: agent.EventThinking, Text: s}, {Type: agent.EventText, Text: s}, {Type: agent.EventNotice, Text: s},
					{Type: agent.EventReply, Text: s + "\n\n```" + evil + "\n" + s + "\n```\n"},
					{Type: agent.EventCode, Run: 1, Language: s, Code: s, Decision: s,
						Findings: []validate.Finding{{Rule: s, Decision: validate.Decision(s), Message: s, Evidence: s, Remedy: s}}},
					{Type: agent.EventOutput, Run: 1, Stream: s, Text: s},
					{Type: agent.EventResult, Run: 1, IsError: true,
						Files:  []codeexec.File{{Name: s + ".svg", Content: []byte(s), MIMEType: "image/svg+xml"}, {Name: s, Content: []byte("\x89PNG\r\n\x1a\n" + s), MIMEType: s}},
						Result: &codeexec.CodeExecutionResult{Output: s, ExitCode: 1, Limit: s, Error: &codeexec.ExecutionError{Type: s, Message: s}}},
					{Type: agent.EventCode, Run: 2, Language: "html", Code: s, Decision: "refused", Text: s},
					{Type: agent.EventResult, Run: 3, Text: s, IsError: true},
					{Type: agent.EventToolCall, Tool: s, Arguments: []byte(s)}, {Type: agent.EventToolResult, Tool: s, Text: s, IsError: true},
					{Type: agent.EventAnswer, Text: s}, {Type: agent.EventType(s), Text: s},
				})
				if strings.ContainsAny(page, "\x00\x1b") {
					t.Error("the page has control characters")
				}
			}
		})
	}
}

// Only bitmaps are pictures, by their first bytes; SVG is text.
func TestPictures(t *testing.T) {
	svg := `<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`
	page := write(t, []agent.Event{{Type: agent.EventResult, Result: &codeexec.CodeExecutionResult{}, Files: []codeexec.File{
		{Name: "a.svg", MIMEType: "image/svg+xml", Content: []byte(svg)},
		{Name: "b.png", MIMEType: "image/png", Content: []byte(svg)},
		{Name: "c.bin", MIMEType: "text/html", Content: []byte("GIF89a....")},
		{Name: "cut.png", MIMEType: "image/png", Content: chart(t), Truncated: true, SizeBytes: 9_000_000},
		{Name: "large.png", Content: append(chart(t), make([]byte, 9<<20)...)},
	}}})
	if n := strings.Count(page, "<img "); n != 1 || !strings.Contains(page, "data:image/gif;base64,") {
		t.Errorf("%d pictures", n)
	}
	if n := strings.Count(page, "&lt;svg xmlns="); n != 2 {
		t.Errorf("SVG is shown as text %d times", n)
	}
	for _, want := range []string{"9.0 MB, of which", "large.png <small>9.4 MB"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not there", want)
		}
	}
}

// What cannot be seen, or turns text around, is spelled out in code and names.
func TestDirection(t *testing.T) {
	page := write(t, []agent.Event{
		{Type: agent.EventCode, Run: 1, Language: "python", Code: "is_admin = '\u202e'; x\u200b = 1", Decision: "allow"},
		{Type: agent.EventResult, Run: 1, Result: &codeexec.CodeExecutionResult{Output: "\u2066hi"}, Files: []codeexec.File{{Name: "x\u202egnp.exe", Content: []byte{0}}}},
	})
	if strings.ContainsAny(page, "\u202e\u200b\u2066") {
		t.Error("a hidden character is in the page")
	}
	page = regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, "")
	for _, want := range []string{`\u202e`, `\u200b`, `\u2066hi`, `x\u202egnp.exe`} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not there", want)
		}
	}
}

// A page has a bound, whatever was printed; and hostile Markdown is no work.
func TestLarge(t *testing.T) {
	large := strings.Repeat("line of output\n", 1_000_000)
	page := write(t, []agent.Event{
		{Type: agent.EventQuestion, Text: large}, {Type: agent.EventThinking, Text: large}, {Type: agent.EventReply, Text: large},
		{Type: agent.EventCode, Run: 1, Language: "python", Code: large, Decision: "allow"},
		{Type: agent.EventResult, Run: 1, Result: &codeexec.CodeExecutionResult{Output: large},
			Files: []codeexec.File{{Name: "a.txt", Content: []byte(large)}}},
		{Type: agent.EventAnswer, Text: large},
	})
	if len(page) > 8_000_000 || !strings.Contains(page, "bytes are left out here") {
		t.Errorf("the page has %d bytes", len(page))
	}
	for _, s := range []string{">", "[", "*a ", "- ", "![", "`a", "<", "|-", "_a_*", "((", "[a](", "\n\n> - "} {
		write(t, []agent.Event{{Type: agent.EventReply, Text: strings.Repeat(s, 39_000/len(s))}})
	}
}

// An answer that never came, code that did not end, output that the model made
// up: the page says so.
func TestUnfinished(t *testing.T) {
	page := write(t, []agent.Event{
		{Type: agent.EventQuestion, Text: "a"},
		{Type: agent.EventText, Text: "I begin"}, {Type: agent.EventNotice, Text: "begins anew"},
		{Type: agent.EventReply, Text: "```python\nwhile 1: pass\n```\n\n```tool_output\n42\n```", Usage: &agent.Usage{Input: 1, Output: 1}},
		{Type: agent.EventCode, Run: 1, Language: "python", Code: "while 1: pass\n", Decision: "allow"},
		{Type: agent.EventOutput, Run: 1, Text: "tick"},
	})
	for _, want := range []string{"This reply broke off:", "I begin", "did not end", "no program printed this", "There is no answer"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not there", want)
		}
	}
	if page := write(t, nil); !strings.Contains(page, "<main>") {
		t.Error("no events make no page")
	}
}

// Two questions of a session, code of tools, a tool call that was none.
func TestToolsMode(t *testing.T) {
	page := write(t, []agent.Event{
		{Type: agent.EventQuestion, Text: "first"}, {Type: agent.EventReply, Turn: 1, Text: ""},
		{Type: agent.EventToolCall, Tool: "execute_python", Arguments: []byte(`{"code":"print(1)"}`)},
		{Type: agent.EventCode, Run: 1, Language: "python", Code: "print(1)", Decision: "allow"},
		{Type: agent.EventResult, Run: 1, Result: &codeexec.CodeExecutionResult{Output: "1\n"}},
		{Type: agent.EventToolResult, Tool: "execute_python", Text: "```tool_output\n1\n```"},
		{Type: agent.EventReply, Turn: 2, Text: ""},
		{Type: agent.EventToolCall, Tool: "execute_code", Arguments: []byte(`"no object"`)},
		{Type: agent.EventToolResult, Tool: "execute_code", Text: "the arguments are no JSON object", IsError: true},
		{Type: agent.EventReply, Turn: 3, Text: "One."}, {Type: agent.EventAnswer, Text: "One."},
		{Type: agent.EventQuestion, Text: "second"}, {Type: agent.EventReply, Turn: 1, Text: "Two."}, {Type: agent.EventAnswer, Text: "Two."},
	})
	for what, n := range map[string]int{`class="question"`: 2, `class="answer"`: 2, ">Run 1<": 1, "tool_output": 0, "no JSON object": 1, "One.": 1} {
		if got := strings.Count(page, what); got != n {
			t.Errorf("%q is there %d times, want %d", what, got, n)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.ErrUnsupported }

func TestWriteError(t *testing.T) {
	if err := transcript.Write(broken{}, "", nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

// Arguments of a call are shown with every digit.
func TestArgumentsKeepTheirDigits(t *testing.T) {
	page := write(t, []agent.Event{{Type: agent.EventToolCall, Turn: 1, Tool: "find", Arguments: []byte(`{"id":1152921504606846977,"rate":1.0}`)}})
	for _, want := range []string{"1152921504606846977", "1.0"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not there", want)
		}
	}
}

// TestColours: code is coloured by classes that the page's own style has.
func TestColours(t *testing.T) {
	var page bytes.Buffer
	if err := transcript.Write(&page, "", story(t)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`<span class="hl-k">import</span> pandas`, `read_csv(<span class="hl-s">&#39;weather.csv&#39;</span>)`, ".hl-k {", ".hl-s {"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %s", want)
		}
	}
}
