package template

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Programs are Cubby's own in a root filesystem: the guest, and what makes JavaScript of
// TypeScript.
type Programs struct {
	// ID stands for their content: those with another have other paths inside, so that
	// a root can have several. It is letters and digits, or empty.
	ID string
	// Guest and TypeScript are files on the host; without the second, which may be
	// empty, Node has to do what it can. They are opened once and bound by those
	// descriptors: they may be /proc/self/fd/N, of files that were judged before.
	Guest, TypeScript string
}

// GuestPath is where Compose puts the guest.
func (p Programs) GuestPath() string { return path.Join("/.cubby", p.ID, "cubby-guest") }

// TypeScriptPath is where Compose puts the other program.
func (p Programs) TypeScriptPath() string { return path.Join("/.cubby", p.ID, "cubby-typescript") }

// Additions are Cubby's own part of a root filesystem.
type Additions struct {
	Programs
	// Earlier are those of other builds, of which there are images.
	Earlier []Programs
	// Authority is the certificate, as PEM, that programs inside trust besides those
	// of the host; nil for none.
	Authority []byte
	// NameServer is the address of the one that programs inside ask; empty for none.
	NameServer string
}

// Root is a composed root filesystem. It lives until Close or until the last
// process of its mount namespace ends.
type Root struct {
	Dir                string   // on the host
	Python, Node, Bash string   // inside; empty if missing
	GuestPath          string   // inside
	TypeScriptPath     string   // inside; empty without one
	Path               string   // a PATH for code inside that reaches the toolchain
	Env                []string // what programs inside need to be told besides
}

// Compose mounts the template on dir, an empty directory. The caller must be in
// a private mount namespace and have CAP_SYS_ADMIN in it: real root after
// CLONE_NEWNS, or uid 0 of a user namespace that owns the mount namespace.
//
// Everything of the host is bound read-only, nosuid and nodev; the rest is a
// tmpfs of at most 16 MiB and 4096 inodes, which Compose fills and which is
// meant to be the lower side of an overlay. Owners are not set: the skeleton
// belongs to whoever calls, /home/user included.
//
// A failure leaves nothing mounted.
func Compose(ctx context.Context, dir string, tc Toolchain, add Additions) (Root, error) {
	if err := ctx.Err(); err != nil {
		return Root{}, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Root{}, err
	}
	programs := map[string]*os.File{}
	for _, p := range append([]Programs{add.Programs}, add.Earlier...) {
		for path, source := range map[string]string{p.GuestPath(): p.Guest, p.TypeScriptPath(): p.TypeScript} {
			if path == p.TypeScriptPath() && source == "" {
				continue
			}
			file, err := openExecutable(source)
			if err != nil {
				return Root{}, fmt.Errorf("%s: %w", filepath.Base(path), err)
			}
			defer file.Close()
			programs[path] = file
		}
	}
	if err := checkPrivate(dir); err != nil {
		return Root{}, err
	}
	if err := unix.Mount("cubby", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=16m,nr_inodes=4096,mode=755"); err != nil {
		return Root{}, &fault.Error{
			Code: fault.Unavailable,
			Err:  fmt.Errorf("mounting a tmpfs on %s: %w", dir, err),
			Hint: "this needs root or a user namespace; cubby doctor says what is missing",
		}
	}
	root := Root{Dir: dir, Python: tc.Python.Path, Node: tc.Node.Path, Bash: tc.Bash.Path, GuestPath: add.GuestPath(), Path: searchPathFor(tc)}
	if add.TypeScript != "" {
		root.TypeScriptPath = add.TypeScriptPath()
	}
	c := &composer{dir: dir}
	c.build(tc, programs, root.Path, add.NameServer)
	root.Env = append(c.authority(add.Authority), npmEnv...)
	if c.err != nil {
		return Root{}, errors.Join(fmt.Errorf("composing the root filesystem: %w", c.err), root.Close())
	}
	return root, nil
}

// openExecutable opens path, without the right to read it, if it can be executed.
func openExecutable(path string) (*os.File, error) {
	file, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0) {
		err = fmt.Errorf("%s is not an executable file", path)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// Close unmounts the template. Processes that still use it keep it until they
// end.
func (r Root) Close() error {
	if r.Dir == "" {
		return nil
	}
	if err := unix.Unmount(r.Dir, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting %s: %w", r.Dir, err)
	}
	return nil
}

// searchPathFor puts the toolchain's own directories before the usual ones, and the
// template's own around them.
func searchPathFor(tc Toolchain) string {
	dirs := []string{"/home/user/.local/bin", wrapperDir}
	for _, in := range []Interpreter{tc.Python, tc.Node} {
		if in.Path != "" {
			dirs = append(dirs, filepath.Dir(in.Path))
		}
	}
	usual := []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return slices.Contains(usual, dir) })
	dirs = append(append(dirs, usual...), fallbackDir)
	seen := map[string]bool{}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool {
		again := seen[dir]
		seen[dir] = true
		return again
	})
	return strings.Join(dirs, ":")
}

