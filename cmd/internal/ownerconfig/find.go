package ownerconfig

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

// Server is a server that a command talks to, and what said so.
type Server struct {
	Config
	// URLFrom and KeyFrom name the sources of the address and of the key, for
	// messages: "--server", a variable, or the path of the file.
	URLFrom, KeyFrom string
}

// Names of the sources that are no file.
const (
	URLVariable = "E2B_API_URL"
	KeyVariable = "E2B_API_KEY"
	fromFlag    = "--server"
	varBoxes    = "E2B_SANDBOX_URL"
	varDomain   = "E2B_DOMAIN"
)

// Options are what a command line says of its server.
type Options struct {
	URL       string // of the control plane; "" leaves it to the environment and the file
	PlainHTTP bool   // send the key unencrypted to other machines, too
}

// Find returns the server that a command is for. Its address is that of opts,
// else of the environment (E2B_API_URL with E2B_SANDBOX_URL, or E2B_DOMAIN), else
// of the file. Its key is that of the environment (E2B_API_KEY), else of the file,
// whose key goes to the file's own server only. getenv is os.Getenv.
//
// SandboxURL is empty where the environment decides about it: [cubby.NewClient]
// reads it then. The errors are of type [fault.Error] and say what to do.
//
// A key travels with each request, so that plain HTTP to another machine is
// refused unless opts allow it.
func Find(opts Options, getenv func(string) string) (Server, error) {
	file, path, fileErr := fromFile(getenv)
	var s Server
	switch {
	case opts.URL != "":
		s.APIURL, s.URLFrom = opts.URL, fromFlag
	case getenv(URLVariable) != "":
		s.APIURL, s.URLFrom = getenv(URLVariable), URLVariable
	case getenv(varDomain) != "":
		s.APIURL, s.URLFrom = "https://api."+getenv(varDomain), varDomain
	case fileErr != nil || file.APIURL == "":
		return Server{}, noServer(path, fileErr)
	default:
		s.APIURL, s.URLFrom = file.APIURL, path
	}
	if err := CheckURL(s.APIURL); err != nil {
		return Server{}, wrong(fmt.Errorf("%s: %w", s.URLFrom, err), "write it like http://127.0.0.1:8080")
	}
	ofFile := fileErr == nil && same(s.APIURL, file.APIURL)
	ofEnv := s.URLFrom == varDomain || same(s.APIURL, getenv(URLVariable))
	if ofFile {
		// Also where "localhost" stands for 127.0.0.1: the key goes where it
		// belongs, and not where the name may lead.
		s.APIURL = file.APIURL
	}
	boxes := getenv(varBoxes)
	if !ofEnv || boxes == "" && getenv(varDomain) == "" { // what they say is about another server, or nothing
		s.SandboxURL = s.APIURL // Cubby serves both
		if ofFile {
			s.SandboxURL = cmp.Or(file.SandboxURL, file.APIURL)
		}
		boxes = s.SandboxURL
	}
	switch key := getenv(KeyVariable); {
	case key != "":
		s.APIKey, s.KeyFrom = key, KeyVariable
		if !isKey(key) {
			return Server{}, wrong(errors.New(KeyVariable+" has characters that no key has"), "set it to the key alone, on one line")
		}
	case ofFile:
		s.APIKey, s.KeyFrom = file.APIKey, path
	case path != "" && fileErr != nil && !errors.Is(fileErr, fs.ErrNotExist):
		return Server{}, fileErr // it may hold the key
	}
	if s.APIKey == "" {
		return Server{}, noKey(s, file, path)
	}
	if !opts.PlainHTTP {
		if err := cmp.Or(guarded(s.APIURL), guarded(boxes)); err != nil {
			return Server{}, err
		}
	}
	return s, nil
}

// String names the server and the source of its address, for messages. It holds
// no key and no password.
func (s Server) String() string { return redacted(s.APIURL) + " (from " + s.URLFrom + ")" }

// fromFile reads the file; its path is empty where there can be none.
func fromFile(getenv func(string) string) (c Config, path string, err error) {
	if path, err = Path(getenv); err != nil {
		return Config{}, "", err
	}
	c, err = Load(path)
	return c, path, err
}

// noServer says that nothing names a server; err is why the file does not.
func noServer(path string, err error) error {
	why := errors.New(URLVariable + " is not set, and there is no " + path)
	switch {
	case err == nil:
		why = fmt.Errorf("%s is not set, and %s names no server", URLVariable, path)
	case path == "":
		why = errors.New(URLVariable + " is not set, and neither HOME nor XDG_CONFIG_HOME says where the configuration is")
	case !errors.Is(err, fs.ErrNotExist):
		return err // the file cannot be used, and says why
	}
	return &fault.Error{
		Op: "find a server", Code: fault.Unavailable, Err: why,
		Hint: "the first start of `cubby serve` writes that file; for another server set " + URLVariable + " and " + KeyVariable +
			", which `cubby keys create` makes on the server's machine",
	}
}

func noKey(s Server, file Config, path string) error {
	e := &fault.Error{
		Op: "find an API key", Code: fault.Unauthenticated, Err: fmt.Errorf("there is none for %v", s),
		Hint: "set " + KeyVariable + "; on the server's machine `cubby keys create` makes a key",
	}
	if file.APIKey != "" && s.URLFrom != path {
		e.Err = fmt.Errorf("%w: %s is not set, and %s keeps a key for %s only", e.Err, KeyVariable, path, redacted(file.APIURL))
	}
	return e
}

// guarded refuses an address to which a key would travel for all to read.
func guarded(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" || Local(address) {
		return nil
	}
	return wrong(fmt.Errorf("%s is on another machine, and plain HTTP shows keys and code to the network between", u.Redacted()),
		fmt.Sprintf("use https, or a tunnel (ssh -L 8080:127.0.0.1:%s %s, then http://127.0.0.1:8080); where the network itself is private, --plain-http",
			cmp.Or(u.Port(), "80"), u.Hostname()))
}

// Local reports whether a URL is one of plain HTTP that leads to this machine, as
// those of `cubby serve` do.
func Local(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "http" && isHere(u.Hostname())
}

// isHere reports whether what is sent to host stays on this machine. A name can
// lead anywhere, but for localhost.
func isHere(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	if ip = ip.Unmap(); ip.IsLoopback() {
		return true
	}
	own, _ := net.InterfaceAddrs() // without them it is another machine
	return slices.ContainsFunc(own, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip.AsSlice())
	})
}

// same reports whether two URLs are those of one server.
func same(a, b string) bool {
	x, ok := origin(a)
	y, ok2 := origin(b)
	return ok && ok2 && x == y
}

// origin is a URL in the one form that all ways to write it have in common.
func origin(address string) (string, bool) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "", false
	}
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(host, port) + strings.TrimRight(u.Path, "/"), true
}

// redacted is a URL without its password.
func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "a malformed URL"
	}
	return u.Redacted()
}

func wrong(err error, hint string) error {
	return &fault.Error{Op: "find a server", Code: fault.InvalidArgument, Err: err, Hint: hint}
}
