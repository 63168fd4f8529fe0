// Package protocol holds every wire type once: E2B's control plane, its code
// interpreter and (generated, in envd) its in-sandbox daemon. Types only; no
// behaviour. Fields that E2B does not know are marked "Cubby".
package protocol

import (
	"encoding/json"
	"time"
)

// HeaderMode gives the permissions of a folder that MakeDir makes, in octal
// (Cubby); POST /files has the query parameter "mode" for it.
const HeaderMode = "Cubby-Mode"

// HeaderContextToken with the value ContextTokenRequired, sent with a create, has
// the new sandbox ask for its access token at the code interpreter's contexts, too
// (Cubby). It is a header and no field since servers of other kinds may refuse
// fields that they do not know, and E2B's packages can send headers.
const (
	HeaderContextToken   = "Cubby-Context-Token"
	ContextTokenRequired = "required"
)

// HeaderListSkip and HeaderListMax ask ListDir for a page of its entries: without
// the first so many, and at most so many (Cubby).
const (
	HeaderListSkip = "Cubby-List-Skip"
	HeaderListMax  = "Cubby-List-Max"
)

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
	Hint      string `json:"hint,omitempty"` // Cubby: what to do about it
}

// NewSandbox is the body of POST /v2/sandboxes and, with Secure, of POST
// /sandboxes. What is of type json.RawMessage is not there yet and only looked
// at to say so.
type NewSandbox struct {
	TemplateID          string            `json:"templateID"`
	Timeout             *int              `json:"timeout,omitempty"` // seconds
	Metadata            map[string]string `json:"metadata,omitempty"`
	EnvVars             map[string]string `json:"envVars,omitempty"`
	AllowInternetAccess *bool             `json:"allow_internet_access,omitempty"`
	Secure              *bool             `json:"secure,omitempty"` // v1; v2 is always secure
	AutoPause           *bool             `json:"autoPause,omitempty"`
	AutoPauseMemory     *bool             `json:"autoPauseMemory,omitempty"` // false keeps files only
	AutoResume          *AutoResume       `json:"autoResume,omitempty"`
	Network             *Network          `json:"network,omitempty"`
	IAM                 *IAM              `json:"iam,omitempty"`
	MCP                 json.RawMessage   `json:"mcp,omitempty"`
	VolumeMounts        []json.RawMessage `json:"volumeMounts,omitempty"`
	Limits              *Limits           `json:"cubbyLimits,omitempty"`      // Cubby
	IdleTimeout         *int              `json:"cubbyIdleTimeout,omitempty"` // Cubby: seconds without activity that are as good as its timeout
	Warm                []string          `json:"cubbyWarm,omitempty"`        // Cubby: languages whose kernels start with the sandbox
	ContextToken        bool              `json:"-"`                          // Cubby: see HeaderContextToken
}

// AutoResume says whether a request to a paused sandbox resumes it.
type AutoResume struct {
	Enabled bool `json:"enabled"`
}

// IAM configures the identity tokens of code in a sandbox.
type IAM struct {
	Tokens map[string]json.RawMessage `json:"tokens,omitempty"`
}

// Network is a sandbox's network as a client asks for it and is told it.
type Network struct {
	AllowPublicTraffic *bool                    `json:"allowPublicTraffic,omitempty"` // nil means true
	MaskRequestHost    string                   `json:"maskRequestHost,omitempty"`
	AllowOut           []string                 `json:"allowOut,omitempty"`
	DenyOut            []string                 `json:"denyOut,omitempty"`
	HTTPSPorts         []int                    `json:"httpsPorts,omitempty"`
	EgressProxy        *EgressProxy             `json:"egressProxy,omitempty"`
	Rules              map[string][]NetworkRule `json:"rules,omitempty"` // by host
	// DenyHosts (Cubby) denies what E2B's denyOut refuses to name: names, *.NAME,
	// presets. Addresses may stand here, too. Beside it allowOut may have names without
	// denyOut having 0.0.0.0/0: they are exceptions, as allowOut beats both.
	DenyHosts []string `json:"cubbyDenyHosts,omitempty"`
}

