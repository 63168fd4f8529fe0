// Package protocol holds every wire type once: E2B's control plane, its code
// interpreter and (generated, in envd) its in-sandbox daemon. Types only; no
// behaviour. Fields that E2B does not know are marked "Cubby".
package protocol

import "time"

// HeaderMode gives the permissions of a folder that MakeDir makes, in octal
// (Cubby); POST /files has the query parameter "mode" for it.
const HeaderMode = "Cubby-Mode"

// EnvdVersion is the version of E2B's envd whose behaviour the guest has; it
// gates features in E2B's SDKs.
const EnvdVersion = "0.6.13"

// Error is the body of every control-plane and envd error. Code equals the
// HTTP status.
type Error struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code,omitempty"`
	Hint      string `json:"hint,omitempty"` // Cubby: what to do about it
}

// ProxyError is the body of a data-plane error.
type ProxyError struct {
	SandboxID string `json:"sandboxId"`
	Message   string `json:"message"`
	Port      int    `json:"port,omitempty"`
	Code      int    `json:"code"`
}

// NewSandbox is the body of POST /v2/sandboxes.
type NewSandbox struct {
	TemplateID          string            `json:"templateID"`
	Timeout             *int              `json:"timeout,omitempty"` // seconds
	Metadata            map[string]string `json:"metadata,omitempty"`
	EnvVars             map[string]string `json:"envVars,omitempty"`
	AllowInternetAccess *bool             `json:"allow_internet_access,omitempty"`
	Limits              *Limits           `json:"cubbyLimits,omitempty"` // Cubby
	Warm                []string          `json:"cubbyWarm,omitempty"`   // Cubby: languages whose kernels start with the sandbox
}

// Limits are what a caller may ask of a sandbox (Cubby). A zero field means the
// server's default; a limit that was asked for and cannot be enforced is refused.
type Limits struct {
	MemoryMB int     `json:"memoryMB,omitempty"`
	CPUs     float64 `json:"cpus,omitempty"`
	DiskMB   int     `json:"diskMB,omitempty"`
	PIDs     int     `json:"pids,omitempty"`
}

// Sandbox is the answer to a create.
type Sandbox struct {
	TemplateID         string   `json:"templateID"`
	SandboxID          string   `json:"sandboxID"`
	ClientID           string   `json:"clientID"`
	EnvdVersion        string   `json:"envdVersion"`
	EnvdAccessToken    string   `json:"envdAccessToken,omitempty"`
	TrafficAccessToken *string  `json:"trafficAccessToken"`
	Domain             *string  `json:"domain"`
	LimitsNotEnforced  []string `json:"cubbyLimitsNotEnforced,omitempty"` // Cubby
}

// SandboxDetail is the answer to GET /sandboxes/{id}.
type SandboxDetail struct {
	TemplateID        string            `json:"templateID"`
	SandboxID         string            `json:"sandboxID"`
	ClientID          string            `json:"clientID"`
	StartedAt         time.Time         `json:"startedAt"`
	EndAt             time.Time         `json:"endAt"`
	EnvdVersion       string            `json:"envdVersion"`
	EnvdAccessToken   string            `json:"envdAccessToken,omitempty"`
	Domain            *string           `json:"domain"`
	CPUCount          int               `json:"cpuCount"`
	MemoryMB          int               `json:"memoryMB"`
	DiskSizeMB        int               `json:"diskSizeMB"`
	State             string            `json:"state"` // running or paused
	Metadata          map[string]string `json:"metadata,omitempty"`
	LimitsNotEnforced []string          `json:"cubbyLimitsNotEnforced,omitempty"` // Cubby
}

// InitRequest is the body of envd's POST /init, which only the host may call.
type InitRequest struct {
	EnvVars        map[string]string `json:"envVars,omitempty"`
	AccessToken    string            `json:"accessToken,omitempty"`
	DefaultUser    string            `json:"defaultUser,omitempty"`
	DefaultWorkdir string            `json:"defaultWorkdir,omitempty"`
	Timestamp      time.Time         `json:"timestamp,omitzero"`
}

// EntryInfo is one file as POST /files answers it.
type EntryInfo struct {
	Path string `json:"path"`
	Name string `json:"name"`
	Type string `json:"type"`
	// Metadata is what the X-Metadata-* headers of the upload said.
	Metadata map[string]string `json:"metadata,omitempty"`
}
