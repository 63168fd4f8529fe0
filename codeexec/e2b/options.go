package e2b

import (
	"errors"
	"fmt"
	"time"
)

// Option is what [New] takes: these are tRPC-Agent's options, by its names, for
// programs that were written for it. [Config] has all settings.
type Option func(*options)

type options struct {
	Config
	err error
}

// WithAPIURL sets [Config].APIURL.
func WithAPIURL(url string) Option { return func(o *options) { o.APIURL = url } }

// WithAPIKey sets [Config].APIKey.
func WithAPIKey(key string) Option { return func(o *options) { o.APIKey = key } }

// WithTemplate sets [Config].Template.
func WithTemplate(id string) Option { return func(o *options) { o.Template = id } }

// WithSandboxID sets [Config].SandboxID.
func WithSandboxID(id string) Option { return func(o *options) { o.SandboxID = id } }

// WithSandboxTimeout sets [Config].SandboxTimeout, which must be positive.
func WithSandboxTimeout(d time.Duration) Option {
	return func(o *options) {
		o.positive("WithSandboxTimeout", d)
		o.SandboxTimeout = d
	}
}

// WithExecutionTimeout sets [Config].Timeout, which must be positive.
func WithExecutionTimeout(d time.Duration) Option {
	return func(o *options) {
		o.positive("WithExecutionTimeout", d)
		o.Timeout = d
	}
}

// WorkspacePersistence says how long a workspace is kept.
type WorkspacePersistence int

// How long a workspace is kept.
const (
	// WorkspacePersistencePerTurn makes a new one each time, unless the policy says
	// Persist. It is the default.
	WorkspacePersistencePerTurn WorkspacePersistence = iota
	// WorkspacePersistencePerSession keeps one for each execution id.
	WorkspacePersistencePerSession
)

// WithWorkspacePersistence sets [Config].PersistentWorkspaces.
func WithWorkspacePersistence(p WorkspacePersistence) Option {
	return func(o *options) { o.PersistentWorkspaces = p == WorkspacePersistencePerSession }
}

func (o *options) positive(name string, d time.Duration) {
	if d <= 0 {
		o.err = errors.Join(o.err, fmt.Errorf("%s: %v is not positive", name, d))
	}
}