// EgressProxy is the SOCKS5 server that connections of a sandbox go through.
type EgressProxy struct {
	Address  string `json:"address"` // host:port
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// NetworkRule says what becomes of the requests to a host.
type NetworkRule struct {
	Transform *Transform `json:"transform,omitempty"`
}

// Transform changes requests.
type Transform struct {
	Headers map[string]string `json:"headers,omitempty"` // replace those of the request
}

// Flows is the answer to GET /sandboxes/{id}/network (Cubby): what was decided of the
// newest flows, and how they ended, oldest first.
type Flows struct {
	Flows []Flow `json:"flows"`
}

// Flow is a connection that code in a sandbox made, or wanted to: it is told when it was
// decided and, if it was allowed, again when it ended. A question about a name that may
// not be resolved is one to port 53 that was refused.
type Flow struct {
	Time     time.Time `json:"time"`
	Proto    string    `json:"proto"`          // tcp or udp
	Host     string    `json:"host,omitempty"` // the name that was asked for
	Addr     string    `json:"addr"`           // ADDR:PORT
	Allowed  bool      `json:"allowed"`
	Rule     string    `json:"rule,omitempty"`   // that decided
	Reason   string    `json:"reason,omitempty"` // why it was refused or failed
	Entry    string    `json:"entry,omitempty"`  // that an allow list has to name for one that was refused, if that is enough
	Sent     int64     `json:"sent"`             // bytes from the sandbox
	Received int64     `json:"received"`         // bytes to it
	End      time.Time `json:"end,omitzero"`     // zero in what is told at the decision
}

// SandboxNetwork is the request of PUT /sandboxes/{id}/network.
type SandboxNetwork struct {
	AllowInternetAccess *bool `json:"allow_internet_access,omitempty"`
	Network
}

// WithEgress returns a copy of n with what other says of the way out; both may be nil.
func (n *Network) WithEgress(other *Network) *Network {
	var c Network
	if n != nil {
		c = *n
	}
	if other == nil {
		other = &Network{}
	}
	c.AllowOut, c.DenyOut, c.DenyHosts = other.AllowOut, other.DenyOut, other.DenyHosts
	c.EgressProxy, c.Rules = other.EgressProxy, other.Rules
	return &c
}

// NewSecret is the request of POST /secrets, and without a name of POST /secrets/{id}.
type NewSecret struct {
	Name     string            `json:"name,omitempty"`
	Value    string            `json:"value"`
	Metadata map[string]string `json:"metadata,omitempty"` // nil: as before
}

// Secret is what is told of a secret. Its value never is.
type Secret struct {
	SecretID       string            `json:"secretID"`
	Name           string            `json:"name"`
	CurrentVersion int64             `json:"currentVersion"`
	Metadata       map[string]string `json:"metadata"`
	CreatedAt      time.Time         `json:"createdAt"`
	UpdatedAt      time.Time         `json:"updatedAt"`
}

// Limits are what a caller may ask of a sandbox (Cubby). A zero field means the
// server's default; a limit that was asked for and cannot be enforced is refused.
type Limits struct {
	MemoryMB int     `json:"memoryMB,omitempty"`
	CPUs     float64 `json:"cpus,omitempty"`
	DiskMB   int     `json:"diskMB,omitempty"`
	PIDs     int     `json:"pids,omitempty"`
}

// Sandbox is the answer to a create and to a connect.
type Sandbox struct {
	TemplateID         string   `json:"templateID"`
	SandboxID          string   `json:"sandboxID"`
	ClientID           string   `json:"clientID"`
	EnvdVersion        string   `json:"envdVersion"`
	Alias              string   `json:"alias,omitempty"`
	EnvdAccessToken    string   `json:"envdAccessToken,omitempty"`
	TrafficAccessToken *string  `json:"trafficAccessToken"`
	Domain             *string  `json:"domain"`
	LimitsNotEnforced  []string `json:"cubbyLimitsNotEnforced,omitempty"` // Cubby
	Limits             *Limits  `json:"cubbyLimits,omitempty"`            // Cubby: those in force, defaults included
	PublicID           string   `json:"cubbyPublicID,omitempty"`          // Cubby: for host names that others may see
}

// ListedSandbox is an element of the answers to GET /sandboxes and GET
// /v2/sandboxes.
type ListedSandbox struct {
	TemplateID   string            `json:"templateID"`
	SandboxID    string            `json:"sandboxID"`
	ClientID     string            `json:"clientID"`
	Alias        string            `json:"alias,omitempty"`
	StartedAt    time.Time         `json:"startedAt"`
	EndAt        time.Time         `json:"endAt"`
	EnvdVersion  string            `json:"envdVersion"`
	CPUCount     int               `json:"cpuCount"`
	MemoryMB     int               `json:"memoryMB"`
	DiskSizeMB   int               `json:"diskSizeMB"`
	State        string            `json:"state"` // running or paused
	Metadata     map[string]string `json:"metadata,omitempty"`
	VolumeMounts []json.RawMessage `json:"volumeMounts"` // Cubby's are always empty
}

// Instance says which memory and which files a sandbox has had, both counted from one
// (Cubby).
type Instance struct {
	Memory int `json:"memory"`
	Files  int `json:"files"`
}

// SandboxDetail is the answer to GET /sandboxes/{id}.
type SandboxDetail struct {
	ListedSandbox
	EnvdAccessToken     string    `json:"envdAccessToken,omitempty"`
	Domain              *string   `json:"domain"`
	AllowInternetAccess *bool     `json:"allowInternetAccess"`
	Network             *Network  `json:"network,omitempty"`
	Lifecycle           Lifecycle `json:"lifecycle"`
	// ExpiresAt (Cubby) is when a paused sandbox is removed for its age.
	ExpiresAt         time.Time `json:"cubbyExpiresAt,omitzero"`
	LimitsNotEnforced []string  `json:"cubbyLimitsNotEnforced,omitempty"` // Cubby
	Limits            *Limits   `json:"cubbyLimits,omitempty"`            // Cubby: those in force, defaults included
	PublicID          string    `json:"cubbyPublicID,omitempty"`          // Cubby: for host names that others may see
	Instance          *Instance `json:"cubbyInstance,omitempty"`          // Cubby
}

// Lifecycle says what happens to a sandbox at its deadline and after.
type Lifecycle struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"` // kill or pause
	// FilesOnly (Cubby) says that a pause at the deadline keeps the files and no memory.
	FilesOnly   bool `json:"cubbyFilesOnly,omitempty"`
	IdleTimeout int  `json:"cubbyIdleTimeout,omitempty"` // Cubby: seconds
}

