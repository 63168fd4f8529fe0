//go:build linux

package guest

import (
	"maps"
	"path"
	"slices"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// settings are what the host has told the guest by POST /init so far. They are
// replaced as a whole and never changed: who needs several of them loads them once.
type settings struct {
	hostToken string // of /init and /cubby/; empty before the first /init
	token     string // of everything else; empty means open
	env       map[string]string
	user      string // by default; empty is the configuration's
	workdir   string // empty is the home
	identity  identity
	limits    protocol.Limits // zero ones are unknown
}

// identity is who the sandbox is, as its code is told; what is empty it is not
// told.
type identity struct{ sandboxID, templateID string }

// variables returns E2B's names for it: its clients and templates look for them.
func (i identity) variables() map[string]string {
	vars := map[string]string{}
	if i.sandboxID != "" {
		vars["E2B_SANDBOX_ID"] = i.sandboxID
	}
	if i.templateID != "" {
		vars["E2B_TEMPLATE_ID"] = i.templateID
	}
	return vars
}

// with returns the settings after a request that was checked.
func (s settings) with(req protocol.InitRequest) *settings {
	keep := func(to *string, value string) {
		if value != "" {
			*to = value
		}
	}
	keep(&s.hostToken, req.HostToken)
	keep(&s.token, req.AccessToken)
	keep(&s.user, req.DefaultUser)
	keep(&s.identity.sandboxID, req.SandboxID)
	keep(&s.identity.templateID, req.TemplateID)
	if req.DefaultWorkdir != "" {
		s.workdir = path.Clean(req.DefaultWorkdir)
	}
	if req.EnvVars != nil {
		s.env = req.EnvVars
	}
	for _, l := range []struct{ to, value *int }{
		{&s.limits.MemoryMB, &req.Limits.MemoryMB}, {&s.limits.DiskMB, &req.Limits.DiskMB}, {&s.limits.PIDs, &req.Limits.PIDs},
	} {
		if *l.value != 0 {
			*l.to = *l.value
		}
	}
	if req.Limits.CPUs != 0 {
		s.limits.CPUs = req.Limits.CPUs
	}
	return &s
}

// userEnv is the environment that processes of the code start with, kernels and
// commands alike.
func (g *Guest) userEnv(s *settings) []string {
	env := append(slices.Clone(g.cfg.Env), "HOME="+g.cfg.Home, "USER="+g.cfg.UserName, "LOGNAME="+g.cfg.UserName, "E2B_SANDBOX=true")
	vars := s.identity.variables()
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	return env
}

func (g *Guest) workdir() string {
	if dir := g.settings.Load().workdir; dir != "" {
		return dir
	}
	return g.cfg.Home
}
