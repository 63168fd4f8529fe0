package modelserver

import (
	"crypto/sha256"
	"encoding/json"
	"strings"
)

// Conversation is what a request says, in a form that both formats have in
// common.
type Conversation struct {
	API       string // "openai" or "anthropic"
	Model     string
	System    string
	Messages  []Message // without the system's
	Tools     []Tool
	MaxTokens int // 0 if it was not said
	Stream    bool
}

// Message is one message.
type Message struct {
	Role     string // "user", "assistant", or "tool" with OpenAI's format
	Text     string // its texts, one after the other
	Thinking string
	Calls    []Call
	Results  []Result
	Images   []Image
}

// Call is a call of a tool.
type Call struct {
	// ID is made up if a reply's is empty.
	ID   string `yaml:"id"`
	Name string `yaml:"name"`
	// Arguments are an object; a string is sent as it is, so that it need not be
	// JSON. In a request they are a string.
	Arguments any `yaml:"arguments"`
}

// Result answers a call of a tool.
type Result struct {
	CallID  string
	Text    string
	Images  []Image
	IsError bool // Anthropic's format only
}

// Image is a picture.
type Image struct {
	MIMEType string
	Data     []byte
}

// Tool is one that the model may call.
type Tool struct {
	Name, Description string
	Schema            json.RawMessage
}

// Turn counts the model's replies, this one included: it is 1 at first. Messages
// of the assistant in a row are one reply.
func (c Conversation) Turn() int { return len(c.prompts()) }

// Last is the text that the model is to answer: that of all messages since its
// last one, results of tools included, a line each.
func (c Conversation) Last() string {
	prompts := c.prompts()
	return prompts[len(prompts)-1]
}

// Images are the pictures since the model's last message.
func (c Conversation) Images() []Image {
	var images []Image
	for _, m := range c.Messages {
		if m.Role == roleAssistant {
			images = nil
			continue
		}
		images = append(images, m.Images...)
		for _, r := range m.Results {
			images = append(images, r.Images...)
		}
	}
	return images
}

// prompts are the texts before each reply of the model, and the last one.
func (c Conversation) prompts() []string {
	prompts := []string{}
	var text []string
	assistant := false
	for _, m := range c.Messages {
		if m.Role == roleAssistant {
			if !assistant {
				prompts = append(prompts, strings.Join(text, "\n"))
				text = nil
			}
			assistant = true
			continue
		}
		assistant = false
		for _, r := range m.Results {
			text = append(text, r.Text)
		}
		if m.Text != "" {
			text = append(text, m.Text)
		}
	}
	return append(prompts, strings.Join(text, "\n"))
}

// hash is equal for equal conversations.
func (c Conversation) hash() [32]byte {
	c.Stream = false
	b, _ := json.Marshal(c) // of strings and bytes: it cannot fail
	return sha256.Sum256(b)
}

// estimate is about how many tokens a request holds, at four bytes each.
func (c Conversation) estimate() int {
	n := len(c.System)
	for _, t := range c.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	for _, m := range c.Messages {
		n += 16 + len(m.Text) + len(m.Thinking)
		for _, call := range m.Calls {
			n += len(call.Name) + len(call.arguments())
		}
		for _, r := range m.Results {
			n += len(r.Text) + 3000*len(r.Images)
		}
		n += 3000 * len(m.Images)
	}
	return n/4 + 1
}

const (
	roleUser      = "user"
	roleAssistant = "assistant"
	roleTool      = "tool"
)

// arguments are what goes over the wire.
func (c Call) arguments() string {
	switch a := c.Arguments.(type) {
	case nil:
		return "{}"
	case string:
		return a
	case json.RawMessage:
		return string(a)
	}
	b, err := json.Marshal(c.Arguments)
	if err != nil {
		return "{}" // a script's are checked before
	}
	return string(b)
}
