package template

import (
	"strings"
)

// installHint says how this distribution installs a program.
func installHint(program string) string {
	id, like := "", ""
	text, err := readSmall("/etc/os-release", 64<<10)
	if err != nil {
		text, _ = readSmall("/usr/lib/os-release", 64<<10)
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "ID":
			id = strings.Trim(value, `"'`)
		case "ID_LIKE":
			like = strings.Trim(value, `"'`)
		}
	}
	return "install it with: " + installCommand(id, like, program)
}

// installCommand maps os-release's ID and ID_LIKE to a package manager.
func installCommand(id, like, program string) string {
	pkg := program
	switch program {
	case "node":
		pkg = "nodejs"
	}
	for _, distribution := range append([]string{id}, strings.Fields(like)...) {
		switch distribution {
		case "debian", "ubuntu":
			return "apt-get install " + pkg
		case "alpine":
			return "apk add " + pkg
		case "fedora", "rhel", "centos", "amzn":
			return "dnf install " + pkg
		case "arch":
			if program == "python3" {
				pkg = "python"
			}
			return "pacman -S " + pkg
		case "suse", "opensuse", "sles":
			return "zypper install " + pkg
		case "void":
			return "xbps-install -S " + pkg
		case "gentoo":
			switch program {
			case "python3":
				pkg = "dev-lang/python"
			case "node":
				pkg = "net-libs/nodejs"
			}
			return "emerge " + pkg
		case "nixos":
			return "nix-env -iA nixos." + pkg
		}
	}
	return "this system's package manager (package " + pkg + ")"
}
