package host

import (
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Info describes a sandbox at a moment: all that clients can learn about it, and what
// decides who may reach it. What it points to is not to be changed.
type Info struct {
	ID, TeamID, TemplateID string
	State                  State
	// PublicID, Token, ContextToken, TrafficToken and MaskRequestHost are those of
	// [Sandbox].
	PublicID            string
	Token               string
	ContextToken        bool
	TrafficToken        string
	MaskRequestHost     string
	Metadata            map[string]string
	AllowInternetAccess *bool
	Network             *protocol.Network
	Lifecycle           Lifecycle
	Instance            Instance
	StartedAt           time.Time // UTC, in microseconds, as all times
	EndAt               time.Time // its deadline; when it was paused, while it is
	ExpiresAt           time.Time // when it is removed for its age, while it is paused; zero for never
	Limits              protocol.Limits
	LimitsNotEnforced   []string // names of those that do not hold on this host
}

// Info describes the sandbox as it is now.
func (s *Sandbox) Info() Info {
	s.mu.Lock()
	r, unenforced := s.record, s.unenforced
	s.mu.Unlock()
	endAt := r.EndAt
	if r.State == StatePaused || r.State == StateResuming {
		endAt = r.PausedAt
	}
	return Info{
		ID: s.ID, TeamID: s.TeamID, TemplateID: s.TemplateID, State: r.State,
		PublicID: s.PublicID, Token: s.Token, ContextToken: s.ContextToken, TrafficToken: s.TrafficToken, MaskRequestHost: s.MaskRequestHost,
		Metadata: s.Metadata, AllowInternetAccess: r.AllowInternetAccess, Network: r.Network, Lifecycle: s.Lifecycle, Instance: r.Instance,
		StartedAt: r.StartedAt, EndAt: endAt, ExpiresAt: s.host.expiresAt(r), Limits: s.Limits, LimitsNotEnforced: unenforced,
	}
}
