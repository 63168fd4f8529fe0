package template

import (
	"bytes"
	"os"
)

// Where the certificates are inside: Cubby's alone, and with those of the host.
const (
	authorityPath    = "/etc/cubby/authority.crt"
	certificatesPath = "/etc/cubby/certificates.crt"
)

// bundles are where distributions keep the certificates of all authorities in one file.
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// authority has programs inside trust one more certificate: those that read the
// distribution's file, as curl, git and Go's do, and by their variables those that do
// not, as Python's requests and Node. It returns the variables.
func (c *composer) authority(pem []byte) []string {
	if c.err != nil || len(pem) == 0 {
		return nil
	}
	c.mkdirAll("/etc/cubby")
	c.write(authorityPath, string(pem), 0o644)
	var all []byte
	for _, path := range bundles {
		if text, err := os.ReadFile(path); err == nil {
			all = append(bytes.TrimRight(text, "\n"), '\n')
			break
		}
	}
	c.write(certificatesPath, string(append(all, pem...)), 0o644)
	for _, path := range bundles {
		// What the host has as a file is one inside, where its folder was bound.
		if info, err := os.Lstat(c.dir + path); err == nil && info.Mode().IsRegular() {
			c.bind(c.dir+certificatesPath, path)
		}
	}
	// Node has a list of its own, where an authority of the host's owner is missing.
	var env []string
	for _, name := range []string{"NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"} {
		env = append(env, name+"="+certificatesPath)
	}
	return env
}
