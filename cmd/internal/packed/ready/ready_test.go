//go:build linux

package ready

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestFolder: each folder on the way is judged, whichever way a path goes.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return dir + "/" + name } // and not cleaned
	for name, mode := range map[string]os.FileMode{
		"good": 0o755, "good/in": 0o755, "open": 0o777, "open/in": 0o755, "sticky": 0o777 | os.ModeSticky, "sticky/in": 0o755,
		"sticky/in/deep": 0o700, "group": 0o775, "closed": 0o700,
	} {
		if err := errors.Join(os.MkdirAll(at(name), 0o755), os.Chmod(at(name), mode)); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"link": at("good/in"), "relative": "good/in", "up": "good/in/../../closed", "bad": "open/in", "loop": "loop",
		"chain": "link", "open/link": at("good"),
	} {
		if err := os.Symlink(target, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ path, leads, why string }{
		{at("good/in"), at("good/in"), ""},
		{at("good//in/."), at("good/in"), ""},
		{at("good/in/../.."), dir, ""},
		{at("closed"), at("closed"), ""},
		{at("sticky/in"), at("sticky/in"), ""},
		{at("sticky/in/deep"), at("sticky/in/deep"), ""},
		{at("link"), at("good/in"), ""},
		{at("relative"), at("good/in"), ""},
		{at("up"), at("closed"), ""},
		{at("chain"), at("good/in"), ""},
		{"/", "/", ""},

		{at("open"), "", "others may write"},
		{at("open/in"), "", "others may write"},
		{at("open/in/../../good"), "", "others may write"}, // who can exchange "in" decides where ".." is
		{at("open/link"), "", "others may write"},
		{at("bad"), "", "others may write"},
		{at("sticky"), "", "others may write"},
		{at("group"), "", "others may write"},
		{at("loop"), "", "symbolic links"},
		{at("file"), "", "not a directory"},
		{at("file/in"), "", "not a directory"},
		{at("none"), "", "no such file"},
		{"good", "", "not an absolute path"},
		{"", "", "not an absolute path"},
	} {
		fd, err := Folder(tt.path)
		if (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error(), tt.why) {
			t.Errorf("%s: %v, want %q", tt.path, err, tt.why)
			continue
		}
		if err != nil {
			continue
		}
		var got, want syscall.Stat_t
		if err := errors.Join(syscall.Fstat(fd, &got), syscall.Stat(tt.leads, &want), syscall.Close(fd)); err != nil {
			t.Fatal(err)
		}
		if got.Dev != want.Dev || got.Ino != want.Ino {
			t.Errorf("%s does not lead to %s", tt.path, tt.leads)
		}
	}
}

// TestOwners: a folder or a link of another user on the way is not followed.
func TestOwners(t *testing.T) {
	if os.Getuid() != 0 || !mapsAll() {
		t.Skip("needs root, to give files away")
	}
	const other = 23456
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(dir+"/other/in", 0o755), os.Mkdir(dir+"/in", 0o755), os.Symlink(dir+"/in", dir+"/link"),
		os.Lchown(dir+"/other", other, other), os.Lchown(dir+"/link", other, other)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir + "/other", dir + "/other/in", dir + "/link"} {
		if fd, err := Folder(path); err == nil || !strings.Contains(err.Error(), "belongs to user 23456") {
			t.Errorf("%s: %d, %v", path, fd, err)
		}
	}
}

// TestParseSum: what is not exactly a sum is none.
func TestParseSum(t *testing.T) {
	sum := strings.Repeat("0123456789abcdef", 4)
	if got, size, ok := ParseSum(sum + " 42\n"); got != sum || size != 42 || !ok {
		t.Errorf("%q, %d, %v", got, size, ok)
	}
	for _, text := range []string{"", sum, sum + " ", sum + " 0", sum + " -1", sum + " x", sum[1:] + "  42", strings.ToUpper(sum) + " 42", sum + "\n42"} {
		if _, _, ok := ParseSum(text); ok {
			t.Errorf("%q is taken", text)
		}
	}
}

// TestImports: this package comes before others, and needs none of them.
func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{join .Imports " "}}`, ".").Output()
	if err != nil {
		t.Skipf("no go command: %v", err)
	}
	if got := strings.TrimSpace(string(out)); got != "strconv syscall unsafe" {
		t.Errorf("it imports %s", got)
	}
}
