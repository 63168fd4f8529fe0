//go:build linux

package settings

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

const (
	maxToken = 4 << 10 // bytes
	// Beyond these a limit is no limit of any machine; products with them do not
	// overflow.
	maxLimitMB = 1 << 40
	maxLimit   = 1 << 22
)

// Check says whether all of a request can take effect.
func (s *Store) Check(req protocol.InitRequest) error {
	if s.Load().HostToken == "" && req.HostToken == "" {
		return errors.New("the first /init has to bring cubbyHostToken")
	}
	switch req.Restored {
	case "", protocol.RestoredResume:
	case protocol.RestoredCopy:
		if req.HostToken == "" || req.HostToken == s.Load().HostToken {
			return errors.New("a copy has to get a cubbyHostToken of its own")
		}
	default:
		return fmt.Errorf("cubbyRestored '%s' is neither '%s' nor '%s'", reply.Cut(req.Restored), protocol.RestoredResume, protocol.RestoredCopy)
	}
	for name, token := range map[string]string{"cubbyHostToken": req.HostToken, "accessToken": req.AccessToken} {
		if len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return fmt.Errorf("%s: no header can carry it", name)
		}
	}
	if err := CheckEnv(req.EnvVars); err != nil {
		return err
	}
	if err := CheckEnv(Identity{req.SandboxID, req.TemplateID}.Variables()); err != nil {
		return err
	}
	if _, err := s.Account(req.DefaultUser); err != nil {
		return err
	}
	if d := req.DefaultWorkdir; d != "" && (!path.IsAbs(d) || len(d) >= MaxPath || strings.Contains(d, "\x00")) {
		return fmt.Errorf("defaultWorkdir '%s' is not an absolute path", reply.Cut(d))
	}
	l := req.Limits
	for name, bad := range map[string]bool{
		"memoryMB": l.MemoryMB < 0 || l.MemoryMB > maxLimitMB, "diskMB": l.DiskMB < 0 || l.DiskMB > maxLimitMB,
		"cpus": !(l.CPUs >= 0 && l.CPUs <= maxLimit), "pids": l.PIDs < 0 || l.PIDs > maxLimit,
	} {
		if bad {
			return fmt.Errorf("cubbyLimits: %s is no limit", name)
		}
	}
	return nil
}
