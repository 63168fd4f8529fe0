package endpoint

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"net/http"
	"strings"

	"github.com/cubby-sandbox/cubby/agent"
)

// The stricter of both providers' bounds of a picture.
const (
	maxImageBytes  = 5 << 20 / 4 * 3 // 5 MiB in base64
	maxImagePixels = 8000            // a side
)

// Picture returns an image's type, found in its bytes, and the bytes in base64.
// A picture that a provider would refuse, and the whole question with it, is
// instead a note; code in a sandbox can claim anything to be a picture.
func Picture(img agent.Image, taken bool) (mimeType, data, note string) {
	mimeType = http.DetectContentType(img.Data)
	var decode func(io.Reader) (image.Config, error)
	why := ""
	switch mimeType {
	case "image/png":
		decode = png.DecodeConfig
	case "image/jpeg":
		decode = jpeg.DecodeConfig
	case "image/gif":
		decode = gif.DecodeConfig
	case "image/webp":
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
		}
	}
	if why != "" {
		name := img.Name
		if len(name) > 100 {
			name = strings.ToValidUTF8(name[:100], "")
		}
		return "", "", fmt.Sprintf("[Image %q is not shown: %s]", name, why)
	}
	return mimeType, base64.StdEncoding.EncodeToString(img.Data), ""
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

// Schema returns a schema of a tool as a map, {"type": "object"} at the least.
func Schema(raw json.RawMessage) (map[string]any, error) {
	schema := map[string]any{}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &schema); err != nil {
			return nil, err
		}
	}
	if schema == nil || schema["type"] == nil {
		schema = map[string]any{"type": "object"}
	}
	return schema, nil
}