// checkPrivate refuses to work where mounts would show up outside: in a mount
// namespace whose mounts are shared with others.
func checkPrivate(dir string) error {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	best, shared := "", false
	for line := range strings.Lines(string(info)) {
		fields := strings.Fields(line)
		if len(fields) < 7 {
			continue
		}
		// The last mount on the longest path is the one in sight.
		if point := unescapeMount(fields[4]); under(dir, point) && len(point) >= len(best) {
			best = point
			shared = slices.ContainsFunc(fields[6:], func(f string) bool { return strings.HasPrefix(f, "shared:") })
		}
	}
	if shared {
		return fmt.Errorf("mounts below %s are shared with other mount namespaces: a private one is needed", best)
	}
	return nil
}

// unescapeMount decodes the octal escapes of mountinfo.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// composer builds below dir; the first error sticks and later steps do nothing.
type composer struct {
	dir string
	err error
}

func (c *composer) build(tc Toolchain, programs map[string]*os.File, path, nameServer string) {
	for _, d := range []string{"/dev", "/etc", "/home", protocol.DefaultHome, "/mnt", "/opt", "/proc", "/root", "/run", "/srv",
		"/sys", "/usr", "/var", "/var/cache", "/var/lib", "/var/log", "/.cubby"} {
		c.mkdir(d, 0o755)
	}
	c.mkdir("/tmp", 0o1777)
	c.mkdir("/var/tmp", 0o1777)
	c.mkdir("/code", 0o777) // where E2B's users put theirs
	c.symlink("/run", "/var/run")
	c.symlink("/run/lock", "/var/lock")
	// gVisor mounts an unbounded tmpfs over an empty /tmp: its content would
	// not count against the disk limit.
	c.write("/tmp/.cubby", "", 0o600)

	c.bind("/usr", "/usr")
	for _, d := range baseDirs[1:] {
		c.mirror(d)
	}
	c.etc(path, nameServer)

	for inside, file := range programs {
		if dir := filepath.Dir(inside); !c.has(dir) {
			c.mkdir(dir, 0o755)
		}
		c.write(inside, "", 0o755)
		c.bindFile(file, inside)
	}

	var prefixes []string
	links := map[string]string{}
	for _, in := range []Interpreter{tc.Python, tc.Node, tc.Bash} {
		prefixes = append(prefixes, in.Prefixes...)
		maps.Copy(links, in.Links)
	}
	prefixes = minimalPaths(prefixes)
	for _, prefix := range prefixes {
		if err := checkPrefix(prefix); err != nil && c.err == nil {
			c.err = err
		}
		c.place(prefix)
	}
	// Shorter ones first: a link may lie behind another.
	for _, link := range slices.SortedFunc(maps.Keys(links), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	}) {
		if !covered(link, prefixes) && !covered(link, baseDirs) {
			c.link(links[link], link)
		}
	}
	c.tools(tc, path)
}

// has reports whether there is something at a path inside already.
func (c *composer) has(inside string) bool {
	_, err := os.Lstat(c.dir + inside)
	return err == nil
}

// mirror makes one of the host's top directories visible: a link stays a link.
func (c *composer) mirror(dir string) {
	info, err := os.Lstat(dir)
	if err != nil || c.err != nil {
		return
	}
	if info.Mode()&os.ModeSymlink != 0 {
		if target, err := os.Readlink(dir); err == nil {
			c.symlink(target, dir)
			return
		}
	}
	c.mkdir(dir, 0o755)
	c.bind(dir, dir)
}

// place binds a host path, a real one, at the same path.
func (c *composer) place(path string) {
	if c.err != nil {
		return
	}
	info, err := os.Lstat(path)
	if err != nil {
		c.err = err
		return
	}
	c.mkdirAll(filepath.Dir(path))
	switch {
	case info.IsDir():
		c.mkdirAll(path)
	case info.Mode().IsRegular():
		c.write(path, "", 0o644)
	default:
		c.err = fmt.Errorf("%s is neither a directory nor a file", path)
	}
	c.bind(path, path)
}

