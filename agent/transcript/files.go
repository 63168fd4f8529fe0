package transcript

import (
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// picture is one that the page shows.
type picture struct {
	Anchor, Name, Size string
	URL                template.URL // data:
}

// file is one that the page names, with its beginning if it is text.
type file struct {
	Anchor, Name, Size, Preview string
	Whole                       bool // Preview is all of it
}

// files keeps account of the page's pictures.
type files struct {
	left    int               // bytes of pictures
	n       int               // anchors so far
	anchors map[string]string // by name, of the latest file
}

// show sorts files into pictures and others. Only what browsers cannot but take
// for a bitmap is a picture: its first bytes decide, never its name. SVG is text
// here, since opened by itself it would run scripts.
func (f *files) show(all []codeexec.File) (pictures []picture, others []file) {
	for _, in := range all {
		f.n++
		anchor := fmt.Sprintf("file-%d", f.n)
		f.anchors[in.Name] = anchor
		name, size := shortLine(in.Name, 200), bytesText(max(in.SizeBytes, int64(len(in.Content))))
		if mime := pictureType(in); mime != "" && len(in.Content) <= maxPicture && len(in.Content) <= f.left {
			f.left -= len(in.Content)
			url := template.URL("data:" + mime + ";base64," + base64.StdEncoding.EncodeToString(in.Content))
			pictures = append(pictures, picture{anchor, name, size, url})
			continue
		}
		out := file{Anchor: anchor, Name: name, Size: size}
		if in.Truncated {
			out.Size += fmt.Sprintf(", of which %s came back", bytesText(int64(len(in.Content))))
		}
		out.Preview, out.Whole = preview(in.Content)
		out.Whole = out.Whole && !in.Truncated
		others = append(others, out)
	}
	return pictures, others
}

func pictureType(f codeexec.File) string {
	if f.Truncated {
		return ""
	}
	switch mime := http.DetectContentType(f.Content); mime {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return mime
	}
	return ""
}

// preview is the beginning of what is text.
func preview(content []byte) (text string, whole bool) {
	head := content[:min(len(content), maxPreview)]
	for n := 0; n < utf8.UTFMax && len(head) > 0 && len(head) < len(content) && !utf8.Valid(head); n++ {
		head = head[:len(head)-1]
	}
	if !utf8.Valid(head) || strings.IndexByte(string(head), 0) >= 0 {
		return "", false
	}
	text, whole = string(head), len(head) == len(content)
	if lines := strings.SplitAfter(text, "\n"); len(lines) > maxPreviewLines {
		text, whole = strings.Join(lines[:maxPreviewLines], ""), false
	}
	return clean(text), whole
}

func bytesText(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d bytes", n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}
