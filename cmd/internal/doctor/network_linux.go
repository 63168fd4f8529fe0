package doctor

import (
	"net/netip"
	"strings"
)

// bundles are where distributions keep the certificates of authorities.
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
}

// network tells what sandboxes that are opened have of this machine's network.
func (h host) network() Check {
	c := Check{Name: "network", Status: OK}
	var servers []string
	for line := range strings.Lines(h.read("/etc/resolv.conf")) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(fields[1]); err == nil {
			servers = append(servers, a.String())
		}
	}
	if len(servers) == 0 {
		c.Status = Warn
		c.Detail = "/etc/resolv.conf has no name server: sandboxes that are opened reach addresses, and no names"
		c.Remedy = "write a line `nameserver ADDRESS` into /etc/resolv.conf"
		return c
	}
	c.Detail = "of sandboxes that are opened: names are asked of " + strings.Join(servers, ", ")
	for _, path := range bundles {
		if h.read(path) != "" {
			return c
		}
	}
	c.Status = Warn
	c.Detail += "; there are no certificates by which servers could be verified, so --secret-header reaches none"
	c.Remedy = "install the package ca-certificates"
	return c
}
