package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cubby-sandbox/cubby"
)

// DefaultMemoryBytes bounds what a [Memory] holds.
const DefaultMemoryBytes = 256 << 20

// entryCost is what an artifact takes beside its data, about.
const entryCost = 512

// Memory keeps artifacts in memory. The zero value is ready to use.
type Memory struct {
	// MaxBytes bounds all of them together, 0 means DefaultMemoryBytes. Saving
	// what does not fit fails with no_space.
	MaxBytes int64

	mu     sync.Mutex
	used   int64
	scopes map[scope]map[string][]*Artifact
}

var _ Service = (*Memory)(nil)

func cost(a *Artifact) int64 {
	return int64(len(a.Data)+len(a.Name)+len(a.MIMEType)+len(a.URL)) + entryCost
}

// Save implements [Service].
func (m *Memory) Save(ctx context.Context, info SessionInfo, name string, a *Artifact) (int, error) {
	const op = "save artifact"
	s, err := scopeOf(info, name)
	if err == nil && a == nil {
		err = errors.New("there is no artifact")
	}
	if err != nil {
		return 0, fail(op, cubby.CodeInvalidArgument, err)
	}
	if err := ctx.Err(); err != nil {
		return 0, fail(op, cubby.CodeCanceled, err)
	}
	kept := &Artifact{Data: bytes.Clone(a.Data), MIMEType: a.MIMEType, URL: a.URL, Name: name}
	m.mu.Lock()
	defer m.mu.Unlock()
	most := m.MaxBytes
	if most <= 0 {
		most = DefaultMemoryBytes
	}
	if m.used+cost(kept) > most {
		return 0, fail(op, cubby.CodeNoSpace, fmt.Errorf("the artifacts would take more than %d bytes", most))
	}
	if m.scopes == nil {
		m.scopes = map[scope]map[string][]*Artifact{}
	}
	if m.scopes[s] == nil {
		m.scopes[s] = map[string][]*Artifact{}
	}
	m.scopes[s][name] = append(m.scopes[s][name], kept)
	m.used += cost(kept)
	return len(m.scopes[s][name]) - 1, nil
}

// Load implements [Service].
func (m *Memory) Load(ctx context.Context, info SessionInfo, name string, version *int) (*Artifact, error) {
	const op = "load artifact"
	s, err := scopeOf(info, name)
	if err != nil {
		return nil, fail(op, cubby.CodeInvalidArgument, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fail(op, cubby.CodeCanceled, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	versions := m.scopes[s][name]
	n := len(versions) - 1
	if version != nil {
		n = *version
	}
	if n < 0 || n >= len(versions) {
		return nil, notFound(op, name, version)
	}
	a := *versions[n]
	a.Data = bytes.Clone(a.Data)
	return &a, nil
}

// ListKeys implements [Service].
func (m *Memory) ListKeys(_ context.Context, info SessionInfo) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name := range m.scopes[scope{app: info.AppName, user: info.UserID, session: info.SessionID}] {
		names = append(names, name)
	}
	for name := range m.scopes[scope{app: info.AppName, user: info.UserID, shared: true}] {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// Delete implements [Service].
func (m *Memory) Delete(_ context.Context, info SessionInfo, name string) error {
	s, err := scopeOf(info, name)
	if err != nil {
		return fail("delete artifact", cubby.CodeInvalidArgument, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.scopes[s][name] {
		m.used -= cost(a)
	}
	delete(m.scopes[s], name)
	if len(m.scopes[s]) == 0 {
		delete(m.scopes, s)
	}
	return nil
}

// ListVersions implements [Service].
func (m *Memory) ListVersions(_ context.Context, info SessionInfo, name string) ([]int, error) {
	const op = "list versions"
	s, err := scopeOf(info, name)
	if err != nil {
		return nil, fail(op, cubby.CodeInvalidArgument, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.scopes[s][name])
	if n == 0 {
		return nil, notFound(op, name, nil)
	}
	versions := make([]int, n)
	for i := range versions {
		versions[i] = i
	}
	return versions, nil
}
