//go:build linux

package images

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
)

// The manifest of an image is one file:
//
//	magic     8 bytes
//	version   4 bytes, big endian
//	length    4 bytes, big endian: of body
//	salt     32 bytes, random: the image's keys are derived with it
//	mac      32 bytes: HMAC-SHA-256 of all before it and of body
//	body     JSON
//	tags     16 bytes for each chunk of each file, in the order of body
//
// body has the SHA-256 of tags, so that it can be read and authenticated alone.
const (
	magic       = "cubbyimg"
	formVersion = 1
	saltSize    = 32
	macSize     = sha256.Size
	macAt       = len(magic) + 4 + 4 + saltSize
	headerSize  = macAt + macSize

	tagSize   = 16
	chunkSize = 1 << 20

	maxBody  = 2 << 20 // bytes of JSON
	maxAbout = 1 << 20 // of which the caller's
	maxFiles = 256
	maxDepth = 4       // folders above a file
	maxSize  = 1 << 44 // bytes of all files: 16 TiB, 256 MiB of tags
)

// manifest says what an image consists of.
type manifest struct {
	ID      string          `json:"id"`
	Created time.Time       `json:"created"`
	Folder  string          `json:"folder"`           // where its files are, beside the manifest
	Cipher  []byte          `json:"cipher,omitempty"` // fingerprint of the operator's key that it is encrypted with
	Files   []file          `json:"files"`            // by name
	Tags    []byte          `json:"tags"`             // SHA-256
	About   json.RawMessage `json:"about"`

	salt []byte
}

// file is a file of an image.
type file struct {
	Name string `json:"name"` // with slashes, below the folder
	Size int64  `json:"size"` // bytes, encrypted or not
}

func (f file) chunks() int64 { return (f.Size + chunkSize - 1) / chunkSize }

// chunks is the number of chunks of all files.
func (m *manifest) chunks() (n int64) {
	for _, f := range m.Files {
		n += f.chunks()
	}
	return n
}

// apparent is the size of all files, in bytes.
func (m *manifest) apparent() (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// keys derives what manifests and contents are sealed with.
type keys struct {
	own    []byte // of the data folder's key
	cipher []byte // of the operator's key; nil: there is none
	name   []byte // the operator's key's fingerprint
}

func newKeys(own, cipher *secret.Key) keys {
	k := keys{own: own.Seed("images")}
	if cipher != nil {
		k.cipher, k.name = cipher.Seed("images"), cipher.Fingerprint()
	}
	return k
}

func derive(root, salt []byte, purpose string) []byte {
	key, err := hkdf.Key(sha256.New, root, salt, "cubby image "+purpose, 32)
	if err != nil {
		panic("images: " + err.Error()) // 32 bytes are never too much
	}
	return key
}

// contents is the key of an image's chunks.
func (k keys) contents(m *manifest) ([]byte, error) {
	switch {
	case len(m.Cipher) == 0:
		return derive(k.own, m.salt, "tags"), nil
	case k.cipher == nil:
		return nil, &KeyError{m.ID, "it is encrypted, and no key of the operator's for images is set: set the one that it was made with"}
	case !bytes.Equal(k.name, m.Cipher):
		return nil, &KeyError{m.ID, "it is encrypted with another key for images than the one that is set: set the one that it was made with"}
	}
	return derive(k.cipher, m.salt, "contents"), nil
}

func newSalt() []byte {
	salt := make([]byte, saltSize)
	rand.Read(salt)
	return salt
}

func (k keys) mac(header, body []byte) []byte {
	h := hmac.New(sha256.New, derive(k.own, header[macAt-saltSize:macAt], "manifest"))
	h.Write(header[:macAt])
	h.Write(body)
	return h.Sum(nil)
}

// seal returns the bytes of a manifest, to be followed by the tags.
func (k keys) seal(m *manifest) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(body) > maxBody {
		return nil, fmt.Errorf("a manifest has %d bytes, at most %d", len(body), maxBody)
	}
	b := make([]byte, 0, headerSize+len(body))
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint32(b, formVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	b = append(b, m.salt...)
	b = append(b, k.mac(b, body)...)
	return append(b, body...), nil
}

// open reads and authenticates a manifest up to its tags. Of what is not authentic it
// parses the header alone. Errors are CorruptError, VersionError, and r's own.
func (k keys) open(id string, r io.Reader) (*manifest, error) {
	corrupt := func(format string, args ...any) (*manifest, error) {
		return nil, &CorruptError{id, fmt.Sprintf(format, args...)}
	}
	header := make([]byte, headerSize)
	switch _, err := io.ReadFull(r, header); {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return corrupt("its manifest is cut off")
	case err != nil:
		return nil, err
	case string(header[:len(magic)]) != magic:
		return corrupt("its manifest is none")
	}
	if version := binary.BigEndian.Uint32(header[len(magic):]); version != formVersion {
		return nil, &VersionError{id, version}
	}
	n := binary.BigEndian.Uint32(header[len(magic)+4:])
	if n > maxBody {
		return corrupt("its manifest claims to have %d bytes", n)
	}
	body := make([]byte, n)
	switch _, err := io.ReadFull(r, body); {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return corrupt("its manifest is cut off")
	case err != nil:
		return nil, err
	}
	if !hmac.Equal(header[macAt:], k.mac(header, body)) {
		return corrupt("its manifest was not sealed with this data folder's key, or was changed")
	}
	m := &manifest{salt: header[macAt-saltSize : macAt]}
	if err := json.Unmarshal(body, m); err != nil {
		return corrupt("its manifest cannot be read: %v", err)
	}
	if err := m.check(); err != nil {
		return corrupt("its manifest: %v", err)
	}
	if m.ID != id {
		return corrupt("it is the image of %s under this one's name", m.ID)
	}
	return m, nil
}

// check is whether a manifest can be one of ours. It is authentic when it is checked, but
// what is wrong in it must not lead out of its folder or take all memory.
func (m *manifest) check() error {
	switch {
	case !validID(m.ID) || !folderPattern.MatchString(m.Folder) || !strings.HasPrefix(m.Folder, m.ID+folderMark):
		return fmt.Errorf("folder %q of %q", m.Folder, m.ID)
	case len(m.Files) > maxFiles:
		return fmt.Errorf("%d files, at most %d", len(m.Files), maxFiles)
	case len(m.Tags) != sha256.Size:
		return fmt.Errorf("a hash of %d bytes", len(m.Tags))
	case len(m.About) > maxAbout:
		return fmt.Errorf("%d bytes about it, at most %d", len(m.About), maxAbout)
	}
	left := int64(maxSize)
	for i, f := range m.Files {
		switch {
		case !fs.ValidPath(f.Name) || f.Name == "." || strings.Count(f.Name, "/") > maxDepth || len(f.Name) > 512:
			return fmt.Errorf("name %q", f.Name)
		case i > 0 && m.Files[i-1].Name >= f.Name:
			return fmt.Errorf("%q does not come after %q", f.Name, m.Files[i-1].Name)
		case f.Size < 0 || f.Size > left:
			return fmt.Errorf("%s has %d bytes", f.Name, f.Size)
		}
		left -= f.Size
	}
	return nil
}
