package agentcmd

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/cmd/internal/userstate"
)

// maxConversation bounds the file of a conversation, in bytes. Of a longer one the
// oldest questions are left out.
const maxConversation = 2 << 20

// conversation is what --continue goes on with: what was said, as text. Calls of tools
// are text, too, since providers differ in how they name them and refuse calls of
// tools that they are not offered; thoughts and pictures are left out.
type conversation struct {
	Folder   string    `json:"folder"`
	Time     time.Time `json:"time"`
	Files    []string  `json:"files,omitempty"` // of -f, absolute
	Messages []said    `json:"messages"`
}

type said struct {
	Role agent.Role `json:"role"`
	Text string     `json:"text"`
}

// conversationFile is the file of the folder in which the command runs.
func conversationFile() (name, folder string, err error) {
	folder, err = os.Getwd()
	if err != nil {
		return "", "", err
	}
	sum := sha256.Sum256([]byte(folder))
	return path.Join("conversations", hex.EncodeToString(sum[:8])+".json"), folder, nil
}

// keepConversation writes what has been said, for --continue.
func keepConversation(state *userstate.Folder, messages []agent.Message, files []string) error {
	name, folder, err := conversationFile()
	if err != nil {
		return err
	}
	c := conversation{Folder: folder, Time: time.Now().UTC().Truncate(time.Second)}
	for _, f := range files {
		if f, err = filepath.Abs(f); err != nil {
			return err
		}
		c.Files = append(c.Files, f)
	}
	size := 0
	for _, m := range slices.Backward(messages) {
		s := said{m.Role, textOf(m.Parts)}
		if size += len(s.Text) + 32; size > maxConversation/4 { // JSON may make four bytes of one
			break
		}
		c.Messages = append(c.Messages, s)
	}
	slices.Reverse(c.Messages)
	for len(c.Messages) > 0 && c.Messages[0].Role != agent.RoleUser {
		c.Messages = c.Messages[1:]
	}
	if len(c.Messages) == 0 {
		return errors.New("the last question and its answer are too long to be kept")
	}
	content, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return state.Write(name, content)
}

// textOf is what the parts of a message say.
func textOf(parts []agent.Part) string {
	var texts []string
	for _, p := range parts {
		switch p := p.(type) {
		case agent.Text:
			texts = append(texts, p.Text)
		case agent.Image:
			texts = append(texts, "[Image: "+p.Name+"]")
		case agent.ToolCall:
			texts = append(texts, fmt.Sprintf("[Called the tool %s with %s]", p.Name, p.Arguments))
		case agent.ToolResult:
			texts = append(texts, fmt.Sprintf("[The tool %s returned:]\n%s", p.Name, textOf(p.Parts)))
		}
	}
	if len(texts) == 0 {
		return "[nothing]"
	}
	return strings.Join(texts, "\n")
}

// lastConversation returns the one of the folder in which the command runs.
func lastConversation(state *userstate.Folder) (*conversation, error) {
	if state == nil {
		return nil, errors.New("--continue: nothing was kept: there is no home, or --private is given")
	}
	name, folder, err := conversationFile()
	if err != nil {
		return nil, err
	}
	content, err := state.Read(name, maxConversation)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usagef("--continue: there is no conversation of the folder %s to go on with", folder)
	}
	var c conversation
	if err == nil {
		err = json.Unmarshal(content, &c)
	}
	if err == nil && (len(c.Messages) == 0 || c.Messages[len(c.Messages)-1].Role != agent.RoleAssistant) {
		err = errors.New("it does not end with an answer")
	}
	if err != nil {
		return nil, fmt.Errorf("--continue: the conversation of the folder %s cannot be read: %w", folder, err)
	}
	return &c, nil
}

// messages are the conversation for a session.
func (c *conversation) messages() []agent.Message {
	var all []agent.Message
	for _, s := range c.Messages {
		all = append(all, agent.Message{Role: s.Role, Parts: []agent.Part{agent.Text{Text: s.Text}}})
	}
	return all
}

// replies counts those of the model.
func (c *conversation) replies() int {
	n := 0
	for _, s := range c.Messages {
		if s.Role == agent.RoleAssistant {
			n++
		}
	}
	return n
}

// addFiles returns files and those of the conversation that are still there: they are
// put into the new sandbox.
func (c *conversation) addFiles(files []string) []string {
	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(f))
	}
	var there []string
	for _, f := range c.Files {
		if _, err := os.Stat(f); err == nil && !slices.Contains(names, filepath.Base(f)) {
			there = append(there, f)
		}
	}
	c.Files = there
	return slices.Concat(there, files)
}

// putBack says which files are in the new sandbox.
func (c *conversation) putBack() string {
	var names []string
	for _, f := range c.Files {
		names = append(names, filepath.Base(f))
	}
	if len(names) == 0 {
		return ""
	}
	return "; put back: " + strings.Join(names, ", ")
}
