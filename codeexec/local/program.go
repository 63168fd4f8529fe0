package local

import (
	"io"
	"os"
	"time"
)

const (
	// drainTime is how long the output of a program that has ended may take to be
	// read: something that got away may hold its pipes open.
	drainTime = 2 * time.Second
	// strayTime bounds the hunt for processes that left their group.
	strayTime = 3 * time.Second
)

// program is what to start: everything is absolute and was checked.
type program struct {
	path   string
	argv   []string
	env    []string
	dir    string
	folder *os.File // if set, the folder to run in, whatever its path leads to now

	stdin          string
	interactive    bool // input comes by process.Write
	tty            bool // a terminal; its output goes to stdout
	stdout, stderr io.Writer

	// mark is a variable of env, NAME=VALUE, that no other program has.
	mark string
}
