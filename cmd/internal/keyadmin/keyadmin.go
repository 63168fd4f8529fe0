// Package keyadmin is what `cubby keys` does with a server's API keys. The database
// is the engine program's business, with which the command line need not be linked:
// it asks that program, one question a process.
package keyadmin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

// Argument is the first one of a process that is to call Serve.
const Argument = "engine-keys"

// DefaultTeam is the team of a key for which none is named.
const DefaultTeam = "default"

// Key is an API key without its secret, which only its creation tells.
type Key struct {
	ID         string    `json:"id"` // 12 hexadecimal digits
	TeamID     string    `json:"team_id"`
	Team       string    `json:"team"` // the team's name
	Name       string    `json:"name"` // for people; may be empty, need not be unique
	Mask       string    `json:"mask"` // the secret's ends: e2b_1a2b...9f0e
	CreatedAt  time.Time `json:"created_at"`
	LastUsedAt time.Time `json:"last_used_at"` // zero: never; up to a minute old
	RevokedAt  time.Time `json:"revoked_at"`   // zero: it is good
}

// Admin edits the keys of the data folder dir, whether a server runs there or not.
// Its errors are *fault.Error: InvalidArgument for a name or the start of an ID
// that will not do, NotFound for a key that is not there.
type Admin interface {
	// Create makes a key, the folder, and the team if it is new.
	Create(ctx context.Context, dir, team, name string) (key Key, secret string, err error)
	// List returns every key, none if there is no database.
	List(ctx context.Context, dir string) ([]Key, error)
	// Revoke revokes the one key whose ID is, or begins with, id.
	Revoke(ctx context.Context, dir, id string) (Key, error)
}

// The operations of a Request.
const (
	opCreate = "create"
	opList   = "list"
	opRevoke = "revoke"
)

// request and reply are one JSON value each, on standard input and output. What the
// user wrote travels as bytes: a folder's name need not be UTF-8, which JSON's strings
// are, and would become another folder's.
type request struct {
	Op   string `json:"op"`
	Dir  []byte `json:"dir"`
	Team []byte `json:"team,omitempty"`
	Name []byte `json:"name,omitempty"`
	ID   []byte `json:"id,omitempty"`
}

type reply struct {
	Key    Key         `json:"key"`
	Keys   []Key       `json:"keys"`
	Secret string      `json:"secret,omitempty"`
	Error  *fault.Wire `json:"error,omitempty"`
}

// Serve answers the one request on in.
func Serve(ctx context.Context, admin Admin, in io.Reader, out io.Writer) error {
	var q request
	if err := json.NewDecoder(in).Decode(&q); err != nil {
		return fmt.Errorf("request about keys: %w", err)
	}
	var a reply
	var err error
	switch q.Op {
	case opCreate:
		a.Key, a.Secret, err = admin.Create(ctx, string(q.Dir), string(q.Team), string(q.Name))
	case opList:
		a.Keys, err = admin.List(ctx, string(q.Dir))
	case opRevoke:
		a.Key, err = admin.Revoke(ctx, string(q.Dir), string(q.ID))
	default:
		err = fmt.Errorf("request about keys: no operation %q", q.Op)
	}
	if err != nil {
		a.Error = fault.ToWire(fault.Internal, err)
	}
	return json.NewEncoder(out).Encode(a)
}

// Remote asks the program that command starts, which calls Serve.
type Remote struct {
	Command func(ctx context.Context) (*exec.Cmd, error)
}

// Create implements Admin.
func (r Remote) Create(ctx context.Context, dir, team, name string) (Key, string, error) {
	a, err := r.ask(ctx, request{Op: opCreate, Dir: []byte(dir), Team: []byte(team), Name: []byte(name)})
	return a.Key, a.Secret, err
}

// List implements Admin.
func (r Remote) List(ctx context.Context, dir string) ([]Key, error) {
	a, err := r.ask(ctx, request{Op: opList, Dir: []byte(dir)})
	return a.Keys, err
}

// Revoke implements Admin.
func (r Remote) Revoke(ctx context.Context, dir, id string) (Key, error) {
	a, err := r.ask(ctx, request{Op: opRevoke, Dir: []byte(dir), ID: []byte(id)})
	return a.Key, err
}

func (r Remote) ask(ctx context.Context, q request) (reply, error) {
	cmd, err := r.Command(ctx)
	if err != nil {
		return reply{}, err
	}
	question, err := json.Marshal(q)
	if err != nil {
		return reply{}, err
	}
	var told bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(question), &told
	// A process that is to die with this one is killed when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := cmd.Output()
	var a reply
	if err == nil {
		err = json.Unmarshal(out, &a)
	}
	if err != nil {
		return reply{}, &fault.Error{Op: "keys", Code: fault.Unavailable,
			Err: fmt.Errorf("the engine program did not answer: %w %s", err, strings.TrimSpace(told.String()))}
	}
	if a.Error != nil {
		return reply{}, a.Error.Fault()
	}
	return a, nil
}