// ConnectSandbox is the body of POST /sandboxes/{id}/connect and of its v2.
type ConnectSandbox struct {
	Timeout *int  `json:"timeout"`          // seconds
	Memory  *bool `json:"memory,omitempty"` // false boots a paused sandbox anew, with its files
}

// ResumeSandbox is the body of POST /sandboxes/{id}/resume.
type ResumeSandbox struct {
	ConnectSandbox
	AutoPause *bool `json:"autoPause,omitempty"`
}

// PauseSandbox is the body of POST /sandboxes/{id}/pause.
type PauseSandbox struct {
	Memory *bool `json:"memory,omitempty"` // false keeps files only
}

// NewSnapshot is the body of POST /sandboxes/{id}/snapshots.
type NewSnapshot struct {
	Name      string `json:"name,omitempty"`           // with or without a tag
	FilesOnly bool   `json:"cubbyFilesOnly,omitempty"` // Cubby: without the memory
}

// Snapshot is the answer to POST /sandboxes/{id}/snapshots, and an element of that to
// GET /snapshots. SnapshotID is also the templateID of sandboxes that are made of it.
type Snapshot struct {
	SnapshotID string    `json:"snapshotID"`
	Names      []string  `json:"names"`                    // without tags
	SandboxID  string    `json:"cubbySandboxID"`           // Cubby: that it was made of
	FilesOnly  bool      `json:"cubbyFilesOnly,omitempty"` // Cubby: it has no memory
	Size       int64     `json:"cubbySize"`                // Cubby: bytes on the disk
	CreatedAt  time.Time `json:"cubbyCreatedAt"`           // Cubby
}

// ForkSandbox is the body of POST /sandboxes/{id}/fork.
type ForkSandbox struct {
	Count   *int `json:"count,omitempty"`   // nil means 1
	Timeout *int `json:"timeout,omitempty"` // seconds
}

// Forked is an element of the answer to POST /sandboxes/{id}/fork: a copy, or why there
// is none.
type Forked struct {
	Sandbox *Sandbox `json:"sandbox,omitempty"`
	Error   *Error   `json:"error,omitempty"`
}

// Disk is the answer to GET /cubby/disk (Cubby): what the team's paused sandboxes and
// snapshots take and, of a server without keys, all images.
type Disk struct {
	Paused    Held       `json:"paused"`
	Snapshots Held       `json:"snapshots"`
	All       *DiskUsage `json:"all,omitempty"`
}

// Held is what some images take. It is the answer to DELETE /cubby/disk, of what was
// removed (Cubby).
type Held struct {
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"` // on disk; what several share is in each
}

// DiskUsage is what all images take, in bytes (Cubby).
type DiskUsage struct {
	Images   int64 `json:"images"` // what they share once
	Reserved int64 `json:"reserved"`
	Damaged  int64 `json:"damaged"` // set apart
	Free     int64 `json:"free"`
	Budget   int64 `json:"budget"` // 0: no bound but the file system
}

