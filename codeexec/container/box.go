package container

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

var (
	//go:embed walls.py
	wallsSource string
	//go:embed agent.py
	agentSource string
)

// boot becomes the agent: $1, with $2 for the case that it cannot do its work and
// $3 for what it may tidy up. Without Python it is alone from the beginning.
const boot = `command -v python3 >/dev/null 2>&1 && exec python3 -I -S -B -u -c "$@"; eval "$2"`

// alone says in the agent's form that there is none: a greeting of version 0.
// Then it waits for the end of its input and collects what has ended, like the
// agent; its cat may be killed with everything else.
const alone = `printf '\000\000\000\015H\000\000\000\000{"version":0}'
exec 3<&0
while :; do cat <&3 >/dev/null & wait $!; [ $? -gt 128 ] || exit 0; done`

// box is a container that runs.
type box struct {
	d    *docker
	id   string
	name string
	link *link
	exit chan exitState     // how the container ended, once
	stop context.CancelFunc // ends the waiting for that
	// tools are the programs that it has of those that run code, by name.
	tools map[string]string
	// shell says that there is no agent: programs are started by Docker's exec.
	shell    bool
	programs sync.RWMutex // held for reading by each program, if shell
	used     atomic.Bool  // something ran in it
	suspect  atomic.Bool  // something did not end as it should
}

// running is a program in a box.
type running interface {
	// write sends input; it waits until the program takes it.
	write(p []byte) (int, error)
	closeInput()
	// kill ends it and all that it started.
	kill() error
	// wait waits for its end; when ctx is done before, it is ended.
	wait(ctx context.Context) (exit, error)
}

// run starts a program.
func (b *box) run(ctx context.Context, s spec) (running, error) {
	if b.shell {
		return b.exec(ctx, s)
	}
	p, err := b.link.start(ctx, s)
	if err != nil {
		return nil, err
	}
	return p, nil
}

type exitState struct {
	code int64
	err  error
}

// removeTime bounds the removal of a container.
const removeTime = 30 * time.Second

// newBox creates and starts a container of the image.
func (d *docker) newBox(ctx context.Context, cfg Config, image string) (*box, error) {
	const op = "start container"
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.StartTimeout,
		&cubby.Error{Op: op, Code: cubby.CodeTimeout, Err: fmt.Errorf("the container did not start within %v", cfg.StartTimeout), Hint: "Config.StartTimeout"})
	defer cancel()
	config, host, err := settings(cfg, image)
	if err != nil {
		return nil, err
	}
	name := cfg.NamePrefix + strings.ToLower(rand.Text()[:12])
	// Not cancelled half way: a container that was made is known by its id.
	create, stop := context.WithTimeout(context.WithoutCancel(ctx), cfg.StartTimeout)
	defer stop()
	made, err := d.api.ContainerCreate(create, client.ContainerCreateOptions{Name: name, Config: config, HostConfig: host})
	if err != nil {
		if errdefs.IsNotFound(err) && strings.Contains(err.Error(), "o such image") {
			return nil, &cubby.Error{Op: op, Code: cubby.CodeNotFound, Err: fmt.Errorf("%w: %s", ErrImageMissing, image)}
		}
		return nil, d.explain(ctx, op, err)
	}
	for _, w := range made.Warnings {
		// A bound that the kernel cannot hold: better no container.
		if limit := unheld(w); limit != "" {
			_ = (&box{d: d, id: made.ID}).remove()
			return nil, &cubby.Error{Op: op, Code: cubby.CodeUnimplemented, Err: fmt.Errorf("%w: %s", codeexec.ErrLimitNotEnforceable, w)}
		}
		cfg.Logger.WarnContext(ctx, "docker warns", "container", name, "warning", w)
	}
	b := &box{d: d, id: made.ID, name: name}
	if err := b.start(ctx); err != nil {
		_ = b.remove() // it cannot be used, whatever becomes of it
		return nil, err
	}
	return b, nil
}

