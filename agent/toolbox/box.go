package toolbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// Box holds tools. It is safe for concurrent use. It owns nothing that would
// have to be closed.
type Box struct{ store store }

// store is where tools are. What comes from one may have been changed by others.
type store interface {
	// put fails with errTaken if the name is.
	put(Kept) error
	get(name string) (Kept, error)
	// list returns what is there, by name, and the errors of what cannot be read.
	list() ([]Kept, error)
	remove(name string) error
}

var errTaken = errors.New("there is a tool of that name already")

func notFound(name string) error {
	return &cubby.Error{Code: cubby.CodeNotFound, Err: fmt.Errorf("there is no tool %.80q", name), Hint: "List tells which there are"}
}

// Memory returns a box that lasts as long as the process.
func Memory() *Box { return &Box{&memory{tools: map[string]Kept{}}} }

// Open returns a box that is a folder, which it makes if it is not there: one
// file a tool, which only its owner can read. Several processes may use it at
// once. It refuses a folder into which everybody can write.
func Open(dir string) (*Box, error) {
	s, err := openFolder(dir)
	if err != nil {
		return nil, execerr.Wrap("open toolbox", cubby.CodeInvalidArgument, err)
	}
	return &Box{s}, nil
}

// Keep keeps a tool, without trying it, and returns it as it is kept. A name that
// is taken by other code is refused (conflict): Remove that first. The same once
// more is nothing new.
func (b *Box) Keep(ctx context.Context, k Kept) (Kept, error) {
	fail := func(err error) (Kept, error) { return Kept{}, execerr.Wrap("keep tool", cubby.CodeInternal, err) }
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	given := k.Hash
	k, _, err := k.normalized()
	if err != nil {
		return fail(err)
	}
	if k.Hash = k.hash(); given != "" && given != k.Hash {
		return fail(invalid("the hash of tool %s is another one: leave it empty", k.Name))
	}
	if k.Created.IsZero() {
		k.Created = time.Now()
	}
	k.Created, k.Session = k.Created.UTC().Truncate(time.Millisecond), oneLine(k.Session)
	if len(k.Session) > 200 {
		return fail(invalid("the session's name is longer than 200 bytes"))
	}
	if there, err := b.store.get(k.Name); err == nil && there.Hash == k.Hash {
		return there, nil
	}
	// What cannot be read does not keep others from being kept.
	if all, _ := b.store.list(); len(all) >= MaxTools {
		return fail(&cubby.Error{Code: cubby.CodeConflict, Err: fmt.Errorf("the toolbox has %d tools, which is all it takes", len(all)), Hint: "remove some"})
	}
	err = b.store.put(k)
	if errors.Is(err, errTaken) {
		err = &cubby.Error{Code: cubby.CodeConflict, Err: fmt.Errorf("%w: %s", errTaken, k.Name), Hint: "take another name, or remove that one"}
	}
	if err != nil {
		return fail(err)
	}
	return k, nil
}

// Get returns the tool of a name. It fails with not found, or with conflict if
// what is kept was changed since.
func (b *Box) Get(ctx context.Context, name string) (Kept, error) {
	if err := ctx.Err(); err != nil {
		return Kept{}, execerr.Wrap("get tool", cubby.CodeInternal, err)
	}
	if !toolName.MatchString(name) {
		return Kept{}, execerr.Wrap("get tool", cubby.CodeNotFound, notFound(name))
	}
	k, err := b.store.get(name)
	return k, execerr.Wrap("get tool", cubby.CodeInternal, err)
}

// List returns the tools by name. If some cannot be read it returns the others,
// and an error that names them.
func (b *Box) List(ctx context.Context) ([]Kept, error) {
	if err := ctx.Err(); err != nil {
		return nil, execerr.Wrap("list tools", cubby.CodeInternal, err)
	}
	all, err := b.store.list()
	return all, execerr.Wrap("list tools", cubby.CodeInternal, err)
}

// Remove removes the tool of a name, also one that cannot be read.
func (b *Box) Remove(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return execerr.Wrap("remove tool", cubby.CodeInternal, err)
	}
	if !toolName.MatchString(name) {
		return execerr.Wrap("remove tool", cubby.CodeNotFound, notFound(name))
	}
	return execerr.Wrap("remove tool", cubby.CodeInternal, b.store.remove(name))
}
