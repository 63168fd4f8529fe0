package egress

import (
	"errors"
	"net/url"
)

// ParseProxy reads the URL of a proxy, socks5://[user:password@]host:port or http://…
// Its errors do not repeat it, as it has a password.
func ParseProxy(text string) (*Proxy, error) {
	const form = "write socks5://[user:password@]host:port or http://[user:password@]host:port"
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("it is no URL: " + form + ", and in user and password %40 for @, %3A for :, %2F for /")
	case u.Scheme == "https":
		return nil, errors.New("proxies that are spoken to over TLS cannot be used: " + form)
	case u.Scheme != "socks5" && u.Scheme != "http" || u.Opaque != "" || u.Port() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("it is no proxy's URL: " + form)
	}
	p := &Proxy{HTTP: u.Scheme == "http", Address: u.Host, Username: u.User.Username()}
	p.Password, _ = u.User.Password()
	if _, err := Compile(Rules{}, Operator{Proxy: p}); err != nil {
		if fault, ok := errors.AsType[*EntryError](err); ok {
			err = fault.Err
		}
		return nil, err
	}
	return p, nil
}
