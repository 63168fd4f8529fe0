//go:build linux

package settings

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
)

// Account returns the user that name means; empty means the default one.
func (s *Store) Account(name string) (Account, error) {
	if name == "" {
		name = s.Load().User
	}
	switch name {
	case "", s.Config.UserName:
		return Account{s.Config.UserName, int(s.Config.UID), int(s.Config.GID), s.Config.Home}, nil
	case "root":
		return Account{"root", 0, 0, "/root"}, nil
	}
	return Account{}, fmt.Errorf("invalid username: '%s'", reply.Cut(name))
}

// Resolve is path for the default user; what is no path at all stays as it is and
// does not exist.
func (s *Store) Resolve(p string) string {
	a, err := s.Account("")
	if err != nil {
		return p
	}
	abs, err := a.Path(p)
	if err != nil {
		return p
	}
	return abs
}

// Store holds the configuration of a guest and the settings that hold now.
type Store struct {
	Config Config
	now    atomic.Pointer[Settings]
}

// New returns a store with empty settings.
func New(cfg Config) *Store {
	s := &Store{Config: cfg}
	s.now.Store(&Settings{})
	return s
}

// Load returns the settings that hold now. Nobody changes them.
func (s *Store) Load() *Settings { return s.now.Load() }

// Set replaces the settings that hold.
func (s *Store) Set(next *Settings) { s.now.Store(next) }

// Credential is whose processes the code's are; nil is whoever runs the guest.
func (s *Store) Credential() *syscall.Credential {
	if !s.Config.SwitchUser {
		return nil
	}
	return &syscall.Credential{Uid: s.Config.UID, Gid: s.Config.GID, Groups: []uint32{s.Config.GID}}
}

// Variables returns a copy of those that the host set for all calls.
func (s *Store) Variables() map[string]string {
	env := maps.Clone(s.Load().Env)
	if env == nil {
		env = map[string]string{}
	}
	return env
}

// UserEnv is the environment that processes of the code start with, kernels and
// commands alike.
func (s *Store) UserEnv(now *Settings) []string {
	env := append(slices.Clone(s.Config.Env), "HOME="+s.Config.Home, "USER="+s.Config.UserName, "LOGNAME="+s.Config.UserName, "E2B_SANDBOX=true")
	vars := now.Identity.Variables()
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	return env
}

// Workdir is where code starts whose caller names no folder.
func (s *Store) Workdir() string {
	if dir := s.Load().Workdir; dir != "" {
		return dir
	}
	return s.Config.Home
}
