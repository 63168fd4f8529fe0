package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/cmd/internal/lineedit"
	"github.com/cubby-sandbox/cubby/cmd/internal/output"
)

const chatHelp = `Ask a question. Variables and files last from question to question.
  /files       files that came back
  /save [DIR]  save them (they are in --out already)
  /quit        leave, as Ctrl-D does
Ctrl-C stops an answer; twice leaves.
`

const editorHelp = `Alt-Enter, or a backslash before Enter, begins another line; what is pasted is one
question. Up and Ctrl-R find what was typed before; what begins with a space is
not kept.
`

// leaveHint is said when Ctrl-C has stopped what goes on.
const leaveHint = "Ctrl-C again, Ctrl-D or /quit leaves"

// chat asks what is typed, until there is no more.
func (c *command) chat(ctx context.Context, first agent.Question) error {
	if c.lines.terminal {
		c.view.say("Ask a question, or /help.\n")
	}
	h := readHistory(c.state)
	prompt := ""
	if c.lines.terminal {
		prompt = "> "
	}
	var last error
	leaving := false // nothing was typed since Ctrl-C
	for {
		if c.lines.terminal {
			c.view.begin("prompt")
			c.view.raw("\n")
		}
		text, err := c.readQuestion(ctx, prompt, h)
		switch {
		case ctx.Err() != nil:
			return c.interrupted(ctx, ctx.Err())
		case errors.Is(err, lineedit.ErrInterrupted):
			if leaving && text == "" {
				c.view.note("cubby: interrupted")
				return output.Exit(exitInterrupted)
			}
			leaving = true
			c.view.note("%s", leaveHint)
			continue
		case errors.Is(err, io.EOF):
			if c.lines.terminal {
				c.view.say("\n")
				return nil
			}
			return last // a script learns that its last question had no answer
		case err != nil:
			return fmt.Errorf("read a question: %w", err)
		}
		leaving = false
		text = strings.TrimSpace(text)
		name, rest, _ := strings.Cut(text, " ")
		switch {
		case text == "":
			continue
		case name == "/quit" || name == "/exit":
			return nil
		case strings.HasPrefix(name, "/"):
			c.slash(name, strings.TrimSpace(rest))
			continue
		}
		q := agent.Question{Text: text, Files: first.Files, Images: first.Images, Context: first.Context}
		first = agent.Question{} // its files are there from now on
		err, interrupted := c.signals.during(ctx, func(ctx context.Context) error {
			_, err := c.ask(ctx, q)
			return err
		})
		switch {
		case ctx.Err() != nil:
			return c.interrupted(ctx, ctx.Err())
		case interrupted:
			leaving = true
			c.view.note("stopped; %s", leaveHint)
			last = output.Exit(exitInterrupted)
		case err != nil:
			last = output.Exit(report(c.std.Err, err))
		default:
			last = nil
		}
	}
}

// readQuestion reads a question. Ctrl-C ends the wait for it, not the chat.
func (c *command) readQuestion(ctx context.Context, prompt string, h lineedit.History) (text string, err error) {
	if c.editor != nil || !c.lines.terminal {
		return c.read(ctx, prompt, h)
	}
	err, interrupted := c.signals.during(ctx, func(ctx context.Context) (err error) {
		text, err = c.read(ctx, prompt, nil)
		return err
	})
	if interrupted && ctx.Err() == nil {
		c.view.echoed()
		return "", lineedit.ErrInterrupted
	}
	return text, err
}

// slash obeys a command of the chat.
func (c *command) slash(name, rest string) {
	switch name {
	case "/help":
		c.view.say(chatHelp)
		if c.editor != nil {
			c.view.say(editorHelp)
		}
	case "/files":
		for _, f := range c.files {
			c.view.say(fmt.Sprintf("%s (%d bytes)\n", f.Name, max(f.SizeBytes, int64(len(f.Content)))))
		}
		if len(c.files) == 0 {
			c.view.say("There are none yet.\n")
		}
	case "/save":
		if rest == "" {
			rest = c.flags.out
		}
		c.view.saved(c.save(rest, c.files))
	default:
		c.view.say(fmt.Sprintf("There is no %s. /help says what there is.\n", name))
	}
}
