//go:build linux

package watch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/files"
)

// watchMask is what is asked of the kernel about each folder.
const watchMask = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_ATTRIB | unix.IN_MODIFY | unix.IN_DELETE |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// watch reports what happens in a folder and, if it is recursive, below it. One
// goroutine (run) reads the kernel's events; whoever wants them calls next.
type watch struct {
	g         *Service
	root      string // absolute
	recursive bool
	entries   bool // describe what each event is about
	inotify   *os.File
	wake      chan struct{} // holds one token when there is something for next

	// Of run alone.
	dirs      map[int32]string  // what each descriptor watches, below root; "" is root
	byPath    map[string]int32  // the same, the other way round
	moved     map[uint32]string // folders that left their place, by the kernel's cookie
	announced map[string]bool   // found in a new folder, and reported as created
	scanned   int64             // events that begin before this may be about what announced says
	position  int64             // of the next event, in bytes since the start
	received  int64             // bytes read

	mu     sync.Mutex
	stop   func() bool // no close at the guest's end any more
	queue  []*envd.FilesystemEvent
	held   int // of the guest's budget
	err    error
	closed bool
}

// newWatch begins to watch; what happens from its return on is reported. ctx bounds
// the look at the folders that are there. The caller closes it. Errors are
// connect's.
func (s *Service) newWatch(ctx context.Context, root string, recursive, entries bool) (*watch, error) {
	st, err := os.Stat(root)
	if err != nil {
		return nil, files.ConnectError(root, err)
	}
	if !st.IsDir() {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path '%s' is not a directory", root))
	}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("watch '%s': %w", root, err))
	}
	w := &watch{
		g: s, root: root, recursive: recursive, entries: entries,
		inotify: os.NewFile(uintptr(fd), "inotify"), wake: make(chan struct{}, 1),
		dirs: map[int32]string{}, byPath: map[string]int32{}, moved: map[uint32]string{}, announced: map[string]bool{},
	}
	stop := context.AfterFunc(ctx, func() { w.fail(connect.CodeCanceled, "watch '%s': %w", root, ctx.Err()) })
	w.add("", false)
	if !stop() {
		w.close()
		return nil, ctx.Err()
	}
	if err := w.failure(); err != nil {
		w.close()
		return nil, err
	}
	if len(w.dirs) == 0 { // gone since we looked
		w.close()
		return nil, files.ConnectError(root, fs.ErrNotExist)
	}
	w.mu.Lock()
	w.stop = context.AfterFunc(s.ctx, w.close)
	w.mu.Unlock()
	s.wg.Go(w.run)
	return w, nil
}

// close ends the watch and gives back what it held. It may be called twice.
func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.closed = true
	if w.stop != nil {
		w.stop()
	}
	w.inotify.Close()
	w.g.table.budget.give(w.held)
	w.held, w.queue = 0, nil
}

// fail ends the watch with an error, which next returns once the events before it
// are fetched.
func (w *watch) fail(code connect.Code, format string, args ...any) {
	w.mu.Lock()
	if w.err == nil && !w.closed {
		w.err = connect.NewError(code, fmt.Errorf(format, args...))
		w.inotify.Close() // run ends
	}
	w.mu.Unlock()
	w.signal()
}

func (w *watch) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *watch) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take takes n bytes of the budget; without room the watch ends.
func (w *watch) take(n int) bool {
	w.mu.Lock()
	ok := !w.closed && w.err == nil && w.g.table.budget.take(n)
	if ok {
		w.held += n
	}
	w.mu.Unlock()
	if !ok {
		w.fail(connect.CodeResourceExhausted, "watch '%s': more happens than is fetched, or there are too many folders: watch a smaller part", w.root)
	}
	return ok
}

func (w *watch) give(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.held -= n
		w.g.table.budget.give(n)
	}
}

// next returns the oldest event, nil if there is none. After the last one before a
// failure it returns that.
func (w *watch) next() (*envd.FilesystemEvent, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return nil, w.err
	}
	e := w.queue[0]
	w.queue[0], w.queue = nil, w.queue[1:]
	n := eventCost(e)
	w.held -= n
	w.g.table.budget.give(n)
	return e, nil
}

