package web

import (
	"bytes"
	"container/list"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	authorityYears = 30 // what is paused trusts its certificate for as long
	leafLife       = 60 * 24 * time.Hour
	leafRenew      = leafLife / 2
	clockSkew      = 24 * time.Hour // by which a sandbox's clock may be behind
	maxLeaves      = 512
)

// Authority makes the certificates with which the gateway answers TLS in the place
// of a host. Only sandboxes trust it. It is safe for concurrent use. What is
// printed or logged of it shows nothing of its key.
type Authority struct {
	key         *ecdsa.PrivateKey
	keyDER      []byte // the same, PKCS #8
	certificate *x509.Certificate

	mu     sync.Mutex
	leaves map[string]*list.Element // of *leaf; by name
	recent *list.List               // the one used last first
}

// leaf is what a host is answered with. The configuration is kept with it: its
// session tickets are good for the next connection.
type leaf struct {
	name   string
	config *tls.Config
	made   time.Time
}

// NewAuthority makes an authority with a new key.
func NewAuthority() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key of the certificate authority: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	return selfSigned(key, serial, time.Now().Add(-clockSkew))
}

// DeriveAuthority makes the authority of a secret seed: the same key, name and number for
// the same seed, so that who trusts one of them trusts all.
func DeriveAuthority(seed []byte) (*Authority, error) {
	for i := range 256 {
		scalar, err := hkdf.Key(sha256.New, seed, nil, fmt.Sprintf("P-256 key %d", i), 32)
		if err != nil {
			return nil, fmt.Errorf("key of the certificate authority: %w", err)
		}
		key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), scalar)
		if err != nil {
			continue // not below the order of the group: one seed in four billion
		}
		serial, err := hkdf.Key(sha256.New, seed, nil, "serial number", 16)
		if err != nil {
			return nil, fmt.Errorf("certificate of the certificate authority: %w", err)
		}
		serial[0] &= 0x7f
		return selfSigned(key, new(big.Int).SetBytes(serial), derivedSince)
	}
	return nil, errors.New("key of the certificate authority: the seed gives none")
}

// derivedSince is when derived authorities begin.
var derivedSince = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func selfSigned(key *ecdsa.PrivateKey, serial *big.Int, since time.Time) (*Authority, error) {
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{"Cubby"}, CommonName: "Cubby gateway"},
		NotBefore:             since,
		NotAfter:              since.AddDate(authorityYears, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("certificate of the certificate authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate of the certificate authority: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("key of the certificate authority: %w", err)
	}
	return newAuthority(key, keyDER, certificate), nil
}

func newAuthority(key *ecdsa.PrivateKey, keyDER []byte, certificate *x509.Certificate) *Authority {
	return &Authority{key: key, keyDER: keyDER, certificate: certificate, leaves: map[string]*list.Element{}, recent: list.New()}
}

const (
	pemKey         = "PRIVATE KEY"
	pemCertificate = "CERTIFICATE"
)

// ParseAuthority returns the authority of what PEM gave: one private key and one
// certificate that belongs to it. Errors show nothing of the text.
func ParseAuthority(text []byte) (*Authority, error) {
	var keyDER, certificateDER []byte
	for {
		var block *pem.Block
		block, text = pem.Decode(text)
		if block == nil {
			break
		}
		switch {
		case block.Type == pemKey && keyDER == nil:
			keyDER = block.Bytes
		case block.Type == pemCertificate && certificateDER == nil:
			certificateDER = block.Bytes
		default:
			return nil, errors.New("certificate authority: the file has more than one private key and one certificate")
		}
	}
	if keyDER == nil || certificateDER == nil || len(bytes.TrimSpace(text)) != 0 {
		return nil, errors.New("certificate authority: the file does not consist of a private key and a certificate in PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(keyDER)
	if err != nil {
		return nil, errors.New("certificate authority: the private key cannot be read")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("certificate authority: the private key is not one of ECDSA P-256")
	}
	certificate, err := x509.ParseCertificate(certificateDER)
	if err != nil {
		return nil, errors.New("certificate authority: the certificate cannot be read")
	}
	if !certificate.IsCA || !key.PublicKey.Equal(certificate.PublicKey) || certificate.CheckSignatureFrom(certificate) != nil {
		return nil, errors.New("certificate authority: the certificate is not that of the private key's authority")
	}
	if time.Now().After(certificate.NotAfter) {
		return nil, errors.New("certificate authority: the certificate has expired; remove the file, and a new one is made")
	}
	return newAuthority(key, keyDER, certificate), nil
}

// PEM is the private key and the certificate, for ParseAuthority. It is secret.
func (a *Authority) PEM() []byte {
	return append(pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: a.keyDER}), a.Certificate()...)
}

// Certificate is the certificate in PEM: what sandboxes trust.
func (a *Authority) Certificate() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: a.certificate.Raw})
}

// Format shows nothing, for every verb.
func (a *Authority) Format(f fmt.State, _ rune) { f.Write([]byte("web.Authority")) }

// MarshalText shows nothing, for logs in JSON.
func (a *Authority) MarshalText() ([]byte, error) { return []byte("web.Authority"), nil }

// ServerConfig is what the gateway speaks TLS with in the place of name, a host's
// name or address: HTTP/1.1 only, TLS 1.2 or newer. A client that asks for another
// name is refused. The certificate is made at the first handshake.
func (a *Authority) ServerConfig(name string) *tls.Config {
	name = strings.ToLower(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	if e, ok := a.leaves[name]; ok {
		a.recent.MoveToFront(e)
		if l := e.Value.(*leaf); time.Since(l.made) < leafRenew {
			return l.config
		}
		a.recent.Remove(e)
		delete(a.leaves, name)
	}
	l := &leaf{name: name, made: time.Now()}
	certificate := sync.OnceValues(func() (*tls.Certificate, error) { return a.issue(name) })
	l.config = &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if hello.ServerName != "" && !strings.EqualFold(hello.ServerName, name) {
				return nil, errors.New("the client asks for another name than the connection's")
			}
			return certificate()
		},
	}
	a.leaves[name] = a.recent.PushFront(l)
	if a.recent.Len() > maxLeaves {
		oldest := a.recent.Back()
		a.recent.Remove(oldest)
		delete(a.leaves, oldest.Value.(*leaf).name)
	}
	return l.config
}

// issue makes a certificate for name.
func (a *Authority) issue(name string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key for %q: %w", name, err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial,
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(leafLife),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if len(name) <= 64 { // the most that a common name may have
		template.Subject.CommonName = name
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("certificate for %q: %w", name, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("serial number of a certificate: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}

// ClientConfig is what the gateway speaks TLS with to name, a host's name or
// address: verified by roots and nothing else, HTTP/1.1 only. Without roots every
// host is refused.
func ClientConfig(name string, roots *x509.CertPool) *tls.Config {
	if roots == nil {
		roots = x509.NewCertPool() // nil would stand for files that the process does not have
	}
	return &tls.Config{
		ServerName: name,
		RootCAs:    roots,
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
	}
}
