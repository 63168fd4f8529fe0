package host

import (
	"context"
	"errors"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Recorder keeps the records of sandboxes beyond this process. Its methods are
// called concurrently for different sandboxes, and Put one after the other for one.
type Recorder interface {
	// Put makes a record or replaces it as a whole. It is called before what the
	// record says is published; when it fails, nothing is published. The end of a
	// sandbox is put once, and happens also if that fails.
	Put(ctx context.Context, r Record) error
	// Get returns a record, of this process or of one before it, as long as it is
	// kept. The error wraps ErrNotFound if there is none; any other means that it
	// is unknown whether there is one.
	Get(ctx context.Context, id string) (Record, error)
	// Live returns the records of all sandboxes that have not ended.
	Live(ctx context.Context) ([]Record, error)
}

// Identity is what never changes of a sandbox. What it points to is not to be
// changed, either.
type Identity struct {
	ID string
	// PublicID stands for ID in host names that are shown to others: it leads to
	// the ports of the user's programs and nowhere else.
	PublicID string
	// Generation is in every token of the sandbox: another one has others.
	Generation uint32
	TeamID     string // empty in a private Cubby
	// TemplateID is the name of the template that it is made from, and
	// TemplateDigest what that name meant.
	TemplateID, TemplateDigest string
	// Engine is the name of its machines' engine, and EngineCommit its build: an
	// image can be restored by the same only.
	Engine, EngineCommit string
	Limits               protocol.Limits
	// Asked names those of the limits that the client asked for: where they do not
	// hold, there is no sandbox.
	Asked     []string
	Env       map[string]string // secret; nil once the sandbox has ended
	Warm      []string          // languages whose kernels start with a machine
	Lifecycle Lifecycle
	Metadata  map[string]string
	Secure    bool // it has an access token
	// ContextToken says that the code interpreter's contexts ask for the access
	// token, too.
	ContextToken bool
}

// Lifecycle is what becomes of a sandbox with time.
type Lifecycle struct {
	Timeout    time.Duration // that it was created with
	Idle       time.Duration // as long without activity is as its deadline; zero: for ever
	Pause      bool          // at its deadline it is paused and not ended
	FilesOnly  bool          // that pause keeps the files and no memory
	AutoResume bool          // a request to it, when it is paused, resumes it
}

// Instance says which memory and which state of files a sandbox has had. Both count
// from one. A resume from memory changes neither, one from files alone the first.
type Instance struct{ Memory, Files int }

// Record is all that another process needs to go on with a sandbox, and what is
// known of one that has ended. Tokens are not in it: they are derived from the key,
// the id and the generation. Times are UTC, in microseconds.
type Record struct {
	Identity
	State    State
	Instance Instance
	// AllowInternetAccess and Network are as the client said last; nil if it did not.
	AllowInternetAccess *bool
	Network             *protocol.Network
	StartedAt           time.Time // when it could be used; before, when its boot began
	EndAt               time.Time // its deadline, while it runs
	PausedAt            time.Time // when it was paused last; zero if it never was
	// Remaining is the time that it had left when it was paused for the end of its
	// server: the next one resumes it, with that. Zero for those that were paused
	// otherwise.
	Remaining time.Duration
	EndedAt   time.Time // zero if it has not ended
	Reason    string    // why it ended
}

// recordTimeout bounds each call of a Recorder: a record that takes longer is as
// good as none.
const recordTimeout = 15 * time.Second

// lookupTimeout bounds the look at a record that only adds a reason to an answer.
const lookupTimeout = 2 * time.Second

// noRecords is the Recorder of a private Cubby, whose sandboxes end with it.
type noRecords struct{}

func (noRecords) Put(context.Context, Record) error           { return nil }
func (noRecords) Get(context.Context, string) (Record, error) { return Record{}, ErrNotFound }
func (noRecords) Live(context.Context) ([]Record, error)      { return nil, nil }

// recordOfEnded looks up the record of a sandbox that has ended. Records that cannot
// be read are logged and not guessed at: that the sandbox does not live is known
// without them.
func (h *Host) recordOfEnded(ctx context.Context, id string) (Record, bool) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	r, err := h.cfg.Recorder.Get(ctx, id)
	if err != nil && !errors.Is(err, ErrNotFound) && ctx.Err() == nil {
		h.log.Warn("record of a sandbox cannot be read", "sandbox_id", id, "err", err)
	}
	return r, err == nil && r.State == StateEnded
}