// emit queues an event about what is called name below the root.
func (w *watch) emit(kind envd.EventType, name string) {
	e := &envd.FilesystemEvent{Name: strings.ToValidUTF8(path.Join(".", name), "\uFFFD"), Type: kind}
	if w.entries && kind != envd.EventType_EVENT_TYPE_REMOVE && kind != envd.EventType_EVENT_TYPE_RENAME {
		abs := path.Join(w.root, name)
		if st, err := os.Lstat(abs); err == nil {
			e.Entry = w.g.files.Describe(abs, st)
		}
	}
	if !w.take(eventCost(e)) {
		return
	}
	w.mu.Lock()
	if !w.closed {
		w.queue = append(w.queue, e)
	}
	w.mu.Unlock()
	w.signal()
}

// run reads the kernel's events until the watch is closed.
func (w *watch) run() {
	buf := make([]byte, 64<<10) // far more than the largest event
	for {
		n, err := w.inotify.Read(buf)
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				w.fail(connect.CodeInternal, "watch '%s': %w", w.root, err)
			}
			return
		}
		w.received += int64(n)
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			size := min(len(b), unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(b[12:])))
			name, _, _ := strings.Cut(string(b[unix.SizeofInotifyEvent:size]), "\x00")
			w.handle(int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[8:]), name)
			w.position += int64(size)
			b = b[size:]
		}
	}
}

// kinds are the events of a mask in E2B's order.
var kinds = []struct {
	mask uint32
	kind envd.EventType
}{
	{unix.IN_CREATE | unix.IN_MOVED_TO, envd.EventType_EVENT_TYPE_CREATE},
	{unix.IN_MOVED_FROM | unix.IN_MOVE_SELF, envd.EventType_EVENT_TYPE_RENAME},
	{unix.IN_ATTRIB, envd.EventType_EVENT_TYPE_CHMOD},
	{unix.IN_MODIFY, envd.EventType_EVENT_TYPE_WRITE},
	{unix.IN_DELETE | unix.IN_DELETE_SELF, envd.EventType_EVENT_TYPE_REMOVE},
}

// handle acts on one event of the kernel.
func (w *watch) handle(wd int32, mask, cookie uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		w.fail(connect.CodeResourceExhausted, "watch '%s': the kernel dropped events: watch a smaller part", w.root)
		return
	}
	if w.position >= w.scanned && len(w.announced) > 0 {
		w.forgetAnnounced()
	}
	dir, known := w.dirs[wd]
	if !known {
		return
	}
	if mask&unix.IN_IGNORED != 0 {
		w.forget(wd)
		return
	}
	if name == "" {
		w.self(dir, mask)
		return
	}
	name = path.Join(dir, name)
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 && w.announced[name]:
		w.unannounce(name)
		mask &^= unix.IN_CREATE | unix.IN_MOVED_TO
	case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0 && w.announced[name]:
		w.unannounce(name)
	}
	for _, k := range kinds {
		if mask&k.mask != 0 {
			w.emit(k.kind, name)
		}
	}
	if !w.recursive || mask&unix.IN_ISDIR == 0 {
		return
	}
	switch {
	case mask&unix.IN_MOVED_FROM != 0:
		if _, watched := w.byPath[name]; watched {
			w.moved[cookie] = name // until its IN_MOVE_SELF
		}
	case mask&unix.IN_MOVED_TO != 0 && w.moved[cookie] != "":
		w.rename(w.moved[cookie], name)
		delete(w.moved, cookie)
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		w.add(name, true)
	}
}

// self acts on an event about a watched folder itself. Of one below the root its
// parent has told already.
func (w *watch) self(dir string, mask uint32) {
	if dir == "" {
		for _, k := range kinds {
			if mask&k.mask != 0 {
				w.emit(k.kind, "")
			}
		}
		return
	}
	if mask&unix.IN_MOVE_SELF == 0 {
		return
	}
	// It has left its place, and by now would have been seen at another one below
	// the root.
	for cookie, name := range w.moved {
		if name == dir {
			delete(w.moved, cookie)
			w.abandon(dir)
		}
	}
}

// add watches a folder and, if the watch is recursive, all below it. What it finds
// there is reported as created if announce is set: it came before we could look.
func (w *watch) add(dir string, announce bool) {
	found := false
	todo := []string{}
	later := func(dir string) {
		if w.take(cost(dir)) {
			todo = append(todo, dir)
		}
	}
	for later(dir); len(todo) > 0 && w.failure() == nil; {
		dir, todo = todo[len(todo)-1], todo[:len(todo)-1]
		w.give(cost(dir))
		if !w.addOne(dir) || !w.recursive {
			continue
		}
		w.list(dir, func(e fs.DirEntry) {
			name := path.Join(dir, e.Name())
			if announce && w.announce(name) {
				found = true
			}
			if e.IsDir() {
				later(name)
			}
		})
	}
	if found {
		w.scanned = w.received + w.pending()
	}
}

