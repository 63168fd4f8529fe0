package workdir

import (
	"net/http"
	"path"
	"strings"
)

// sniffLen is how much of a file tells its type.
const sniffLen = 512

// byExtension is trusted where the content says no more than "text", "bytes" or
// "a zip".
var byExtension = map[string]string{
	".csv": "text/csv", ".tsv": "text/tab-separated-values", ".json": "application/json",
	".jsonl": "application/x-ndjson", ".ndjson": "application/x-ndjson", ".md": "text/markdown",
	".html": "text/html; charset=utf-8", ".htm": "text/html; charset=utf-8", ".css": "text/css", ".xml": "text/xml; charset=utf-8",
	".svg": "image/svg+xml", ".yaml": "application/yaml", ".yml": "application/yaml", ".toml": "application/toml",
	".py": "text/x-python", ".js": "text/javascript", ".mjs": "text/javascript", ".ts": "text/x-typescript",
	".sh": "text/x-shellscript", ".sql": "application/sql", ".tex": "text/x-latex", ".ipynb": "application/x-ipynb+json",
	".tar": "application/x-tar", ".parquet": "application/vnd.apache.parquet",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}

// MIMEType says what a file is, by its content first and then by its name.
func MIMEType(name string, content []byte) string {
	if len(content) > sniffLen {
		content = content[:sniffLen]
	}
	sniffed := http.DetectContentType(content)
	known, ok := byExtension[strings.ToLower(path.Ext(name))]
	if !ok {
		return sniffed
	}
	text := strings.HasPrefix(sniffed, "text/plain") || strings.HasPrefix(sniffed, "text/xml") || strings.HasPrefix(sniffed, "text/html")
	switch {
	case strings.HasPrefix(known, "text/html"), strings.HasPrefix(sniffed, "text/html") && known != "image/svg+xml":
		if text && strings.HasPrefix(known, "text/html") {
			return known
		}
		return sniffed
	case text, sniffed == "application/octet-stream" && !IsTextMIME(known), sniffed == "application/zip" && strings.Contains(known, "openxml"):
		return known
	}
	return sniffed
}

// IsTextMIME reports whether files of a type are text that a model can read.
func IsTextMIME(mime string) bool {
	mime, _, _ = strings.Cut(mime, ";")
	mime = strings.ToLower(strings.TrimSpace(mime))
	switch mime {
	case "application/json", "application/x-ndjson", "application/yaml", "application/toml", "application/sql", "application/xml",
		"application/javascript", "application/x-latex":
		return true
	}
	return strings.HasPrefix(mime, "text/") || strings.HasSuffix(mime, "+json") || strings.HasSuffix(mime, "+xml") || strings.HasSuffix(mime, "+yaml")
}
