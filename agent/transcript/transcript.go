// Package transcript writes what an agent did as a web page to look at and to
// share: one file without scripts that loads nothing. Whatever a model wrote or a
// sandbox printed is inert in it.
package transcript

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // page.html, page.css
	"encoding/base64"
	"fmt"
	"html/template"
	"io"

	"github.com/cubby-sandbox/cubby/agent"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// Bounds of a page: beyond them it says what is left out.
const (
	maxOutput       = 100_000  // bytes of the output of one run
	maxText         = 500_000  // bytes of one reply, question or piece of code
	maxPicture      = 8 << 20  // bytes of one picture
	maxPictures     = 48 << 20 // bytes of all pictures
	maxPreview      = 8_000    // bytes of a file that is text
	maxPreviewLines = 60
)

// Write writes the page of the events of one session, in the order in which they
// came: of one question or of several. An empty title means the first question.
// Events that a session does not send are left out; what is too large for a page
// is cut, and the page says so. The error is w's.
func Write(w io.Writer, title string, events []agent.Event) error {
	b := newBuilder()
	for i := range events {
		b.add(events, i)
	}
	b.flush()
	t, err := template.New("page").Parse(pageHTML)
	if err != nil {
		return fmt.Errorf("transcript: %w", err)
	}
	if title == "" {
		title = b.title
	}
	sum := sha256.Sum256([]byte(pageCSS))
	page := struct {
		Title  string
		CSP    string
		CSS    template.CSS
		Blocks []*block
	}{
		Title: shortLine(title, 120),
		// The one style sheet is named by its hash: a style that some text brought
		// along would not be it.
		CSP: "default-src 'none'; img-src data:; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
			"'; base-uri 'none'; form-action 'none'",
		CSS:    template.CSS(pageCSS),
		Blocks: b.blocks,
	}
	var out bytes.Buffer
	if err := t.Execute(&out, page); err != nil {
		return fmt.Errorf("transcript: %w", err)
	}
	_, err = w.Write(out.Bytes())
	return err
}