// list calls f with what is in a folder, if it still is one.
func (w *watch) list(dir string, f func(fs.DirEntry)) {
	flags := os.O_RDONLY | unix.O_DIRECTORY // which waits for no pipe
	if dir != "" {
		flags |= unix.O_NOFOLLOW
	}
	file, err := os.OpenFile(path.Join(w.root, dir), flags, 0)
	if err != nil {
		return
	}
	defer file.Close()
	for err == nil && w.failure() == nil {
		var entries []fs.DirEntry
		entries, err = file.ReadDir(256)
		for _, e := range entries {
			f(e)
		}
	}
}

// addOne watches one folder; false if there is none.
func (w *watch) addOne(dir string) bool {
	abs, mask := path.Join(w.root, dir), uint32(watchMask)
	if dir != "" {
		mask |= unix.IN_DONT_FOLLOW
	}
	var wd int
	var err error
	if cerr := w.control(func(fd int) { wd, err = unix.InotifyAddWatch(fd, abs, mask) }); cerr != nil {
		return false // closed
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.ENOMEM):
		w.fail(connect.CodeResourceExhausted, "watch '%s': the kernel watches no more folders: watch a smaller part", w.root)
		return false
	case err != nil && dir == "":
		w.fail(connect.CodeOf(files.ConnectError(abs, err)), "watch '%s': %w", abs, err)
		return false
	case err != nil:
		return false // gone meanwhile, or no folder any more
	}
	if _, again := w.dirs[int32(wd)]; again {
		w.forget(int32(wd)) // known by another path
	}
	if old, taken := w.byPath[dir]; taken {
		w.forget(old) // was here before
	}
	if !w.take(cost(dir)) {
		return false
	}
	w.dirs[int32(wd)], w.byPath[dir] = dir, int32(wd)
	return true
}

// control calls f with the kernel's descriptor, which stays open meanwhile.
func (w *watch) control(f func(fd int)) error {
	conn, err := w.inotify.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Control(func(fd uintptr) { f(int(fd)) })
}

// pending returns how many bytes of events wait to be read.
func (w *watch) pending() int64 {
	n := 0
	_ = w.control(func(fd int) { n, _ = unix.IoctlGetInt(fd, unix.TIOCINQ) })
	return int64(n)
}

// announce reports what was found in a new folder, once. The kernel's own event
// about it, if it waits in the queue, will not be reported again.
func (w *watch) announce(name string) bool {
	if w.announced[name] || !w.take(cost(name)) {
		return false
	}
	w.announced[name] = true
	w.emit(envd.EventType_EVENT_TYPE_CREATE, name)
	return true
}

func (w *watch) unannounce(name string) {
	delete(w.announced, name)
	w.give(cost(name))
}

func (w *watch) forgetAnnounced() {
	for name := range w.announced {
		w.unannounce(name)
	}
}

// forget drops what is known of a descriptor.
func (w *watch) forget(wd int32) {
	dir := w.dirs[wd]
	delete(w.dirs, wd)
	if w.byPath[dir] == wd {
		delete(w.byPath, dir)
	}
	w.give(cost(dir))
}

// below says whether name is dir or in it.
func below(dir, name string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

// abandon watches a folder no more, nor what is below it.
func (w *watch) abandon(dir string) {
	for wd, name := range w.dirs {
		if below(dir, name) {
			_ = w.control(func(fd int) { _, _ = unix.InotifyRmWatch(fd, uint32(wd)) })
			w.forget(wd)
		}
	}
}

// rename knows a folder and all below it by a new path.
func (w *watch) rename(from, to string) {
	renamed := map[int32]string{}
	for wd, name := range w.dirs {
		if below(from, name) {
			renamed[wd] = to + name[len(from):]
		}
	}
	for wd, name := range renamed {
		w.forget(wd)
		if !w.take(cost(name)) {
			return
		}
		w.dirs[wd], w.byPath[name] = name, wd
	}
}
