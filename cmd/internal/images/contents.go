//go:build linux

package images

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// chunk is a part of a file of an image. All but the last of a file have chunkSize bytes.
type chunk struct {
	file   int
	index  int64 // in the file
	n      int   // bytes
	number int64 // in the image: where its tag is
}

func (c chunk) at() int64 { return c.index * chunkSize }

// nonce is one that no other chunk of the image has, whose key no other image has.
func (c chunk) nonce() []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 12), uint32(c.file))
	return binary.BigEndian.AppendUint64(b, uint64(c.index))
}

// eachChunk calls f for every chunk of the files, on all processors at once, with a buffer
// of that worker's that has room for a chunk and its tag.
func eachChunk(ctx context.Context, files []file, f func(c chunk, buf []byte) error) error {
	first := make([]int64, len(files)+1) // the numbers of the files' first chunks
	for i, f := range files {
		first[i+1] = first[i] + f.chunks()
	}
	total := first[len(files)]
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range min(int64(runtime.GOMAXPROCS(0)), total) {
		group.Go(func() error {
			buf := make([]byte, 0, chunkSize+tagSize)
			i := 0
			for ctx.Err() == nil {
				number := next.Add(1) - 1
				if number >= total {
					return nil
				}
				for number >= first[i+1] {
					i++
				}
				c := chunk{file: i, index: number - first[i], number: number}
				c.n = int(min(chunkSize, files[i].Size-c.at()))
				if err := f(c, buf[:c.n]); err != nil {
					return err
				}
			}
			return context.Cause(ctx)
		})
	}
	return group.Wait()
}

func newAEAD(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic("images: " + err.Error()) // 32 bytes are a key of AES
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic("images: " + err.Error()) // AES has the block that GCM wants
	}
	return aead
}

// tagFiles computes the tags of files that stay as they are.
func tagFiles(ctx context.Context, key []byte, files []file, opened []*os.File) (tags []byte, err error) {
	aead := newAEAD(key)
	tags = make([]byte, (&manifest{Files: files}).chunks()*tagSize)
	err = eachChunk(ctx, files, func(c chunk, buf []byte) error {
		if err := readChunk(opened[c.file], c, buf); err != nil {
			return err
		}
		aead.Seal(tags[c.number*tagSize:][:0], c.nonce(), nil, buf)
		return nil
	})
	return tags, err
}

func changed(f file, c chunk) error {
	return differs("bytes %d to %d of file %s are not those that were written", c.at(), c.at()+int64(c.n)-1, f.Name)
}

// verify checks files that are not encrypted against their tags.
func verify(ctx context.Context, key []byte, files []file, opened []*os.File, tags []byte) error {
	aead := newAEAD(key)
	return eachChunk(ctx, files, func(c chunk, buf []byte) error {
		if err := readChunk(opened[c.file], c, buf); err != nil {
			return err
		}
		if _, err := aead.Open(nil, c.nonce(), tags[c.number*tagSize:][:tagSize], buf); err != nil {
			return changed(files[c.file], c)
		}
		return nil
	})
}

// encrypt writes the encrypted form of files, which has the same size, and returns its
// tags.
func encrypt(ctx context.Context, key []byte, files []file, from, to []*os.File) (tags []byte, err error) {
	aead := newAEAD(key)
	tags = make([]byte, (&manifest{Files: files}).chunks()*tagSize)
	err = eachChunk(ctx, files, func(c chunk, buf []byte) error {
		if err := readChunk(from[c.file], c, buf); err != nil {
			return err
		}
		sealed := aead.Seal(buf[:0], c.nonce(), buf, nil)
		copy(tags[c.number*tagSize:], sealed[c.n:])
		_, err := to[c.file].WriteAt(sealed[:c.n], c.at())
		return err
	})
	return tags, err
}

// decrypt is the reverse of encrypt.
func decrypt(ctx context.Context, key []byte, files []file, from, to []*os.File, tags []byte) error {
	aead := newAEAD(key)
	return eachChunk(ctx, files, func(c chunk, buf []byte) error {
		if err := readChunk(from[c.file], c, buf); err != nil {
			return err
		}
		plain, err := aead.Open(buf[:0], c.nonce(), append(buf, tags[c.number*tagSize:][:tagSize]...), nil)
		if err != nil {
			return changed(files[c.file], c)
		}
		_, err = to[c.file].WriteAt(plain, c.at())
		return err
	})
}

func readChunk(f *os.File, c chunk, buf []byte) error {
	_, err := f.ReadAt(buf, c.at())
	if errors.Is(err, io.EOF) {
		return differs("file %s became shorter", filepath.Base(f.Name()))
	}
	return err
}

// checkTags is whether tags are those of the manifest.
func checkTags(m *manifest, tags []byte) bool {
	sum := sha256.Sum256(tags)
	return bytes.Equal(sum[:], m.Tags)
}

// readAhead tells the kernel that files will be read as a whole.
func readAhead(files []*os.File) {
	for _, f := range files {
		_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_SEQUENTIAL) // faster if it helps
	}
}
