package e2bexec_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/e2bexec"
)

// TestMain fails if a goroutine that this package or its tests started goes on
// when all of them have ended.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := goroutinesLeft(5 * time.Second); code == 0 && len(left) > 0 {
		fmt.Fprintf(os.Stderr, "goroutines are left:\n\n%s\n", strings.Join(left, "\n\n"))
		code = 1
	}
	os.Exit(code)
}

// goroutinesLeft waits until no goroutine but the caller's has a function of e2bexec
// on its stack, or was started by one, and returns the stacks of those that are
// there after the time.
func goroutinesLeft(within time.Duration) []string {
	for deadline := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		stacks := make([]byte, 1<<20)
		all := strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n")
		left := slices.DeleteFunc(all[1:], func(stack string) bool { return !strings.Contains(stack, "codeexec/internal/e2bexec") })
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// fake is an executor that says which session it is.
type fake struct {
	session string
	serial  int64
	busy    atomic.Bool
	closed  atomic.Int64
}

func (f *fake) ExecuteCode(_ context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	if f.closed.Load() > 0 {
		return codeexec.CodeExecutionResult{}, errors.New("it was closed while it was used")
	}
	return codeexec.CodeExecutionResult{Output: fmt.Sprintf("%s %d %q", f.session, f.serial, in.ExecutionID)}, nil
}
func (f *fake) CodeBlockDelimiters() []codeexec.CodeBlockDelimiter { return nil }
func (f *fake) Languages() []string                                { return nil }
func (f *fake) Close() error {
	f.closed.Add(1)
	return nil
}

// factory makes fakes and remembers them.
type factory struct {
	mu   sync.Mutex
	made []*fake
	fail error
	hold chan struct{} // if not nil, making waits for it
}

func (f *factory) open(ctx context.Context, session string, _ *codeexec.Instance) (*fake, error) {
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, f.fail
	}
	x := &fake{session: session, serial: int64(len(f.made))}
	f.made = append(f.made, x)
	return x, nil
}

func newPool(t *testing.T, f *factory, size int, idle time.Duration) *e2bexec.Pool[*fake] {
	t.Helper()
	p, err := e2bexec.NewPool(e2bexec.PoolConfig[*fake]{
		Open: f.open, Busy: func(x *fake) bool { return x.busy.Load() },
		Latest: func(*fake) codeexec.Instance { return codeexec.Instance{} }, Size: size, Idle: idle,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		for _, x := range f.made {
			if n := x.closed.Load(); n != 1 {
				t.Errorf("%s %d was closed %d times", x.session, x.serial, n)
			}
		}
	})
	return p
}

func get(t *testing.T, p *e2bexec.Pool[*fake], session string) *fake {
	t.Helper()
	x, err := p.Get(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestPoolGivesEachSessionItsOwn(t *testing.T) {
	p := newPool(t, &factory{}, 4, time.Hour)
	a, b := get(t, p, "a"), get(t, p, "b")
	if a == b || get(t, p, "a") != a || get(t, p, "b") != b {
		t.Error("sessions are mixed up")
	}
	r, err := p.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{ExecutionID: "b"})
	if err != nil || r.Output != `b 1 ""` {
		t.Errorf("got %+v, %v", r, err)
	}
	if got := p.Sessions(); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("got %v", got)
	}
	if err := errors.Join(p.Release("a"), p.Release("a"), p.Release("none")); err != nil || a.closed.Load() != 1 {
		t.Errorf("got %v", err)
	}
	if get(t, p, "a") == a {
		t.Error("what was released came back")
	}
}

func TestPoolMakesOneForAllWhoWait(t *testing.T) {
	f := &factory{hold: make(chan struct{})}
	p := newPool(t, f, 4, time.Hour)
	short, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() {
		_, err := p.Get(short, "a")
		gaveUp <- err
	}()
	got := make(chan *fake)
	for range 8 {
		go func() {
			x, err := p.Get(context.Background(), "a")
			if err != nil {
				t.Error(err)
			}
			got <- x
		}()
	}
	cancel() // who gives up does not spoil it for the others
	if err := <-gaveUp; cubby.CodeOf(err) != cubby.CodeCanceled {
		t.Errorf("got %v", err)
	}
	close(f.hold)
	first := <-got
	for range 7 {
		if x := <-got; x != first {
			t.Error("two were made")
		}
	}
}

func TestPoolThatIsFull(t *testing.T) {
	p := newPool(t, &factory{}, 2, time.Hour)
	a, b := get(t, p, "a"), get(t, p, "b")
	get(t, p, "a")
	c := get(t, p, "c") // instead of b, which was not used for longest
	if b.closed.Load() != 1 || a.closed.Load() != 0 {
		t.Error("the wrong one was ended")
	}
	a.busy.Store(true)
	get(t, p, "d")
	if c.closed.Load() != 1 || a.closed.Load() != 0 {
		t.Error("one that is in use was ended")
	}
	get(t, p, "d").busy.Store(true)
	_, err := p.Get(t.Context(), "e")
	if cubby.CodeOf(err) != cubby.CodeRateLimited {
		t.Errorf("got %v", err)
	}
	if get(t, p, "a") != a {
		t.Error("who is in the pool has no trouble")
	}
}

func TestPoolEndsWhatIsIdle(t *testing.T) {
	p := newPool(t, &factory{}, 4, 50*time.Millisecond)
	a, b := get(t, p, "a"), get(t, p, "b")
	b.busy.Store(true)
	for deadline := time.Now().Add(time.Minute); a.closed.Load() == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is still there")
		}
	}
	if b.closed.Load() != 0 {
		t.Error("one that is in use was ended")
	}
}

func TestPoolTriesAgain(t *testing.T) {
	f := &factory{fail: errors.New("no room")}
	p := newPool(t, f, 1, time.Hour)
	for _, session := range []string{"a", "a", "b"} {
		if _, err := p.Get(t.Context(), session); !errors.Is(err, f.fail) || cubby.CodeOf(err) != cubby.CodeUnavailable {
			t.Errorf("got %v", err)
		}
	}
	f.mu.Lock()
	f.fail = nil
	f.mu.Unlock()
	get(t, p, "a")
}

func TestPoolThatIsClosed(t *testing.T) {
	f := &factory{hold: make(chan struct{})}
	p := newPool(t, f, 1, time.Hour)
	got := make(chan error)
	go func() {
		_, err := p.Get(context.Background(), "a")
		got <- err
	}()
	for len(p.Sessions()) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := errors.Join(p.Close(), p.Close()); err != nil {
		t.Error(err)
	}
	if err := <-got; err == nil {
		t.Error("it was made after all")
	}
	if _, err := p.Get(t.Context(), "a"); cubby.CodeOf(err) != cubby.CodeConflict {
		t.Errorf("got %v", err)
	}
}

// Everything at a time; nothing may be closed twice or while it is used.
func TestPoolUnderLoad(t *testing.T) {
	p := newPool(t, &factory{}, 3, 2*time.Millisecond)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n := range 200 {
				session := fmt.Sprint((i + n) % 5)
				r, err := p.ExecuteCode(context.Background(), codeexec.CodeExecutionInput{ExecutionID: session})
				if err != nil && cubby.CodeOf(err) != cubby.CodeRateLimited {
					t.Errorf("got %+v, %v", r, err)
				}
			}
		})
	}
	wg.Wait()
}
