package cubby

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/url"
	"strconv"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// DownloadURL returns a URL that reads one file with GET, for who has no key: it
// carries a signature for this file alone. It is good for validity, rounded up to
// whole seconds; 0 means as long as the sandbox lives. Nothing is sent, so the
// file need not be there yet. The host is the server's as this client knows it;
// nobody else reaches a private Cubby.
func (f Files) DownloadURL(name string, validity time.Duration) (string, error) {
	return f.signedURL("make download URL", name, "read", validity)
}

// UploadURL is like [Files.DownloadURL] for writing the file with POST: as it is
// with the type application/octet-stream, or as the part named "file" of a form.
func (f Files) UploadURL(name string, validity time.Duration) (string, error) {
	return f.signedURL("make upload URL", name, "write", validity)
}

func (f Files) signedURL(op, name, operation string, validity time.Duration) (string, error) {
	switch {
	case validity < 0:
		return "", fail(op, CodeInvalidArgument, errors.New("the validity is negative"))
	case f.s.token == "":
		return "", &Error{Op: op, Code: CodeUnimplemented, Err: errors.New("the sandbox has no token to sign with"),
			Hint: "the server did not say it: Client.Connect asks again"}
	}
	query := f.query(name)
	until := ""
	if validity > 0 {
		until = strconv.FormatInt(time.Now().Unix()+int64(seconds(validity)), 10)
		query.Set("signature_expiration", until)
	}
	query.Set("signature", signature(query.Get("path"), operation, f.user, f.s.token, until))

	base := f.s.base(protocol.EnvdPort)
	if f.s.client.cloud {
		// Its one host for all sandboxes asks for headers, which a link has not.
		base = &url.URL{Scheme: "https", Host: f.s.Host(protocol.EnvdPort)}
	}
	u := base.JoinPath("files")
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// signature is E2B's; until is unix seconds as text, empty for no end.
func signature(path, operation, user, token, until string) string {
	text := path + ":" + operation + ":" + user + ":" + token
	if until != "" {
		text += ":" + until
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}