// Rollback is the body of POST /sandboxes/{id}/rollback (Cubby).
type Rollback struct {
	SnapshotID string `json:"snapshotID"`
}

// SandboxTimeout is the body of POST /sandboxes/{id}/timeout.
type SandboxTimeout struct {
	Timeout *int `json:"timeout"` // seconds
}

// SandboxRefresh is the body of POST /sandboxes/{id}/refreshes.
type SandboxRefresh struct {
	Duration *int `json:"duration"` // seconds
}

// SandboxMetric is what a sandbox used at a moment; sizes are bytes.
type SandboxMetric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"` // seconds
	CPUCount      int       `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"` // of all processors
	MemUsed       int64     `json:"memUsed"`
	MemTotal      int64     `json:"memTotal"`
	MemCache      int64     `json:"memCache"`
	DiskUsed      int64     `json:"diskUsed"`
	DiskTotal     int64     `json:"diskTotal"`
}

// SandboxesMetrics is the answer to GET /sandboxes/metrics: the newest by id.
type SandboxesMetrics struct {
	Sandboxes map[string]SandboxMetric `json:"sandboxes"`
}

// SandboxLog is a line of the answer to GET /sandboxes/{id}/logs.
type SandboxLog struct {
	Timestamp time.Time `json:"timestamp"`
	Line      string    `json:"line"` // a JSON object with level, logger, message and further fields, all strings
}

// SandboxLogEntry is SandboxLog in parts.
type SandboxLogEntry struct {
	Timestamp time.Time         `json:"timestamp"`
	Level     string            `json:"level"` // debug, info, warn or error
	Message   string            `json:"message"`
	Fields    map[string]string `json:"fields"`
}

// SandboxLogs is the answer to GET /sandboxes/{id}/logs.
type SandboxLogs struct {
	Logs       []SandboxLog      `json:"logs"`
	LogEntries []SandboxLogEntry `json:"logEntries"`
}

// SandboxLogsV2 is the answer to GET /v2/sandboxes/{id}/logs.
type SandboxLogsV2 struct {
	Logs []SandboxLogEntry `json:"logs"`
}

// Template is an element of the answers to GET /templates and GET /v2/templates.
type Template struct {
	TemplateID    string     `json:"templateID"`
	BuildID       string     `json:"buildID"` // a UUID
	BuildStatus   string     `json:"buildStatus"`
	BuildCount    int        `json:"buildCount"`
	Names         []string   `json:"names"`
	Aliases       []string   `json:"aliases"`
	Public        bool       `json:"public"`
	CPUCount      int        `json:"cpuCount"`
	MemoryMB      int        `json:"memoryMB"`
	DiskSizeMB    int        `json:"diskSizeMB"`
	EnvdVersion   string     `json:"envdVersion"`
	CreatedAt     time.Time  `json:"createdAt"`
	UpdatedAt     time.Time  `json:"updatedAt"`
	CreatedBy     *struct{}  `json:"createdBy"` // always null: nobody in particular
	SpawnCount    int64      `json:"spawnCount"`
	LastSpawnedAt *time.Time `json:"lastSpawnedAt"`
}

// TemplateWithBuilds is the answer to GET /templates/{id}.
type TemplateWithBuilds struct {
	TemplateID    string          `json:"templateID"`
	Names         []string        `json:"names"`
	Aliases       []string        `json:"aliases"`
	Public        bool            `json:"public"`
	CreatedAt     time.Time       `json:"createdAt"`
	UpdatedAt     time.Time       `json:"updatedAt"`
	SpawnCount    int64           `json:"spawnCount"`
	LastSpawnedAt *time.Time      `json:"lastSpawnedAt"`
	Builds        []TemplateBuild `json:"builds"`
}

