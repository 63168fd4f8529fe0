package modelserver

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// isJSON reports whether a request says that it is JSON.
func isJSON(h http.Header) bool {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && t == "application/json"
}

// unknownFields refuses fields at the top that an endpoint does not know.
func unknownFields(body []byte, known []string, format string) *apiError {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return invalid("The body must be a JSON object.")
	}
	var unknown []string
	for name := range fields {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return invalid(format, strings.Join(unknown, ", "))
}

// dataURL reads a picture from a data: URL; both endpoints would fetch others,
// this one does not.
func dataURL(url string) (Image, error) {
	rest, ok := strings.CutPrefix(url, "data:")
	mimeType, data, comma := strings.Cut(rest, ";base64,")
	if !ok || !comma {
		return Image{}, errors.New("Invalid 'image_url': expected a base64-encoded data URL with an image MIME type (e.g. 'data:image/png;base64,aW1nIGJ5dGVzIGhlcmU=').")
	}
	return picture(mimeType, data)
}

// picture decodes a picture and checks that it is what it says.
func picture(mimeType, data string) (Image, error) {
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return Image{}, fmt.Errorf("Invalid base64 in an image: %w", err)
	}
	if !slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, mimeType) {
		return Image{}, fmt.Errorf("You uploaded an unsupported image (%s). Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif', 'webp'].", mimeType)
	}
	if found := http.DetectContentType(raw); found != mimeType {
		return Image{}, fmt.Errorf("The image was specified using the %s media type, but it appears to be a %s image.", mimeType, found)
	}
	return Image{MIMEType: mimeType, Data: raw}, nil
}
