package agentcmd

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/cubby-sandbox/cubby/cmd/internal/userstate"
)

// Bounds of the history.
const (
	historyFile  = "agent-history"
	historyLines = 1000
	historyBytes = 2 << 20  // of the file
	historyLine  = 16 << 10 // bytes of one; longer ones are not kept
)

// history is what was typed in chats: here, and in a file of the user's state, which
// has a JSON string a line.
type history struct {
	lines  []string
	folder *userstate.Folder // nil: nothing is kept for later
}

// readHistory reads the file. What cannot be read is left, and made anew.
func readHistory(folder *userstate.Folder) *history {
	h := &history{folder: folder}
	if folder == nil {
		return h
	}
	content, err := folder.Read(historyFile, historyBytes)
	if err != nil {
		return h
	}
	for line := range bytes.Lines(content) {
		var text string
		if json.Unmarshal(line, &text) == nil && text != "" {
			h.lines = append(h.lines, text)
		}
	}
	// Rewritten long before it is too large to be read.
	if len(h.lines) > historyLines || len(content) > historyBytes/2 {
		size, from := 0, len(h.lines)
		for from > max(0, len(h.lines)-historyLines/2) && size < historyBytes/4 {
			from--
			size += len(h.lines[from])
		}
		h.lines = h.lines[from:]
		var b bytes.Buffer
		for _, text := range h.lines {
			b.Write(record(text))
		}
		_ = folder.Write(historyFile, b.Bytes()) // a history that grows is no reason not to chat
	}
	return h
}

func record(text string) []byte {
	line, _ := json.Marshal(text) // a string has JSON
	return append(line, '\n')
}

// Lines are what was typed, the oldest first.
func (h *history) Lines() []string { return h.lines }

// Add keeps a text, unless it begins with a space, as shells leave out what is secret,
// or is what was typed just before.
func (h *history) Add(text string) {
	if strings.TrimLeft(text, " \t") != text || len(text) > historyLine || len(h.lines) > 0 && h.lines[len(h.lines)-1] == text {
		return
	}
	h.lines = append(h.lines, text)
	if h.folder != nil {
		_ = h.folder.Append(historyFile, record(text)) // the chat goes on without
	}
}