// TemplateBuild is one version of a template.
type TemplateBuild struct {
	BuildID     string    `json:"buildID"` // a UUID
	Status      string    `json:"status"`
	CPUCount    int       `json:"cpuCount"`
	MemoryMB    int       `json:"memoryMB"`
	DiskSizeMB  int       `json:"diskSizeMB"`
	EnvdVersion string    `json:"envdVersion"`
	CreatedAt   time.Time `json:"createdAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	FinishedAt  time.Time `json:"finishedAt"`
}

// TemplateAlias is the answer to GET /templates/aliases/{alias}.
type TemplateAlias struct {
	TemplateID string `json:"templateID"`
	Public     bool   `json:"public"`
}

// TemplateTag is an element of the answer to GET /templates/{id}/tags.
type TemplateTag struct {
	Tag       string    `json:"tag"`
	BuildID   string    `json:"buildID"` // a UUID
	CreatedAt time.Time `json:"createdAt"`
}

// Team is an element of the answer to GET /teams.
type Team struct {
	TeamID    string `json:"teamID"`
	Name      string `json:"name"`
	APIKey    string `json:"apiKey"` // always empty: keys are shown once, when they are made
	IsDefault bool   `json:"isDefault"`
}

// Activity is the guest's answer to the host's GET /cubby/activity (Cubby).
type Activity struct {
	Busy bool `json:"busy"` // a cell or a command runs that a client has started
}

// HeaderHostToken carries InitRequest.HostToken with each of the host's own
// requests to a guest (Cubby).
const HeaderHostToken = "Cubby-Host-Token"

// Values of InitRequest.Restored.
const (
	// RestoredResume says that the sandbox goes on that was checkpointed.
	RestoredResume = "resume"
	// RestoredCopy says that this is another sandbox, or the same one put back to what
	// it was: there may be others of the same memory. The generators of random numbers
	// that the kernels' languages have draw anew; see SECURITY.md for those that cannot.
	RestoredCopy = "copy"
)

// InitRequest is the body of envd's POST /init, which only the host may call: after
// a boot, when a sandbox that was kept ready is handed out, and after a restore.
// A guest takes any number of them, and the same one twice changes nothing. What
// is absent, null, empty or zero stays as it is, except where a field says
// otherwise. A request that is refused changes nothing at all.
type InitRequest struct {
	// Restored (Cubby) is RestoredResume or RestoredCopy in the first request to a
	// machine that was made of a checkpoint, and absent in any other. It carries the
	// host token that held when the checkpoint was written, if one did. Until a
	// request is answered the guest serves nothing but /health.
	Restored string `json:"cubbyRestored,omitempty"`
	// HostToken (Cubby) is asked for at the host's own routes, /init among them,
	// from then on. The first request must have one; in a later one it replaces
	// the token that the request came with, and RestoredCopy wants a new one. It is
	// visible ASCII.
	HostToken string `json:"cubbyHostToken,omitempty"`
	// AccessToken is asked for at all other routes from then on. It is visible
	// ASCII. A sandbox that has one cannot lose it; a copy has the one that the
	// request brings, or none.
	AccessToken string `json:"accessToken,omitempty"`
	// EnvVars are the variables of commands, of kernels' calls, and of whatever
	// these start, from then on. They replace those of the request before, so that
	// an empty object leaves none; absent or null leaves those.
	EnvVars map[string]string `json:"envVars,omitzero"`
	// DefaultUser is who acts where a call does not say: "user" or "root".
	DefaultUser string `json:"defaultUser,omitempty"`
	// DefaultWorkdir is an absolute path: the folder of commands and of contexts
	// that are made from then on.
	DefaultWorkdir string `json:"defaultWorkdir,omitempty"`
	// Timestamp is the host's time, and ignored: the sandbox's clock is the host's.
	Timestamp time.Time `json:"timestamp,omitzero"`
	// SandboxID and TemplateID (Cubby) are what E2B_SANDBOX_ID and E2B_TEMPLATE_ID
	// tell whatever is started from then on, and kernels that run already from
	// their next call on.
	SandboxID  string `json:"cubbySandboxID,omitempty"`
	TemplateID string `json:"cubbyTemplateID,omitempty"`
	// Limits (Cubby) are what the sandbox may use. The guest itself bounds the
	// number of processes, and the processors that it takes itself; the rest is
	// what /metrics tells, and the engine enforces it. A lower number of processes
	// holds for all that run, a higher one where the machine's kernel is gVisor
	// only for what is started from then on: a machine that is kept ready has the
	// highest that anybody may ask for.
	// The disk's size and the number of processors and the memory that are shown
	// inside were fixed when the machine booted, whatever is said here.
	Limits Limits `json:"cubbyLimits,omitzero"`
	// Warm (Cubby) lists languages whose default kernels start at once, unless
	// they had one before. A language that is unknown or not installed is left to
	// whoever asks for it, who gets the error.
	Warm []string `json:"cubbyWarm,omitempty"`
	// Offline (Cubby) has the package registries that the sandbox's network does not
	// reach, of those that cmd/internal/offline names. It replaces what the request
	// before said; absent or null leaves that. A machine boots with all of them.
	Offline []string `json:"cubbyOffline,omitzero"`
}

// EntryInfo is one file as POST /files answers it.
type EntryInfo struct {
	Path string `json:"path"`
	Name string `json:"name"`
	Type string `json:"type"`
	// Metadata is what the X-Metadata-* headers of the upload said.
	Metadata map[string]string `json:"metadata,omitempty"`
}