// unheld returns a daemon's warning if it says that a limit is ignored.
func unheld(warning string) string {
	if strings.Contains(warning, "discarded") && !strings.Contains(strings.ToLower(warning), "swap") {
		return warning
	}
	return ""
}

// start attaches to the container, starts it and waits for its agent.
func (b *box) start(ctx context.Context) error {
	const op = "start container"
	// The connection outlives ctx; only the request is bound to it.
	conn, err := b.d.api.ContainerAttach(ctx, b.id, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return b.d.explain(ctx, op, err)
	}
	b.watch(ctx)
	if _, err := b.d.api.ContainerStart(ctx, b.id, client.ContainerStartOptions{}); err != nil {
		conn.Close()
		if text := err.Error(); strings.Contains(text, `exec: "sh"`) || strings.Contains(text, "executable file not found") {
			return &cubby.Error{Op: op, Code: cubby.CodeUnimplemented, Err: fmt.Errorf("%w: %w", ErrNoInterpreter, err), Hint: "use an image like python:3-slim"}
		}
		return b.d.explain(ctx, op, err)
	}
	l, err := newLink(ctx, conn.Conn, conn.Reader)
	if err != nil {
		if ctx.Err() != nil {
			return execerr.Wrap(op, cubby.CodeTimeout, context.Cause(ctx))
		}
		return b.gone(op, l, err)
	}
	b.link, b.tools = l, l.hello.Tools
	go b.bury()
	if b.shell = l.hello.Version == 0; b.shell {
		return b.probe(ctx)
	}
	return nil
}

// bury removes the container when the link to its agent is lost, however it was.
func (b *box) bury() {
	<-b.link.lost
	select {
	case s := <-b.exit:
		b.exit <- s // for who asks how it ended
	case <-time.After(time.Second):
	}
	_ = b.remove() // who replaces it or closes the executor waits for the same
}

// busy reports whether programs run in it.
func (b *box) busy() bool {
	if b.link.cause() != nil {
		return false
	}
	if !b.shell {
		return b.link.busy()
	}
	if !b.programs.TryLock() {
		return true
	}
	b.programs.Unlock()
	return false
}

// healthTime is how long a program that does nothing may take.
const healthTime = 10 * time.Second

// check runs a program that does nothing. The container is given up if that
// cannot be done.
func (b *box) check(ctx context.Context) {
	p, err := b.run(ctx, spec{Argv: []string{"sh", "-c", ":"}, Cwd: "/", Timeout: healthTime.Seconds(), output: func(bool, []byte) {}})
	var ended exit
	if err == nil {
		ended, err = p.wait(ctx)
	}
	switch {
	case ctx.Err() != nil:
		return // it is not known
	case err == nil && ended.Code == 0, exhausted(err) && b.busy():
		b.suspect.Store(false)
	case err == nil:
		b.giveUp(fmt.Errorf("a program that does nothing ends with exit code %d", ended.Code))
	default:
		b.giveUp(err)
	}
}

// giveUp ends a container that cannot go on.
func (b *box) giveUp(why error) { b.link.close(fmt.Errorf("%w: %w", errGivenUp, why)) }

// errGivenUp: the container ran, and was ended because nothing works in it.
var errGivenUp = errors.New("it was given up")

