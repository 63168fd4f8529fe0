// Package modelserver is a language model's endpoint without a model: it speaks
// the published wire formats of OpenAI's Chat Completions and Anthropic's
// Messages, streamed and whole, and says what a script of ours tells it to say.
// It serves tests, examples and the demo, needs no key and no network, and
// refuses requests that the real endpoints refuse, with their errors.
//
//	srv, err := modelserver.Start(modelserver.Config{Script: modelserver.Say("Hello.")})
//	…
//	defer srv.Close()
//	model := openai.New(openai.Config{BaseURL: srv.OpenAIURL(), APIKey: "any", Model: "scripted"})
//
// What to say comes from a [Script], which may hold faults too, or from a
// function. Nothing is remembered between requests but a bounded record of them
// and how often a fault was met, so any number of conversations run at once.
package modelserver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Config says what a server serves. Script or Reply must be set.
type Config struct {
	Script *Script
	// Reply, if set, answers in the script's place. It is called from several
	// goroutines at a time.
	Reply func(Conversation) Reply

	// Delay is the pause between the pieces of a streamed reply; 0 is none.
	Delay time.Duration
	// Piece is how many characters of text or arguments a piece holds; 0 is 12.
	Piece int
	// APIKey is the one key that is let in. If empty, any key is, but one there
	// must be, unless NoKey is set, as with local servers.
	APIKey string
	NoKey  bool
	// Models are the names that are known; others are answered with 404. If it
	// is empty, every name is known.
	Models []string
	// ReasoningField is what a chunk of OpenAI's format calls thinking, which
	// only compatible servers send: "reasoning_content" if empty, or "reasoning".
	ReasoningField string
}

// Server is an http.Handler of both formats. It is safe for concurrent use.
type Server struct {
	config Config
	http   *http.Server
	addr   string
	served chan struct{}
	cancel context.CancelFunc // of every request
	active sync.WaitGroup

	mu       sync.Mutex
	requests []Request
	faults   map[[32]byte]int // how often a fault with Times was served
	closed   bool
}

// keptRequests bounds what Requests returns, and keptFaults the conversations
// whose faults are counted.
const (
	keptRequests = 1000
	keptFaults   = 10_000
	maxBody      = 64 << 20
)

// New returns a server to be used as a handler. It fails if the script is not
// valid.
func New(config Config) (*Server, error) {
	if config.Script == nil && config.Reply == nil {
		return nil, errors.New("modelserver: set Config.Script or Config.Reply")
	}
	if config.Script != nil {
		if err := config.Script.check(); err != nil {
			return nil, err
		}
	}
	if config.Piece <= 0 {
		config.Piece = 12
	}
	if config.ReasoningField == "" {
		config.ReasoningField = "reasoning_content"
	}
	return &Server{config: config, faults: map[[32]byte]int{}}, nil
}

// Start serves on a free port of 127.0.0.1 until Close.
func Start(config Config) (*Server, error) { return Listen("127.0.0.1:0", config) }

// Listen is Start at an address.
func Listen(address string, config Config) (*Server, error) {
	s, err := New(config)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	// Requests that hang on purpose end with this context.
	ctx, cancel := context.WithCancel(context.Background())
	s.addr = listener.Addr().String()
	s.served = make(chan struct{})
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 30 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	s.cancel = cancel
	go func() {
		defer close(s.served)
		_ = s.http.Serve(listener) // always http.ErrServerClosed, from Close
	}()
	return s, nil
}

// Close ends the server and every request in it, and waits for them.
func (s *Server) Close() error {
	if s.http == nil {
		return nil
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	err := s.http.Close()
	<-s.served
	s.active.Wait()
	return err
}

// enter counts a request in, unless the server is closed.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.active.Add(1)
	}
	return !s.closed
}

// OpenAIURL is the base URL for OpenAI's clients. It ends in "/v1".
func (s *Server) OpenAIURL() string { return "http://" + s.addr + "/v1" }

// AnthropicURL is the base URL for Anthropic's clients.
func (s *Server) AnthropicURL() string { return "http://" + s.addr }

// Request is one that came, and how it was answered.
type Request struct {
	Path         string
	Header       http.Header
	Body         []byte
	Conversation Conversation // as far as it could be read
	Status       int          // of the answer; 0 if the connection was cut without one
	Error        string       // why it was refused
}

// Requests returns the latest requests, up to 1,000, the oldest first, in the
// order in which they were answered or began to be.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *Server) record(r Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) == keptRequests {
		s.requests = slices.Delete(s.requests, 0, 1)
	}
	s.requests = append(s.requests, r)
}

// pending reports whether a fault is still to be served to this conversation,
// and counts it.
func (s *Server) pending(f *Fault, c Conversation) bool {
	if f == nil || f.Times <= 0 {
		return f != nil
	}
	key := c.hash()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.faults) == keptFaults {
		clear(s.faults)
	}
	s.faults[key]++
	return s.faults[key] <= f.Times
}
