//go:build linux

package sudo

import (
	"os"
	"slices"
	"strconv"
	"strings"
)

// passwdEntry is a line of /etc/passwd.
type passwdEntry struct {
	name        string
	uid, gid    int
	home, shell string
}

// accounts are the users and groups of a sandbox as its files name them. Code
// that became root may have written anything there; lines that cannot be parsed are
// ignored.
type accounts struct {
	users  []passwdEntry
	groups []groupEntry
}

type groupEntry struct {
	name    string
	gid     int
	members []string
}

// maxAccountFile is the size, in bytes, beyond which a file of users or groups is
// taken for empty.
const maxAccountFile = 1 << 20

func readAccounts(passwd, group string) accounts {
	var a accounts
	for f := range fieldsOf(passwd, 7) {
		uid, err1 := parseID(f[2])
		gid, err2 := parseID(f[3])
		if err1 == nil && err2 == nil && f[0] != "" {
			a.users = append(a.users, passwdEntry{f[0], uid, gid, f[5], f[6]}.complete())
		}
	}
	for f := range fieldsOf(group, 4) {
		if gid, err := parseID(f[2]); err == nil && f[0] != "" {
			a.groups = append(a.groups, groupEntry{f[0], gid, strings.Split(f[3], ",")})
		}
	}
	return a
}

// fieldsOf yields the lines of a file that have n fields between colons.
func fieldsOf(path string, n int) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		b, err := os.ReadFile(path)
		if err != nil || len(b) > maxAccountFile {
			return
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Split(strings.TrimRight(line, "\n"), ":"); len(f) == n && !yield(f) {
				return
			}
		}
	}
}

func parseID(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return int(n), err
}

func (p passwdEntry) complete() passwdEntry {
	if p.home == "" {
		p.home = "/"
	}
	if p.shell == "" {
		p.shell = "/bin/sh"
	}
	return p
}

// lookUp returns the user with a name, or with a number written #1000. A number need
// not be in the file.
func (a accounts) lookUp(name string) (passwdEntry, bool) {
	if number, ok := strings.CutPrefix(name, "#"); ok {
		uid, err := parseID(number)
		return a.byUID(uid), err == nil
	}
	i := slices.IndexFunc(a.users, func(u passwdEntry) bool { return u.name == name })
	if i < 0 && name == "root" {
		return passwdEntry{name: "root", home: "/root"}.complete(), true
	}
	if i < 0 {
		return passwdEntry{}, false
	}
	return a.users[i], true
}

func (a accounts) byUID(uid int) passwdEntry {
	if i := slices.IndexFunc(a.users, func(u passwdEntry) bool { return u.uid == uid }); i >= 0 {
		return a.users[i]
	}
	return passwdEntry{name: "#" + strconv.Itoa(uid), uid: uid, gid: uid}.complete()
}

// group returns the number of a group, which may be written #1000.
func (a accounts) group(name string) (int, bool) {
	if number, ok := strings.CutPrefix(name, "#"); ok {
		gid, err := parseID(number)
		return gid, err == nil
	}
	for _, g := range a.groups {
		if g.name == name {
			return g.gid, true
		}
	}
	return 0, false
}

// groupsOf returns the supplementary groups of a user, gid among them.
func (a accounts) groupsOf(u passwdEntry, gid int) []int {
	gids := []int{gid}
	for _, g := range a.groups {
		if slices.Contains(g.members, u.name) && !slices.Contains(gids, g.gid) && len(gids) < 64 {
			gids = append(gids, g.gid)
		}
	}
	return gids
}

// environment maps names to values.
type environment map[string]string

func newEnvironment(list []string) environment {
	env := environment{}
	for _, e := range list {
		if name, v, ok := strings.Cut(e, "="); ok && name != "" {
			env[name] = v
		}
	}
	return env
}

func (e environment) list() []string {
	list := make([]string, 0, len(e))
	for name, v := range e {
		list = append(list, name+"="+v)
	}
	slices.Sort(list)
	return list
}
