package endpoint

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/agent"
)

func TestNothingSecretIsTold(t *testing.T) {
	e := &Endpoint{Provider: "p", BaseURL: "http://user:hunter22@localhost:1/v1", URLVar: "THE_URL", Key: "sk-1", Secrets: []string{"Bearer tok-12345678"}}
	err := e.Error(t.Context(), &url.Error{Op: "Post", URL: e.BaseURL, Err: io.EOF})
	if s := err.Error(); strings.Contains(s, "hunter22") || !strings.Contains(s, "localhost:1") || !strings.Contains(s, "running at") {
		t.Error(s)
	}
	if s := e.clean("wrong: tok-12345678, Bearer tok-12345678, sk-1; Bearer is fine"); s != "wrong: [secret], [secret], [secret]; Bearer is fine" {
		t.Error(s)
	}
	for _, base := range []string{"ftp://user:hunter22@host", "user:hunter22@host/v1", "http://user:hunter22@ho st", "://user:hunter22@host"} {
		e.BaseURL = base
		if err := e.Check("m"); agent.KindOf(err) != agent.KindUnreachable || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%s: %v", base, err)
		}
	}
}

func TestKeyWithControlCharacters(t *testing.T) {
	for key, bad := range map[string]bool{"sk-1234": false, "": false, "sk-12\n34": true, "sk-1234\r": true, "sk\x00": true, "sk\x7f": true} {
		err := (&Endpoint{Provider: "p", BaseURL: "http://host", KeyVar: "THE_KEY", Key: key}).Check("m")
		var m *agent.ModelError
		if (err != nil) != bad || bad && (!errors.As(err, &m) || m.Kind != agent.KindUnauthorized ||
			!strings.Contains(m.Hint, "THE_KEY") || strings.Contains(err.Error(), key)) {
			t.Errorf("%q: %v", key, err)
		}
	}
}

// A cut picture becomes a note, and no request is refused for it.
func TestCutPicture(t *testing.T) {
	noise := image.NewPaletted(image.Rect(0, 0, 64, 64), color.Palette{color.Black, color.White, color.Gray{100}, color.Gray{200}})
	for i := range noise.Pix {
		noise.Pix[i] = uint8(rand.N(4))
	}
	var p, j, g, big bytes.Buffer
	for _, err := range []error{png.Encode(&p, noise), jpeg.Encode(&j, noise, nil), gif.Encode(&g, noise, nil),
		png.Encode(&big, image.NewPaletted(image.Rect(0, 0, 5000, 5000), color.Palette{color.Black, color.White}))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	webp := []byte("RIFF\x14\x00\x00\x00WEBPVP8L\x08\x00\x00\x00\x2f\x00\x00\x00\x00\x00\x00\x00")
	for mime, whole := range map[string][]byte{"image/png": p.Bytes(), "image/jpeg": j.Bytes(), "image/gif": g.Bytes(), "image/webp": webp, "image/png large": big.Bytes()} {
		if got, _, note := Picture(agent.Image{Data: whole}, true); note != "" || !strings.HasPrefix(mime, got) {
			t.Errorf("%s: %q %s", mime, got, note)
		}
		for _, n := range []int{len(whole) * 3 / 4, len(whole) * 9 / 10} {
			if _, _, note := Picture(agent.Image{Data: whole[:n]}, true); !strings.Contains(note, "damaged") {
				t.Errorf("%s, cut: %q", mime, note)
			}
		}
	}
}
