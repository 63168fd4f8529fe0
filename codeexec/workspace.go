package codeexec

import (
	"context"
	"time"
)

// A workspace is a folder of a conversation: files go in, programs run on them,
// files come out. Each backend gives an [Engine] for it.
//
// Everything that comes out of one is hostile: names, links, sizes, archives.
// Paths are relative, with slashes, and stay below the workspace whatever they
// or the links in it say.

// EngineProvider is a CodeExecutor that also has workspaces, where its code runs.
type EngineProvider interface {
	Engine() Engine
}

// Engine is where workspaces are.
type Engine interface {
	Manager() WorkspaceManager
	FS() WorkspaceFS
	Runner() ProgramRunner
	Describe() Capabilities
}

// Workspace is one of them.
type Workspace struct {
	ID   string `json:"id"`   // the execution id that it was made for
	Path string `json:"path"` // its folder, as its programs see it
	// Instance names the sandbox or container that it is in, like the ID of
	// [Instance]; empty where workspaces are folders of this machine. A workspace
	// that is kept for an execution id (see [WorkspacePolicy]) has another one after
	// it was lost, and is empty; the value of before fails with [ErrWorkspaceStale].
	Instance string `json:"instance,omitempty"`
}

// WorkspacePolicy says how a workspace is made.
type WorkspacePolicy struct {
	// Persist keeps one workspace for each execution id: making it again finds
	// it as it was left. Without it each is new.
	Persist bool
	// MaxDiskBytes is refused where it cannot be enforced; 0 asks for nothing.
	MaxDiskBytes int64
}

// WorkspaceManager makes and removes workspaces.
type WorkspaceManager interface {
	CreateWorkspace(ctx context.Context, execID string, policy WorkspacePolicy) (Workspace, error)
	// Cleanup removes a workspace and ends what runs in it. One that is gone is
	// no error.
	Cleanup(ctx context.Context, ws Workspace) error
	// CleanupID does it to every workspace of an execution id.
	CleanupID(ctx context.Context, execID string) error
}

// PutFile is a file for a workspace. Mode's nine permission bits count; 0 means
// 0644.
type PutFile struct {
	Path    string
	Content []byte
	Mode    uint32
}

// StageOptions say how a directory comes into a workspace.
type StageOptions struct {
	// ReadOnly takes the write permission from what was staged.
	ReadOnly bool
	// AllowLink lets the backend link or mount instead of copy, where it can.
	AllowLink bool
}

// InputSpec is an input to stage.
type InputSpec struct {
	// From is artifact://NAME[@VERSION], host://ABSOLUTE/PATH, workspace://PATH
	// or skill://NAME/PATH.
	From string `json:"from"`
	// To is where it goes; empty means work/inputs/ and From's last element.
	To string `json:"to,omitempty"`
	// Mode is "copy" (also empty) or "link", which is a copy where the backend
	// cannot link.
	Mode string `json:"mode,omitempty"`
	// ReadOnly takes the write permission from it.
	ReadOnly bool `json:"read_only,omitempty"`
	// Pin keeps the artifact version of the first staging for this workspace.
	Pin bool `json:"pin,omitempty"`
}

// OutputSpec says what to collect. Zero limits mean the defaults below.
type OutputSpec struct {
	// Globs are patterns with ** below the workspace; $OUTPUT_DIR, $WORK_DIR,
	// $SKILLS_DIR and $WORKSPACE_DIR (with or without braces) stand for theirs.
	Globs         []string `json:"globs"`
	MaxFiles      int      `json:"max_files,omitempty"`
	MaxFileBytes  int64    `json:"max_file_bytes,omitempty"`
	MaxTotalBytes int64    `json:"max_total_bytes,omitempty"`
	// Inline puts the content into the manifest; Save stores each file as an
	// artifact (see WithArtifactService), under NameTemplate and its path.
	Inline       bool   `json:"inline,omitempty"`
	Save         bool   `json:"save,omitempty"`
	NameTemplate string `json:"name_template,omitempty"`
}

// Limits of what is collected, as tRPC-Agent has them.
const (
	DefaultMaxFiles      = 100
	DefaultMaxFileBytes  = 4 << 20
	DefaultMaxTotalBytes = 64 << 20
)

// OutputManifest is what was collected.
type OutputManifest struct {
	Files []FileRef `json:"files"`
	// LimitsHit says that something was cut or left; Left says what, up to 100
	// of them.
	LimitsHit bool       `json:"limits_hit"`
	Left      []LeftFile `json:"left,omitempty"`
}

// LeftFile is a file that does not come back, or not whole. Its name may be the
// code's own choice.
type LeftFile struct {
	Name   string `json:"name"`
	Reason string `json:"reason"` // such as "more than 100 files", "is a device"
}

// FileRef is a file that was collected.
type FileRef struct {
	Name      string `json:"name"`
	MIMEType  string `json:"mime_type"`
	Content   []byte `json:"content,omitempty"` // if Inline
	SavedAs   string `json:"saved_as,omitempty"`
	Version   int    `json:"version"` // of the artifact SavedAs
	SizeBytes int64  `json:"size_bytes"`
	Truncated bool   `json:"truncated,omitempty"`
}

// WorkspaceFS moves files.
type WorkspaceFS interface {
	// PutFiles writes files, parents included; one round trip.
	PutFiles(ctx context.Context, ws Workspace, files []PutFile) error
	// StageDirectory copies a directory of the host to a path in ws; one round
	// trip. Links in it are followed only as far as they stay inside it.
	StageDirectory(ctx context.Context, ws Workspace, src, to string, opt StageOptions) error
	StageInputs(ctx context.Context, ws Workspace, inputs []InputSpec) error
	// Collect returns what matches the patterns, under the default limits.
	Collect(ctx context.Context, ws Workspace, patterns []string) ([]File, error)
	CollectOutputs(ctx context.Context, ws Workspace, spec OutputSpec) (OutputManifest, error)
}

