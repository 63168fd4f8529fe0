package workdir

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/cubby-sandbox/cubby/codeexec"
)

const (
	// MaxRecord bounds a record's JSON.
	MaxRecord  = 1 << 20
	maxRecords = 500 // inputs and outputs each; the oldest go
)

// Record is what a workspace's metadata.json says. It lies in the workspace,
// where its programs can change it: nothing but pins relies on it, and those are
// checked.
type Record struct {
	Version   int            `json:"version"`
	ID        string         `json:"id"`
	CreatedAt time.Time      `json:"created_at"`
	UpdatedAt time.Time      `json:"updated_at"`
	Inputs    []InputRecord  `json:"inputs,omitempty"`
	Outputs   []OutputRecord `json:"outputs,omitempty"`
}

// InputRecord is an input that was staged.
type InputRecord struct {
	From    string    `json:"from"`
	To      string    `json:"to"`
	Name    string    `json:"name,omitempty"` // of an artifact
	Version *int      `json:"artifact_version,omitempty"`
	Pinned  bool      `json:"pinned,omitempty"`
	At      time.Time `json:"at"`
}

// OutputRecord is what was collected at one time.
type OutputRecord struct {
	Globs     []string  `json:"globs"`
	Files     int       `json:"files"`
	LimitsHit bool      `json:"limits_hit,omitempty"`
	At        time.Time `json:"at"`
}

// NewRecord returns the record of a new workspace.
func NewRecord(execID string, now time.Time) *Record {
	return &Record{Version: 1, ID: execID, CreatedAt: now, UpdatedAt: now}
}

// ParseRecord reads a record; one that is damaged is an error.
func ParseRecord(b []byte) (*Record, error) {
	if len(b) > MaxRecord {
		return nil, errors.New("the workspace's record is too long")
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, err
	}
	r.trim()
	for i := range r.Inputs {
		if v := r.Inputs[i].Version; v != nil && *v < 0 {
			r.Inputs[i].Version = nil
		}
	}
	return &r, nil
}

// JSON returns the record to write.
func (r *Record) JSON() []byte {
	r.trim()
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil || len(b) > MaxRecord {
		// Names of many kilobytes: what is left is what identifies it.
		b, _ = json.Marshal(Record{Version: r.Version, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt})
	}
	return append(b, '\n')
}

// Clone returns a copy that shares nothing which changes.
func (r *Record) Clone() *Record {
	c := *r
	c.Inputs, c.Outputs = slices.Clone(r.Inputs), slices.Clone(r.Outputs)
	return &c
}

func (r *Record) trim() {
	if n := len(r.Inputs) - maxRecords; n > 0 {
		// Pins go last.
		r.Inputs = slices.DeleteFunc(r.Inputs, func(in InputRecord) bool {
			drop := n > 0 && !in.Pinned
			if drop {
				n--
			}
			return drop
		})
		r.Inputs = r.Inputs[max(n, 0):]
	}
	if n := len(r.Outputs) - maxRecords; n > 0 {
		r.Outputs = r.Outputs[n:]
	}
}

// Pinned returns the version at which an artifact is pinned.
func (r *Record) Pinned(name string) *int {
	for _, in := range r.Inputs {
		if in.Pinned && in.Name == name && in.Version != nil {
			return new(*in.Version)
		}
	}
	return nil
}

// AddInput notes an input; version is that of an artifact.
func (r *Record) AddInput(in Input, version *int, now time.Time) {
	rec := InputRecord{From: in.From, To: in.To, Pinned: in.Pin, At: now, Version: version}
	if in.Scheme == SchemeArtifact {
		rec.Name = in.Path
	}
	r.Inputs = append(r.Inputs, rec)
	r.UpdatedAt = now
}

// AddOutput notes what was collected.
func (r *Record) AddOutput(spec codeexec.OutputSpec, m codeexec.OutputManifest, now time.Time) {
	r.Outputs = append(r.Outputs, OutputRecord{Globs: spec.Globs, Files: len(m.Files), LimitsHit: m.LimitsHit, At: now})
	r.UpdatedAt = now
}
