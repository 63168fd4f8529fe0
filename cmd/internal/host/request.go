package host

import (
	"context"
	"errors"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby/internal/clip"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// CreateRequest is what a client asks for and what the server knows about it.
type CreateRequest struct {
	protocol.NewSandbox
	// TeamID owns the sandbox; empty in a private Cubby.
	TeamID string
	// Secure gives the sandbox an access token; without it whoever can route a
	// request to the sandbox may use it.
	Secure bool
	// DefaultTimeout is the timeout if the client asks for none; zero means
	// the host's.
	DefaultTimeout time.Duration
}

// Defaults of a sandbox that asks for nothing else.
var defaultLimits = protocol.Limits{MemoryMB: 512, CPUs: 1, DiskMB: 1024, PIDs: 256}

// Bounds of what a client may make the host remember or hand to a guest.
const (
	maxPairs    = 1024     // entries of metadata, and of envVars
	maxMetadata = 64 << 10 // bytes of all names and values
	maxEnv      = 512 << 10
	maxVariable = 128<<10 - 2 // Linux takes no longer string, "=" and NUL included, into a process
	maxQuoted   = 64          // bytes of a client's text in a message about it
	maxHostName = 256

	maxHTTPSPorts = 1024
	maxWarm       = 16 // languages
	maxLanguage   = 64 // bytes of a language's name
)

// plan finds out what a request asks for.
func (h *Host) plan(ctx context.Context, req CreateRequest) (plan, error) {
	if err := checkLimits(req.Limits); err != nil {
		return plan{}, err
	}
	byDefault := req.DefaultTimeout
	if byDefault == 0 {
		byDefault = h.cfg.Timeout
	}
	timeout, err := timeoutOf(req.Timeout, byDefault)
	if err != nil {
		return plan{}, err
	}
	p, err := h.sourceOf(ctx, req)
	if err != nil {
		return plan{}, err
	}
	t := p.template
	if err := allInvalid(checkMetadata(req.Metadata), checkEnv(req.EnvVars), checkWarm(req.Warm)); err != nil {
		return plan{}, err
	}
	pause := req.AutoPause != nil && *req.AutoPause
	if pause && !h.canPause() {
		return plan{}, cannotPause()
	}
	idle, err := idleOf(req.IdleTimeout)
	if err != nil {
		return plan{}, err
	}
	limits, asked := mergeLimits(t.limits(), req.Limits)
	if disk := t.limits().DiskMB; p.from.restored != "" && limits.DiskMB != disk {
		return plan{}, invalid("the disk of a sandbox that is made of a snapshot with memory has the size that it had, %d MB", disk)
	}
	env := req.EnvVars
	if env == nil {
		env = p.record.Env
	}
	r := Record{
		Identity: Identity{
			ID: newID("i"), PublicID: newID("p"), Generation: 1, TeamID: req.TeamID, TemplateID: p.name, TemplateDigest: t.Digest,
			Engine: h.cfg.Engine.Name(), EngineCommit: h.cfg.Engine.Commit(), Limits: limits, Asked: asked,
			Env: env, Warm: req.Warm, Metadata: req.Metadata,
			Secure: req.Secure, ContextToken: req.ContextToken,
			Lifecycle: Lifecycle{
				Timeout: timeout, Idle: idle, Pause: pause, FilesOnly: pause && req.AutoPauseMemory != nil && !*req.AutoPauseMemory,
				AutoResume: req.AutoResume != nil && req.AutoResume.Enabled,
			},
		},
		Instance: Instance{Memory: 1, Files: 1}, AllowInternetAccess: req.AllowInternetAccess,
	}
	if req.ContextToken && !req.Secure {
		return plan{}, invalid("%s is for a sandbox with an access token: ask for 'secure', too", protocol.HeaderContextToken)
	}
	if n := req.Network; n != nil {
		r.Network = n
		if n.AllowPublicTraffic != nil && !*n.AllowPublicTraffic && !req.Secure {
			return plan{}, invalid("You cannot create a sandbox without public access unless you enable secure envd access via 'secure' flag.")
		}
		if err := allInvalid(checkMask(n.MaskRequestHost), checkHTTPSPorts(n.HTTPSPorts)); err != nil {
			return plan{}, err
		}
	}
	if err := h.checkRules(ctx, r.TeamID, r.AllowInternetAccess, r.Network); err != nil {
		return plan{}, err
	}
	p.record = r
	return p, nil
}

// sourceOf is what a sandbox is made of: a template or a snapshot.
func (h *Host) sourceOf(ctx context.Context, req CreateRequest) (plan, error) {
	t, err := h.cfg.Templates.Resolve(ctx, req.TeamID, req.TemplateID)
	if fault.CodeOf(err) == fault.NotFound {
		snapshot, found := h.cfg.Snapshots.Snapshot(ctx, req.TeamID, req.TemplateID)
		if found == nil {
			return h.planOfSnapshot(ctx, snapshot)
		}
		if !errors.Is(found, ErrNotFound) {
			return plan{}, own(found)
		}
	}
	if err != nil {
		return plan{}, err
	}
	return plan{name: t.ID, template: t, use: func(_ context.Context,
		start func(startMachine) error) error {
		return start(h.cfg.Engine.Start)
	}}, nil
}

// idleOf is how long a sandbox may be idle, of what a client asks for in seconds.
func idleOf(seconds *int) (time.Duration, error) {
	switch {
	case seconds == nil || *seconds == 0:
		return 0, nil
	case *seconds < 0:
		return 0, invalid("idle timeout must be greater than 0")
	}
	return Seconds(*seconds)
}

// timeoutOf is the time that a client asks for, in seconds, or the default.
func timeoutOf(seconds *int, byDefault time.Duration) (time.Duration, error) {
	switch {
	case seconds == nil:
		return byDefault, nil
	case *seconds <= 0:
		return 0, invalid("Timeout must be greater than 0")
	}
	return Seconds(*seconds)
}

// Seconds is a client's number of seconds as a time of at most MaxTimeout, or an
// error with the code fault.InvalidArgument.
func Seconds(n int) (time.Duration, error) {
	switch {
	case n < 0:
		return 0, invalid("Timeout must not be negative")
	case n > int(MaxTimeout/time.Second):
		return 0, invalid("Timeout cannot be greater than %d hours", int(MaxTimeout.Hours()))
	}
	return time.Duration(n) * time.Second, nil
}

func checkMetadata(m map[string]string) error {
	if len(m) > maxPairs {
		return invalid("metadata has %d entries: at most %d are possible", len(m), maxPairs)
	}
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
	}
	if size > maxMetadata {
		return invalid("metadata has %d bytes: at most %d are possible", size, maxMetadata)
	}
	return nil
}