// ResourceLimits bound a program. Zero asks for nothing; what is asked for and
// cannot be enforced by the backend is an error before anything runs.
type ResourceLimits struct {
	CPUs          float64 `json:"cpus,omitempty"` // processors
	MemoryBytes   int64   `json:"memory_bytes,omitempty"`
	MaxPIDs       int     `json:"max_pids,omitempty"`
	DiskBytes     int64   `json:"disk_bytes,omitempty"`
	FileSizeBytes int64   `json:"file_size_bytes,omitempty"` // of each file that it writes
}

// RunProgramSpec is a program to run.
type RunProgramSpec struct {
	Cmd  string   `json:"cmd"`
	Args []string `json:"args,omitempty"`
	// Env adds to the workspace's own variables (see [Layout]) and wins over
	// them. CleanEnv drops what the backend would add beside those: only PATH is
	// left of it.
	Env      map[string]string `json:"env,omitempty"`
	CleanEnv bool              `json:"clean_env,omitempty"`
	Cwd      string            `json:"cwd,omitempty"` // in the workspace; empty means its folder
	Stdin    string            `json:"stdin,omitempty"`
	Timeout  time.Duration     `json:"timeout,omitempty"` // 0 means the backend's default
	Limits   ResourceLimits    `json:"limits,omitzero"`
}

// RunResult is what became of it. A program that fails or times out is no error.
type RunResult struct {
	Stdout    string        `json:"stdout"`
	Stderr    string        `json:"stderr"`
	ExitCode  int           `json:"exit_code"` // -1 if a signal ended it, 124 if its time was over
	Duration  time.Duration `json:"duration"`
	TimedOut  bool          `json:"timed_out,omitempty"`
	Truncated bool          `json:"truncated,omitempty"` // output was dropped
}

// ProgramRunner runs programs in workspaces.
type ProgramRunner interface {
	RunProgram(ctx context.Context, ws Workspace, spec RunProgramSpec) (RunResult, error)
	// StartProgram starts one to talk to.
	StartProgram(ctx context.Context, ws Workspace, spec InteractiveProgramSpec) (ProgramSession, error)
}

// InteractiveProgramSpec is a program to talk to; TTY gives it a terminal, whose
// output has no stderr of its own.
type InteractiveProgramSpec struct {
	RunProgramSpec
	TTY bool `json:"tty,omitempty"`
}

// ProgramSession is a program that runs. Its methods are safe for concurrent use.
// It lives until it ends, its timeout, Close, or its workspace's cleanup; the
// context of StartProgram bounds the start only.
type ProgramSession interface {
	ID() string
	// Poll returns the output since the last Poll, at most limit lines if limit
	// is not nil.
	Poll(limit *int) ProgramPoll
	// Log returns lines of the output kept (the last 20,000) from offset on.
	Log(offset, limit *int) ProgramLog
	// Write sends text to the program's input, with a line's end if newline.
	Write(data string, newline bool) error
	// Kill asks the program to end, and ends it after grace.
	Kill(grace time.Duration) error
	// Wait returns when the program has ended.
	Wait(ctx context.Context) (RunResult, error)
	Close() error
}

// Status of a session.
const (
	StatusRunning = "running"
	StatusExited  = "exited"
)

// ProgramPoll is what a session said since the last one.
type ProgramPoll struct {
	Status     string `json:"status"`
	Output     string `json:"output"`
	Offset     int    `json:"offset"` // line at which Output starts
	NextOffset int    `json:"next_offset"`
	ExitCode   *int   `json:"exit_code,omitempty"`
}

// ProgramLog is a part of what a session said.
type ProgramLog struct {
	Output     string `json:"output"`
	Offset     int    `json:"offset"`
	NextOffset int    `json:"next_offset"`
}

// Capabilities say what a backend can do.
type Capabilities struct {
	Isolation        string   `json:"isolation"` // "none", "container", "gvisor", "remote"
	NetworkAllowed   bool     `json:"network_allowed"`
	ReadOnlyMount    bool     `json:"read_only_mount"`
	Streaming        bool     `json:"streaming"`
	SupportsCleanEnv bool     `json:"supports_clean_env"`
	MaxDiskBytes     int64    `json:"max_disk_bytes,omitempty"`
	Limits           []string `json:"limits,omitempty"` // fields of ResourceLimits that are enforced, by JSON name
}

// Folders of a workspace, and the variables that its programs find them by:
// SKILLS_DIR, WORK_DIR, RUN_DIR (a new one below runs for each program),
// OUTPUT_DIR, and WORKSPACE_DIR for the whole.
const (
	DirSkills = "skills"
	DirWork   = "work"
	DirRuns   = "runs"
	DirOut    = "out"

	EnvWorkspaceDir = "WORKSPACE_DIR"
	EnvSkillsDir    = "SKILLS_DIR"
	EnvWorkDir      = "WORK_DIR"
	EnvOutputDir    = "OUTPUT_DIR"
	EnvRunDir       = "RUN_DIR"
	EnvSkillName    = "SKILL_NAME"
)

// Roots below which workspaces are made unless a backend is told otherwise: a
// workspace is ROOT/ws_ID_TIME.
const (
	DefaultRoot       = "/tmp/run"
	DefaultRemoteRoot = "/workspace/cube_agent"
)
