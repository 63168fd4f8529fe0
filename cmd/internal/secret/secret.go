// Package secret makes what must not be guessed out of one key: the tokens of
// sandboxes, which are derived and therefore never stored, and the sealed form of
// what is stored and nobody else may read.
package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// Size is the length of a key, in bytes.
const Size = 32

// Key is the secret that everything is derived from. It is safe for concurrent
// use. It has no text form: a key that is printed or logged shows nothing.
type Key struct{ root []byte }

// New returns a random key.
func New() *Key {
	root := make([]byte, Size)
	rand.Read(root)
	return &Key{root}
}

// Parse returns the key of Size bytes that Bytes gave.
func Parse(root []byte) (*Key, error) {
	if len(root) != Size {
		return nil, fmt.Errorf("a key has %d bytes, not %d", Size, len(root))
	}
	return &Key{append([]byte(nil), root...)}, nil
}

// Bytes returns the key itself, to be kept where nobody else can read it.
func (k *Key) Bytes() []byte { return append([]byte(nil), k.root...) }

func (k *Key) String() string   { return "secret.Key" }
func (k *Key) GoString() string { return k.String() }

// Fingerprint tells keys apart and says nothing else about them.
func (k *Key) Fingerprint() []byte { return k.derive("fingerprint", Size) }

// Seed returns Size bytes for a purpose, which only who has the key can make and which
// say nothing about it.
func (k *Key) Seed(purpose string) []byte { return k.derive("seed "+purpose, Size) }

// derive makes n bytes that only who has the key can make.
func (k *Key) derive(info string, n int) []byte {
	b, err := hkdf.Key(sha256.New, k.root, nil, "cubby "+info, n)
	if err != nil {
		panic("secret: " + err.Error()) // n is never too much
	}
	return b
}

// Purpose says what a token is for. One token is never good for another purpose.
type Purpose string

// What tokens are for.
const (
	Access  Purpose = "access token"  // to a sandbox's envd
	Traffic Purpose = "traffic token" // to the ports of its programs
	Host    Purpose = "host token"    // the host's own, to its guest
)

// A token is 20 derived bytes and its generation, both in hex.
const (
	derivedSize = 20
	tokenSize   = derivedSize + 4
)

// Token returns a sandbox's token, the same each time: 48 hexadecimal digits. A
// later generation makes the tokens of the one before worthless.
func (k *Key) Token(purpose Purpose, id string, generation uint32) string {
	// Each part ends where no other can continue it: ids have no zero byte.
	info := fmt.Sprintf("%s\x00%s\x00%d", purpose, id, generation)
	b := k.derive(info, derivedSize)
	return hex.EncodeToString(binary.BigEndian.AppendUint32(b, generation))
}

// Check reports whether a token is a sandbox's, and of which generation. It needs
// no record of the sandbox, and how long it takes says nothing of whether there
// is one.
func (k *Key) Check(purpose Purpose, id, token string) (generation uint32, ok bool) {
	b, err := hex.DecodeString(token)
	if err != nil || len(b) != tokenSize {
		return 0, false
	}
	generation = binary.BigEndian.Uint32(b[derivedSize:])
	want := k.Token(purpose, id, generation)
	return generation, subtle.ConstantTimeCompare([]byte(want), []byte(token)) == 1
}

// ErrSealed means that sealed bytes are not what this key sealed for this id.
var ErrSealed = errors.New("it was sealed with another key or for another sandbox, or is damaged")

// Seal encrypts what is stored of the sandbox with an id: AES-256-GCM with a key
// of that sandbox's and a random nonce, so that no two sandboxes share either.
func (k *Key) Seal(id string, plain []byte) []byte {
	return k.aead(id).Seal(nil, nil, plain, []byte(id))
}

// Open decrypts what Seal made for the same id. The error is ErrSealed.
func (k *Key) Open(id string, sealed []byte) ([]byte, error) {
	plain, err := k.aead(id).Open(nil, nil, sealed, []byte(id))
	if err != nil {
		return nil, ErrSealed
	}
	return plain, nil
}

func (k *Key) aead(id string) cipher.AEAD {
	block, err := aes.NewCipher(k.derive("seal\x00"+id, 32))
	if err != nil {
		panic("secret: " + err.Error()) // 32 bytes are a key of AES
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic("secret: " + err.Error()) // AES has the block that GCM wants
	}
	return aead
}
