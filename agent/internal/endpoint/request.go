package endpoint

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"net/http"
	"strings"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/internal/clip"
	"github.com/cubby-sandbox/cubby/internal/rawjson"
)

// The stricter of both providers' bounds of a picture.
const (
	maxImageBytes  = 5 << 20 / 4 * 3 // 5 MiB in base64
	maxImagePixels = 8000            // a side
	maxDecoded     = 16 << 20        // pixels that are decoded to see whether all are there
)

// Picture returns an image's type, found in its bytes, and the bytes in base64.
// A picture that a provider would refuse, and the whole question with it, is
// instead a note; code in a sandbox can claim anything to be a picture.
func Picture(img agent.Image, taken bool) (mimeType, data, note string) {
	mimeType = http.DetectContentType(img.Data)
	var decode func(io.Reader) (image.Config, error)
	var whole func(io.Reader) (image.Image, error)
	var end []byte // what the last bytes hold
	why := ""
	switch mimeType {
	case "image/png":
		decode, whole, end = png.DecodeConfig, png.Decode, []byte("IEND")
	case "image/jpeg":
		decode, whole, end = jpeg.DecodeConfig, jpeg.Decode, []byte{0xff, 0xd9}
	case "image/gif":
		decode, whole, end = gif.DecodeConfig, gif.Decode, []byte{0x3b}
	case "image/webp": // RIFF, and the length of the rest
		if int64(binary.LittleEndian.Uint32(img.Data[4:]))+8 > int64(len(img.Data)) {
			why = "it is damaged"
		}
	default:
		why = "it is no PNG, JPEG, GIF or WebP picture"
	}
	switch {
	case !taken:
		why = "this model takes no pictures"
	case len(img.Data) > maxImageBytes:
		why = fmt.Sprintf("it is larger than %d KiB", maxImageBytes>>10)
	case decode != nil:
		if c, err := decode(bytes.NewReader(img.Data)); err != nil {
			why = "it is damaged"
		} else if c.Width > maxImagePixels || c.Height > maxImagePixels || c.Width == 0 || c.Height == 0 {
			why = fmt.Sprintf("it is %d by %d pixels", c.Width, c.Height)
		} else if c.Width*c.Height > maxDecoded {
			if !bytes.Contains(img.Data[max(len(img.Data)-64, 0):], end) {
				why = "it is damaged"
			}
		} else if _, err := whole(bytes.NewReader(img.Data)); err != nil && !unsupported(err) {
			why = "it is damaged"
		}
	}
	if why != "" {
		return "", "", fmt.Sprintf("[Image %q is not shown: %s]", clip.Head(img.Name, 100), why)
	}
	return mimeType, base64.StdEncoding.EncodeToString(img.Data), ""
}

// unsupported reports whether only Go cannot show a picture.
func unsupported(err error) bool {
	var p png.UnsupportedError
	var j jpeg.UnsupportedError
	return errors.As(err, &p) || errors.As(err, &j)
}

// Object returns arguments of a call as an object, which endpoints insist on when
// a conversation goes back to them, also when the model wrote something else.
func Object(arguments json.RawMessage) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal(arguments, &object) == nil && object != nil {
		return arguments
	}
	if len(bytes.TrimSpace(arguments)) == 0 {
		return json.RawMessage("{}")
	}
	b, err := json.Marshal(map[string]string{"invalid_arguments": string(arguments)})
	if err != nil { // a map of strings has none
		return json.RawMessage("{}")
	}
	return b
}

// Name makes a name, or an id, of a call one that endpoints take back.
func Name(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, s)
	if s == "" {
		return "unnamed"
	}
	return s[:min(len(s), 64)]
}

// CallID returns an id for a call that came without one.
func CallID() string { return "call_" + rand.Text() }

// Schema returns a schema of a tool as a map, {"type": "object"} at the least. Its
// numbers are of type json.Number: a bound of 64 bits stays what it is.
func Schema(raw json.RawMessage) (map[string]any, error) {
	schema := map[string]any{}
	if len(raw) > 0 {
		if err := rawjson.Decode(raw, &schema); err != nil {
			return nil, err
		}
	}
	if schema == nil { // null
		schema = map[string]any{}
	}
	if schema["type"] == nil {
		schema["type"] = "object"
	}
	return schema, nil
}
