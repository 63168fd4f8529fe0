package agent

import "strings"

// outputLanguage is how the fence of a result is called.
const outputLanguage = "tool_output"

// forgedOutput is where a fence begins in a reply that pretends to be the output
// of code, or -1: models sometimes go on and invent what their code prints. One
// inside another fence is that fence's content.
func forgedOutput(reply string) int {
	var char byte
	length := 0
	for at := 0; at < len(reply); {
		end := strings.IndexByte(reply[at:], '\n') + 1
		if end == 0 {
			end = len(reply) - at
		}
		line := strings.TrimSpace(reply[at : at+end])
		if n := fenceRun(line); n > 0 {
			rest := strings.TrimSpace(line[n:])
			switch {
			case length == 0:
				word, _, _ := strings.Cut(strings.TrimLeft(rest, "{. "), " ")
				if strings.HasPrefix(strings.ToLower(word), outputLanguage) {
					return at
				}
				// A fence of backticks has none in its info string.
				if line[0] == '~' || !strings.Contains(rest, "`") {
					char, length = line[0], n
				}
			case line[0] == char && n >= length && rest == "":
				length = 0
			}
		}
		at += end
	}
	return -1
}

// fenceRun is how many backticks or tildes a line begins with, if three or more.
func fenceRun(line string) int {
	if line == "" || line[0] != '`' && line[0] != '~' {
		return 0
	}
	n := 1
	for n < len(line) && line[n] == line[0] {
		n++
	}
	if n < 3 {
		return 0
	}
	return n
}

// fenced puts a fence around a text that the text cannot end.
func fenced(language, text string) string {
	length, run := 3, 0
	for i := range len(text) {
		if text[i] != '`' {
			run = 0
			continue
		}
		run++
		length = max(length, run+1)
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	fence := strings.Repeat("`", length)
	return fence + language + "\n" + text + fence
}
