package parsers

import (
	"slices"
	"strings"
)

var networkCommands = []string{
	"curl", "wget", "nc", "ncat", "netcat", "socat", "ssh", "scp", "sftp", "rsync", "ftp", "lftp", "telnet", "ping", "nmap", "dig",
	"nslookup", "host", "whois", "aria2c", "rclone", "aws", "gcloud", "az", "gh", "kubectl", "docker", "podman", "git-lfs", "http",
}

var privilegeCommands = []string{
	"sudo", "su", "doas", "pkexec", "runuser", "chown", "chgrp", "chroot", "unshare", "nsenter", "setcap", "passwd", "useradd", "usermod",
	"userdel", "groupadd", "visudo", "setfacl", "mount", "umount", "insmod", "modprobe", "sysctl", "iptables", "nft",
}

var destructiveCommands = []string{
	"mkfs", "shred", "wipefs", "fdisk", "sfdisk", "parted", "mkswap", "shutdown", "reboot", "poweroff", "halt", "init", "telinit",
}

// networkSubcommands are what some commands use the network for.
var networkSubcommands = map[string][]string{
	"git": {"clone", "fetch", "pull", "push", "ls-remote"}, "pip": {"install", "download"}, "pip3": {"install", "download"},
	"npm": {"install", "i", "ci", "publish"}, "npx": {""}, "yarn": {"add", "install"}, "pnpm": {"add", "install", "i"},
	"apt": {"install", "update", "upgrade"}, "apt-get": {"install", "update", "upgrade"}, "go": {"get", "install"},
	"cargo": {"install"}, "gem": {"install"}, "uv": {"pip", "add"}, "conda": {"install"},
}

func usesNetwork(name string, words []string) bool {
	if slices.Contains(networkCommands, name) {
		return true
	}
	for _, sub := range networkSubcommands[name] {
		if sub == "" || slices.Contains(words[1:], sub) {
			return true
		}
	}
	return false
}

// optionsWithValue are the short options of commands that run others which are
// followed by a word of their own.
var optionsWithValue = map[string]string{
	"sudo": "ugChpDRT", "doas": "uC", "env": "uCS", "xargs": "IiLlnPsdEa", "timeout": "ks", "nice": "n", "ionice": "cnp",
	"stdbuf": "ioe", "time": "fo", "exec": "a", "flock": "wE", "parallel": "jI", "watch": "n", "strace": "eop", "taskset": "",
}

func isDevice(name string) bool {
	if !strings.HasPrefix(name, "/dev/") {
		return false
	}
	name = strings.TrimPrefix(name, "/dev/")
	return !slices.Contains([]string{"null", "zero", "full", "stdout", "stderr", "stdin", "tty", "random", "urandom", "ptmx"}, name) &&
		!strings.HasPrefix(name, "fd/") && !strings.HasPrefix(name, "shm/") && !strings.HasPrefix(name, "pts/") &&
		!strings.HasPrefix(name, "tcp/") && !strings.HasPrefix(name, "udp/")
}

// removesTree reports whether rm is told to go into folders.
func removesTree(words []string) bool {
	return slices.ContainsFunc(words[1:], func(w string) bool {
		switch {
		case w == "--recursive", w == "--no-preserve-root":
			return true
		case strings.HasPrefix(w, "--"):
			return false
		}
		return strings.HasPrefix(w, "-") && strings.ContainsAny(w, "rR")
	})
}

func recursive(words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool {
		return w == "--recursive" || strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "--") && strings.Contains(w, "R")
	})
}

func isRoot(word string) bool {
	return slices.Contains([]string{"/", "/*", "~", "~/", "$HOME", "/home", "/etc", "/usr"}, word)
}

// setsID reports whether a mode of chmod sets the user's or the group's bit.
func setsID(mode string) bool {
	if strings.Trim(mode, "01234567") == "" {
		mode = strings.TrimLeft(mode, "0")
		return len(mode) == 4 && strings.ContainsAny(mode[:1], "24567")
	}
	return strings.Contains(mode, "+s") || strings.Contains(mode, "=s") || strings.Contains(mode, "+xs")
}