// watch sees to it that b.exit says how the container ended. ctx bounds the
// request.
func (b *box) watch(ctx context.Context) {
	b.exit = make(chan exitState, 1)
	var wctx context.Context
	wctx, b.stop = context.WithCancel(context.Background())
	asked := context.AfterFunc(ctx, b.stop)
	wait := b.d.api.ContainerWait(wctx, b.id, client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
	asked()
	go func() {
		select {
		case r := <-wait.Result:
			b.exit <- exitState{code: r.StatusCode}
		case err := <-wait.Error:
			b.exit <- exitState{err: err}
		case <-wctx.Done():
		}
	}()
}

// gone describes a container that has ended, with its last words.
func (b *box) gone(op string, l *link, cause error) error {
	how := cause
	select {
	case s := <-b.exit:
		b.exit <- s // for who asks next
		switch {
		case s.err != nil:
			how = fmt.Errorf("the daemon went away: %w", s.err)
		case s.code == 137:
			how = errors.New("it was killed, or it had no memory left (exit code 137)")
		default:
			how = fmt.Errorf("it ended with exit code %d", s.code)
		}
		if slices.ContainsFunc(ours, func(err error) bool { return errors.Is(cause, err) }) {
			how = cause
		}
	case <-time.After(time.Second):
	}
	last := l.log.String()
	if last != "" {
		last = "; its last words:" + lastLines(last)
	}
	return &cubby.Error{
		Op: op, Code: cubby.CodeSandboxGone, Err: fmt.Errorf("%w: %w%s", ErrContainerGone, how, last),
		Hint: "the next call gets a new one; its files are lost",
	}
}

// ours are the reasons for which a container is ended from here.
var ours = []error{errProtocol, errKilledInVain, errSilent, errStopped, errGivenUp}

// remove ends and removes the container. One that is gone is no error.
func (b *box) remove() error {
	if b.link != nil {
		b.link.close(errRemoved)
	}
	if b.stop != nil {
		defer b.stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeTime)
	defer cancel()
	_, err := b.d.api.ContainerRemove(ctx, b.id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err == nil || errdefs.IsNotFound(err) {
		return nil
	}
	if errdefs.IsConflict(err) { // it is being removed
		wait := b.d.api.ContainerWait(ctx, b.id, client.ContainerWaitOptions{Condition: container.WaitConditionRemoved})
		select {
		case <-wait.Result:
			return nil
		case werr := <-wait.Error:
			if errdefs.IsNotFound(werr) {
				return nil
			}
		}
	}
	return b.d.explain(ctx, "remove container", err)
}

var errRemoved = errors.New("the container was removed")

// settings are the container's: closed, unless cfg opens it.
func settings(cfg Config, image string) (*container.Config, *container.HostConfig, error) {
	labels := maps.Clone(cfg.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[labelExecutor], labels[labelOwner] = "true", owner()
	env := map[string]string{"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg"}
	maps.Copy(env, cfg.Env)
	var vars []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(env[k], "\x00") {
			return nil, nil, invalid(fmt.Sprintf("%.100q is no name of a variable, or its value holds a NUL", k), "")
		}
		vars = append(vars, k+"="+env[k])
	}
	uid, gid := numbers(cfg.User)
	tmpfs := fmt.Sprintf("rw,nosuid,nodev,exec,mode=1777,size=%d,nr_inodes=%d", cfg.DiskBytes, max(cfg.DiskBytes/4096, 1024))
	if uid != "" {
		tmpfs += ",uid=" + uid
	}
	if gid != "" {
		tmpfs += ",gid=" + gid
	}
	shm := fmt.Sprintf("rw,nosuid,nodev,noexec,mode=1777,size=%d,nr_inodes=4096", min(cfg.DiskBytes, 64<<20))
	pids := int64(cfg.MaxPIDs)
	// The agent is process 1 itself: below an init it could be killed from inside.
	tini := false
	gpus, err := parseGPUs(cfg.GPUs)
	if err != nil {
		return nil, nil, err
	}
	config := &container.Config{
		Image: image, User: cfg.User, Env: vars, Labels: labels, WorkingDir: "/",
		Entrypoint: []string{"sh", "-c", boot, "cubby"},
		// The container ends with the connection.
		AttachStdin: true, AttachStdout: true, AttachStderr: true, OpenStdin: true, StdinOnce: true,
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
	host := &container.HostConfig{
		AutoRemove: true, NetworkMode: container.NetworkMode(cfg.Network), Binds: cfg.Binds, Runtime: cfg.Runtime,
		ReadonlyRootfs: true, CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
		IpcMode: "private", Tmpfs: map[string]string{"/tmp": tmpfs, sharedMemory: shm},
		// The agent's output is nothing to keep.
		LogConfig: container.LogConfig{Type: "none"}, Init: &tini,
		Resources: container.Resources{
			Memory: cfg.MemoryBytes, MemorySwap: cfg.MemoryBytes, NanoCPUs: int64(cfg.CPUs * 1e9), PidsLimit: &pids, DeviceRequests: gpus,
			Ulimits: []*container.Ulimit{{Name: "core", Soft: 0, Hard: 0}, {Name: "nofile", Soft: 1024, Hard: 4096}},
		},
	}
	if cfg.Customize != nil {
		cfg.Customize(config, host)
	}
	if config.Cmd == nil {
		config.Cmd = append([]string{wallsSource + agentSource, alone}, own(host, shm)...)
	}
	return config, host, nil
}

// sharedMemory is the folder of POSIX shared memory.
const sharedMemory = "/dev/shm"

// own tells the agent what is the container's own and may be tidied up: System V
// objects ("ipc") and folders. What Customize has shared with others is not.
func own(host *container.HostConfig, shm string) []string {
	if host.IpcMode != "private" {
		return nil
	}
	may := []string{"ipc"}
	if host.Tmpfs[sharedMemory] == shm && !slices.ContainsFunc(host.Binds, belowDev) &&
		!slices.ContainsFunc(host.Mounts, func(m mount.Mount) bool { return belowDev(":" + m.Target) }) {
		may = append(may, sharedMemory, "/dev/mqueue")
	}
	return may
}

// belowDev reports whether a bind is mounted below /dev.
func belowDev(bind string) bool {
	return slices.ContainsFunc(strings.Split(bind, ":"), func(part string) bool { return strings.HasPrefix(path.Clean(part)+"/", "/dev/") })
}

// numbers returns uid and gid of a user that is given by numbers.
func numbers(user string) (uid, gid string) {
	uid, gid, _ = strings.Cut(user, ":")
	if _, err := strconv.ParseUint(uid, 10, 32); err != nil {
		uid = ""
	}
	if _, err := strconv.ParseUint(gid, 10, 32); err != nil {
		gid = ""
	}
	return uid, gid
}

// parseGPUs understands what docker run --gpus does: "all", a number, or fields
// like "device=0,1" and "count=2" and "driver=nvidia" and "capabilities=compute".
func parseGPUs(s string) ([]container.DeviceRequest, error) {
	if s == "" {
		return nil, nil
	}
	r := container.DeviceRequest{Capabilities: [][]string{{"gpu"}}}
	bad := invalid(fmt.Sprintf("%.100q is no choice of GPUs", s), `it is like "all", "2" or "device=0,1"`)
	if devices, ok := strings.CutPrefix(s, "device="); ok && !strings.Contains(devices, "=") {
		s = `"` + s + `"` // commas are between devices
	}
	fields, err := csv.NewReader(strings.NewReader(s)).Read()
	if err != nil {
		return nil, bad
	}
	for _, field := range fields {
		key, value, found := strings.Cut(field, "=")
		if !found {
			key, value = "count", field
		}
		switch key {
		case "count":
			r.Count = -1
			if value != "all" {
				if r.Count, err = strconv.Atoi(value); err != nil || r.Count < 1 {
					return nil, bad
				}
			}
		case "device":
			r.DeviceIDs = strings.Split(value, ",")
		case "driver":
			r.Driver = value
		case "capabilities":
			r.Capabilities = [][]string{append(strings.Split(value, ","), "gpu")}
		default:
			return nil, bad
		}
	}
	if r.Count == 0 && len(r.DeviceIDs) == 0 {
		r.Count = -1
	}
	if r.Count != 0 && len(r.DeviceIDs) > 0 {
		return nil, bad
	}
	return []container.DeviceRequest{r}, nil
}

// languages are what it can run.
func (b *box) languages() []string {
	var have []string
	tools := b.tools
	if tools["python3"] != "" {
		have = append(have, codeexec.Python)
	}
	if tools["bash"] != "" || tools["sh"] != "" {
		have = append(have, codeexec.Bash)
	}
	if tools["node"] != "" {
		have = append(have, codeexec.JavaScript)
	}
	return have
}
