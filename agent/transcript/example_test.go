package transcript_test

import (
	"bytes"
	"fmt"
	"log"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/transcript"
)

// The events of a session become a page that can be opened and sent.
func Example() {
	var events []agent.Event
	keep := func(e agent.Event) { events = append(events, e) } // for Session.Ask
	keep(agent.Event{Type: agent.EventQuestion, Text: "How much is 6*7?"})
	keep(agent.Event{Type: agent.EventAnswer, Text: "42"})
	var page bytes.Buffer // a file, in a program
	if err := transcript.Write(&page, "", events); err != nil {
		log.Fatal(err)
	}
	fmt.Println(bytes.Contains(page.Bytes(), []byte("<title>How much is 6*7?</title>")))
	// Output: true
}