// link makes a link unless something is at its place already.
func (c *composer) link(target, path string) {
	c.mkdirAll(filepath.Dir(path))
	if _, err := os.Lstat(c.dir + path); err == nil {
		return
	}
	c.symlink(target, path)
}

func (c *composer) mkdir(path string, mode uint32) {
	if c.err != nil {
		return
	}
	if err := unix.Mkdir(c.dir+path, mode); err != nil {
		c.err = &os.PathError{Op: "mkdir", Path: path, Err: err}
		return
	}
	c.chmod(path, mode)
}

// mkdirAll makes the directories that are missing. It never meets a link:
// prefixes and links stand at real paths.
func (c *composer) mkdirAll(path string) {
	if c.err != nil || path == "/" {
		return
	}
	if info, err := os.Lstat(c.dir + path); err == nil {
		if !info.IsDir() {
			c.err = &os.PathError{Op: "mkdir", Path: path, Err: unix.ENOTDIR}
		}
		return
	}
	c.mkdirAll(filepath.Dir(path))
	c.mkdir(path, 0o755)
}

func (c *composer) symlink(target, path string) {
	if c.err != nil {
		return
	}
	if err := unix.Symlink(target, c.dir+path); err != nil {
		c.err = &os.PathError{Op: "symlink", Path: path, Err: err}
	}
}

func (c *composer) write(path, content string, mode uint32) {
	if c.err != nil {
		return
	}
	if err := os.WriteFile(c.dir+path, []byte(content), 0o600); err != nil {
		c.err = err
		return
	}
	c.chmod(path, mode)
}

// chmod sets the mode whatever the umask is.
func (c *composer) chmod(path string, mode uint32) {
	if c.err != nil {
		return
	}
	if err := unix.Chmod(c.dir+path, mode); err != nil {
		c.err = &os.PathError{Op: "chmod", Path: path, Err: err}
	}
}

// bind makes a file or directory of the host, with what is mounted below it,
// visible read-only at path inside.
func (c *composer) bind(source, path string) {
	if c.err != nil {
		return
	}
	if err := bindReadOnly(source, c.dir+path); err != nil {
		c.err = fmt.Errorf("binding %s: %w", source, err)
	}
}

// bindFile does the same with a file that is open.
func (c *composer) bindFile(file *os.File, path string) {
	if c.err != nil {
		return
	}
	if err := bindFileReadOnly(file, c.dir+path); err != nil {
		c.err = fmt.Errorf("binding %s: %w", file.Name(), err)
	}
}

const readOnly = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// A detached copy is made read-only before it is seen anywhere. It is recursive because
// in a user namespace what is mounted below cannot be separated from it, and private so
// that neither later mounts of the host come in nor our unmounting goes out.
const detachedCopy = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE

func bindReadOnly(source, target string) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, detachedCopy|unix.AT_SYMLINK_NOFOLLOW)
	return showReadOnly(fd, err, source, target)
}

func bindFileReadOnly(file *os.File, target string) error {
	fd, err := unix.OpenTree(int(file.Fd()), "", detachedCopy|unix.AT_EMPTY_PATH)
	return showReadOnly(fd, err, fmt.Sprintf("/proc/self/fd/%d", file.Fd()), target)
}

// showReadOnly takes what OpenTree returned for source.
func showReadOnly(fd int, err error, source, target string) error {
	if errors.Is(err, unix.ENOSYS) {
		return bindReadOnlyOld(source, target)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	attr := unix.MountAttr{Attr_set: readOnly, Propagation: unix.MS_PRIVATE}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr)
	if errors.Is(err, unix.ENOSYS) {
		return bindReadOnlyOld(source, target)
	}
	if err != nil {
		return fmt.Errorf("making it read-only: %w", err)
	}
	return unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// bindReadOnlyOld is bindReadOnly for kernels before 5.12: each mount is bound
// and then remounted with the flags it has, which may be locked, and ours.
func bindReadOnlyOld(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if err := unix.Mount("", target, "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return err
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(info)) {
		fields := strings.Fields(line)
		if len(fields) < 6 {
			continue
		}
		point := unescapeMount(fields[4])
		if !under(point, target) {
			continue
		}
		flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV)
		for _, option := range strings.Split(fields[5], ",") {
			flags |= keptFlags[option]
		}
		if err := unix.Mount("", point, "", flags, ""); err != nil {
			return fmt.Errorf("making %s read-only: %w", point, err)
		}
	}
	return nil
}

var keptFlags = map[string]uintptr{
	"noexec": unix.MS_NOEXEC, "noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
}
