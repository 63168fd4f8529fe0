package host

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

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
	// DefaultTimeout is the lifetime if the client asks for none; zero means
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
	maxHostName = 256
)

// InvalidError says in the client's words what is wrong with a request. It wraps
// ErrInvalid.
type InvalidError struct{ Message string }

func (e *InvalidError) Error() string { return e.Message }
func (e *InvalidError) Unwrap() error { return ErrInvalid }

func invalid(format string, args ...any) error { return &InvalidError{fmt.Sprintf(format, args...)} }

// plan makes the sandbox that a request describes, without its machine, and says
// which limits were asked for.
func (h *Host) plan(req CreateRequest) (*Sandbox, map[string]bool, error) {
	limits, asked, err := mergeLimits(req.Limits)
	if err != nil {
		return nil, nil, err
	}
	byDefault := req.DefaultTimeout
	if byDefault == 0 {
		byDefault = h.cfg.Timeout
	}
	timeout, err := lifetime(req.Timeout, byDefault)
	if err != nil {
		return nil, nil, err
	}
	templateID, err := h.template(req.TemplateID)
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(checkMetadata(req.Metadata), checkEnv(req.EnvVars)); err != nil {
		return nil, nil, err
	}
	s := &Sandbox{
		ID: newID("i"), PublicID: newID("p"), TeamID: req.TeamID, TemplateID: templateID, Metadata: req.Metadata, Limits: limits,
		AllowInternetAccess: req.AllowInternetAccess, host: h, hostToken: newToken(),
		logs: ring[LogEntry]{max: maxLogs}, samples: ring[Sample]{max: maxSamples},
		deadlineMoved: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if req.Secure {
		s.Token = newToken()
	}
	if s.ContextToken = req.ContextToken; s.ContextToken && !req.Secure {
		return nil, nil, invalid("%s is for a sandbox with an access token: ask for 'secure', too", protocol.HeaderContextToken)
	}
	if n := req.Network; n != nil {
		s.Network = &protocol.Network{AllowPublicTraffic: n.AllowPublicTraffic, MaskRequestHost: n.MaskRequestHost}
		if n.AllowPublicTraffic != nil && !*n.AllowPublicTraffic {
			if !req.Secure {
				return nil, nil, invalid("You cannot create a sandbox without public access unless you enable secure envd access via 'secure' flag.")
			}
			s.TrafficToken = newToken()
		}
		if err := checkMask(n.MaskRequestHost); err != nil {
			return nil, nil, err
		}
		s.MaskRequestHost = n.MaskRequestHost
	}
	s.timeout = timeout
	return s, asked, nil
}

// lifetime is the time that a client asks for, in seconds, or the default.
func lifetime(seconds *int, byDefault time.Duration) (time.Duration, error) {
	switch {
	case seconds == nil:
		return byDefault, nil
	case *seconds <= 0:
		return 0, invalid("Timeout must be greater than 0")
	}
	return Seconds(*seconds)
}

// Seconds is a client's number of seconds as a time of at most MaxTimeout, or an
// error that wraps ErrInvalid.
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
			return invalid("envVars: %q is no name for a variable: it must not be empty and must not contain '=' or NUL", clip(k))
		case strings.Contains(v, "\x00"):
			return invalid("envVars: the value of %q contains NUL", clip(k))
		case len(k)+len(v) > maxVariable:
			return invalid("envVars: %q is too long: name and value may have %d bytes", clip(k), maxVariable)
		}
	}
	if size > maxEnv {
		return invalid("envVars has %d bytes: at most %d are possible", size, maxEnv)
	}
	return nil
}

// clip shortens a client's text for a message about it.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?)*$`)

// checkMask checks a host name, with or without a port, that stands for the one
// a client used; "${PORT}" in it is the port that is asked for.
func checkMask(mask string) error {
	if mask == "" {
		return nil
	}
	name := strings.ReplaceAll(mask, "${PORT}", "80")
	if host, port, err := net.SplitHostPort(name); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return invalid("network.maskRequestHost: %q has no port between 1 and 65535", clip(mask))
		}
		name = host
	}
	if len(mask) > maxHostName || !hostName.MatchString(name) && net.ParseIP(strings.Trim(name, "[]")) == nil {
		return invalid("network.maskRequestHost: %q is no host name", clip(mask))
	}
	return nil
}

// plain is a number without an exponent.
func plain(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// mergeLimits fills what was not asked for, and says what was.
func mergeLimits(req *protocol.Limits) (protocol.Limits, map[string]bool, error) {
	limits, asked := defaultLimits, map[string]bool{}
	if req == nil {
		return limits, asked, nil
	}
	var errs []error
	pick := func(name string, value, low, high float64, set func()) {
		switch {
		case value == 0:
		case value < low || value > high || value != value:
			errs = append(errs, invalid("%s must be between %s and %s", name, plain(low), plain(high)))
		default:
			asked[name] = true
			set()
		}
	}
	pick("memory", float64(req.MemoryMB), 16, 1<<20, func() { limits.MemoryMB = req.MemoryMB })
	pick("cpu", req.CPUs, 0.01, 1024, func() { limits.CPUs = req.CPUs })
	pick("disk", float64(req.DiskMB), 1, 1<<24, func() { limits.DiskMB = req.DiskMB })
	pick("pids", float64(req.PIDs), 8, 1<<16, func() { limits.PIDs = req.PIDs })
	return limits, asked, errors.Join(errs...)
}
