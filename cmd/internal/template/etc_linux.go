package template

import (
	"os"
	"path/filepath"
	"strings"
)

// etcAllowed are the names below the host's /etc that a toolchain needs, as
// patterns. Nothing here holds credentials by its purpose, and only what
// everybody may read is taken. Not here, on purpose: pip.conf, npmrc, gitconfig,
// apt, environment, Renviron.site.
var etcAllowed = []string{
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld-musl-*.path", "alternatives",
	"ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf", "ca-certificates/extracted",
	"pki/ca-trust/extracted", "pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf",
	"crypto-policies/back-ends", "mime.types", "fonts", "matplotlibrc", "ImageMagick-*",
	"python3", "python3.*", "magic", "magic.mime", "services", "protocols", "inputrc", "locale.alias",
	"R/ldpaths", "R/Renviron", "R/Makeconf", "R/repositories", "java-*/security", "java-*/*.cfg",
	"java-*/*.properties", "debian_version", "alpine-release", "redhat-release", "fedora-release",
}

// etc fills /etc: what is the sandbox's own is written, what belongs to the
// toolchain comes from the host.
func (c *composer) etc(path, nameServer string) {
	shell := "/bin/sh"
	if _, err := os.Stat("/bin/bash"); err == nil {
		shell = "/bin/bash"
	}
	c.write("/etc/passwd", strings.Join([]string{
		"root:x:0:0:root:/root:" + shell,
		"daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin",
		"bin:x:2:2:bin:/bin:/usr/sbin/nologin",
		"user:x:1000:1000:user:/home/user:" + shell,
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin",
	}, "\n")+"\n", 0o644)
	c.write("/etc/group", strings.Join([]string{
		"root:x:0:", "daemon:x:1:", "bin:x:2:", "tty:x:5:", "sudo:x:27:user", "staff:x:50:", "users:x:100:",
		"user:x:1000:", "nogroup:x:65534:",
	}, "\n")+"\n", 0o644)
	c.write("/etc/hosts", "127.0.0.1\tlocalhost cubby\n::1\tlocalhost ip6-localhost ip6-loopback\n", 0o644)
	c.write("/etc/hostname", "cubby\n", 0o644)
	c.write("/etc/resolv.conf", resolv(nameServer), 0o644)
	c.write("/etc/host.conf", "multi on\n", 0o644)
	c.write("/etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"+
		"networks: files\nprotocols: files\nservices: files\n", 0o644)
	c.write("/etc/shells", "/bin/sh\n/bin/bash\n", 0o644)
	c.write("/etc/profile", "export PATH="+quoteShell(path)+"\n"+
		"if [ -n \"${BASH_VERSION-}\" ] && [ -f /etc/bash.bashrc ]; then . /etc/bash.bashrc; fi\n", 0o644)
	c.write("/etc/bash.bashrc", "case $- in *i*) PS1='\\u@\\h:\\w\\$ ' ;; esac\n", 0o644)
	c.write("/etc/timezone", "Etc/UTC\n", 0o644)
	c.symlink("/usr/share/zoneinfo/Etc/UTC", "/etc/localtime")
	c.symlink("/proc/self/mounts", "/etc/mtab")
	c.write("/etc/os-release", osRelease(), 0o644)

	for _, path := range etcPaths() {
		c.fromEtc(path)
	}
}

func resolv(nameServer string) string {
	if nameServer == "" {
		return "# no name server: the network of this sandbox is closed\n"
	}
	return "nameserver " + nameServer + "\n"
}

// etcPaths expands etcAllowed. It reads /etc once: a glob for every pattern
// would cost half of Compose's time.
func etcPaths() []string {
	var names []string
	if dir, err := os.Open("/etc"); err == nil {
		names, _ = dir.Readdirnames(-1)
		dir.Close()
	}
	var paths []string
	for _, pattern := range etcAllowed {
		first, rest, deep := strings.Cut(pattern, "/")
		if !strings.Contains(first, "*") {
			paths = append(paths, "/etc/"+pattern)
			continue
		}
		for _, name := range names {
			if ok, err := filepath.Match(first, name); err != nil || !ok {
				continue
			}
			if !deep {
				paths = append(paths, "/etc/"+name)
			} else if m, err := filepath.Glob("/etc/" + name + "/" + rest); err == nil {
				paths = append(paths, m...)
			}
		}
	}
	return paths
}

func osRelease() string {
	for _, path := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		if text, err := readSmall(path, 64<<10); err == nil {
			return string(text)
		}
	}
	return "ID=linux\nNAME=Linux\n"
}

// fromEtc takes one path below the host's /etc: directories are bound, small
// files copied. What cannot be read by everybody, or leads out of /etc, /usr
// and the package stores, is left out.
func (c *composer) fromEtc(path string) {
	if c.err != nil {
		return
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return
	}
	if under(real, "/usr") {
		c.mkdirAll(filepath.Dir(path))
		c.symlink(real, path)
		return
	}
	if !under(real, "/etc") && storeOf(real) == "" {
		return
	}
	info, err := os.Stat(real)
	if err != nil {
		return
	}
	switch {
	case info.IsDir() && info.Mode().Perm()&0o005 == 0o005:
		c.mkdirAll(path)
		c.bind(real, path)
	case info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0:
		text, err := readSmall(real, 1<<20)
		if err != nil {
			return
		}
		c.mkdirAll(filepath.Dir(path))
		c.write(path, string(text), 0o644)
	}
}