func checkEnv(m map[string]string) error {
	if len(m) > maxPairs {
		return invalid("envVars has %d entries: at most %d are possible", len(m), maxPairs)
	}
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
		switch {
		case k == "" || strings.ContainsAny(k, "=\x00"):
			return invalid("envVars: %q is no name for a variable: it must not be empty and must not contain '=' or NUL", clip.Ellipsis(k, maxQuoted))
		case strings.Contains(v, "\x00"):
			return invalid("envVars: the value of %q contains NUL", clip.Ellipsis(k, maxQuoted))
		case len(k)+len(v) > maxVariable:
			return invalid("envVars: %q is too long: name and value may have %d bytes", clip.Ellipsis(k, maxQuoted), maxVariable)
		}
	}
	if size > maxEnv {
		return invalid("envVars has %d bytes: at most %d are possible", size, maxEnv)
	}
	return nil
}

func checkWarm(languages []string) error {
	if len(languages) > maxWarm {
		return invalid("cubbyWarm has %d languages: at most %d are possible", len(languages), maxWarm)
	}
	for _, name := range languages {
		if len(name) > maxLanguage {
			return invalid("cubbyWarm: %q is no language", clip.Ellipsis(name, maxQuoted))
		}
	}
	return nil
}

var hostName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?)*$`)
})

// checkMask checks a host name, with or without a port, that stands for the one
// a client used; "${PORT}" in it is the port that is asked for.
func checkMask(mask string) error {
	if mask == "" {
		return nil
	}
	name := strings.ReplaceAll(mask, "${PORT}", "80")
	if host, port, err := net.SplitHostPort(name); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return invalid("network.maskRequestHost: %q has no port between 1 and 65535", clip.Ellipsis(mask, maxQuoted))
		}
		name = host
	}
	if len(mask) > maxHostName || !hostName().MatchString(name) && net.ParseIP(strings.Trim(name, "[]")) == nil {
		return invalid("network.maskRequestHost: %q is no host name", clip.Ellipsis(mask, maxQuoted))
	}
	return nil
}

// checkHTTPSPorts checks the ports whose programs speak TLS.
func checkHTTPSPorts(ports []int) error {
	if len(ports) > maxHTTPSPorts {
		return invalid("network.httpsPorts has %d ports: at most %d are possible", len(ports), maxHTTPSPorts)
	}
	for _, port := range ports {
		switch {
		case port < 1 || port > 65535:
			return invalid("network.httpsPorts: %d is not a port between 1 and 65535", port)
		case port == protocol.EnvdPort:
			return invalid("network.httpsPorts: port %d is envd's and cannot be listed", port)
		}
	}
	return nil
}

// plain is a number without an exponent.
func plain(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// limitRanges are the limits that a client may ask for.
var limitRanges = []struct {
	name      string
	low, high float64
	of        func(*protocol.Limits) float64
	set       func(limits, to *protocol.Limits)
}{
	{"memory", 16, 1 << 20, func(l *protocol.Limits) float64 { return float64(l.MemoryMB) },
		func(l, to *protocol.Limits) { l.MemoryMB = to.MemoryMB }},
	{"cpu", 0.01, 1024, func(l *protocol.Limits) float64 { return l.CPUs }, func(l, to *protocol.Limits) { l.CPUs = to.CPUs }},
	{"disk", 1, 1 << 24, func(l *protocol.Limits) float64 { return float64(l.DiskMB) }, func(l, to *protocol.Limits) { l.DiskMB = to.DiskMB }},
	{"pids", 8, 1 << 16, func(l *protocol.Limits) float64 { return float64(l.PIDs) }, func(l, to *protocol.Limits) { l.PIDs = to.PIDs }},
}

// checkLimits refuses what is out of range. Zero is not asked for.
func checkLimits(req *protocol.Limits) error {
	if req == nil {
		return nil
	}
	var errs []error
	for _, r := range limitRanges {
		if value := r.of(req); value != 0 && !(value >= r.low && value <= r.high) { // not a number is neither
			errs = append(errs, invalid("%s must be between %s and %s", r.name, plain(r.low), plain(r.high)))
		}
	}
	return allInvalid(errs...)
}

// mergeLimits replaces those limits that were asked for, and names them.
func mergeLimits(limits protocol.Limits, req *protocol.Limits) (protocol.Limits, []string) {
	if req == nil {
		return limits, nil
	}
	asked := overlay(&limits, *req)
	return limits, asked
}

// overlay replaces the limits that are not zero in by, and names them.
func overlay(limits *protocol.Limits, by protocol.Limits) (names []string) {
	for _, r := range limitRanges {
		if r.of(&by) != 0 {
			r.set(limits, &by)
			names = append(names, r.name)
		}
	}
	return names
}
