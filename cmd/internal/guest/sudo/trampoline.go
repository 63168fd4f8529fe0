//go:build linux

package sudo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// Names under which the guest's binary is sudo and su. They are argv[0], which
// the trampolines set.
const (
	sudoName = "cubby-sudo"
	suName   = "cubby-su"
)

// Is reports whether argv[0] is one that a trampoline sets. A program for which it
// is must call Main before anything else.
func Is(arg0 string) bool { return arg0 == sudoName || arg0 == suName }

// Main runs sudo or su, as args[0] asks: args are the os.Args of a program for which
// Is holds. It returns only if no command was executed in its place, with the exit
// status.
func Main(args []string) int {
	if args[0] == suName {
		return suMain(args[1:])
	}
	return sudoMain(args[1:])
}

// Install writes sudo and su into dir, over the host's, whose configuration and
// set-uid bits have no effect in a sandbox. Only root can call it.
//
// The files are made inside the sandbox: the host's files have no owner that its
// user namespace maps to root, so their set-uid bits cannot make anybody root. They
// are trampolines of 200 bytes and not copies of the guest's binary, which would
// cost each sandbox 15 MB of its disk and of the page cache.
func Install(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var errs []error
	for file, name := range map[string]string{"sudo": sudoName, "su": suName} {
		program, err := trampoline(runtime.GOARCH, self, name)
		if err == nil {
			err = installSetUID(filepath.Join(dir, file), program)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
		}
	}
	return errors.Join(errs...)
}

func installSetUID(path string, program []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(path, program, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, 0o755|os.ModeSetuid)
}

// trampoline returns an ELF program that replaces itself by the program at path,
// with its own arguments and environment and name as argv[0]. As a set-uid file
// it hands its effective user on: an exec keeps that. It ends with status 127 if
// path cannot be executed.
func trampoline(arch, path, name string) ([]byte, error) {
	const (
		base   = 0x400000
		header = 64 + 56 // of an ELF file with one segment
	)
	var machine uint16
	var code []byte
	switch arch {
	case "amd64":
		machine = 62
		code = []byte{
			0x48, 0x8b, 0x0c, 0x24, // mov rcx, [rsp]: argc
			0x48, 0x8d, 0x74, 0x24, 0x08, // lea rsi, [rsp+8]: argv
			0x48, 0x8d, 0x54, 0xce, 0x08, // lea rdx, [rsi+rcx*8+8]: envp
			0x48, 0x8d, 0x05, 0, 0, 0, 0, // lea rax, [rip+name]
			0x48, 0x89, 0x06, // mov [rsi], rax
			0x48, 0x8d, 0x3d, 0, 0, 0, 0, // lea rdi, [rip+path]
			0xb8, 59, 0, 0, 0, // mov eax, execve
			0x0f, 0x05, // syscall
			0xbf, 127, 0, 0, 0, // mov edi, 127
			0xb8, 60, 0, 0, 0, // mov eax, exit
			0x0f, 0x05, // syscall
		}
		nameAt := len(code)
		pathAt := nameAt + len(name) + 1
		binary.LittleEndian.PutUint32(code[17:], uint32(nameAt-21))
		binary.LittleEndian.PutUint32(code[27:], uint32(pathAt-31))
	case "arm64":
		machine = 183
		const words = 12
		nameAt := words * 4
		pathAt := nameAt + len(name) + 1
		adr := func(register, at, target int) uint32 {
			offset := uint32(target - at)
			return 0x10000000 | offset&3<<29 | offset>>2<<5 | uint32(register)
		}
		for _, w := range [words]uint32{
			0xf94003e2,              // ldr x2, [sp]: argc
			0x910023e1,              // add x1, sp, #8: argv
			0x8b020c22,              // add x2, x1, x2, lsl #3
			0x91002042,              // add x2, x2, #8: envp
			adr(3, 4*4, nameAt),     // adr x3, name
			0xf9000023,              // str x3, [x1]
			adr(0, 6*4, pathAt),     // adr x0, path
			0xd2800000 | 221<<5 | 8, // mov x8, execve
			0xd4000001,              // svc #0
			0xd2800000 | 127<<5,     // mov x0, #127
			0xd2800000 | 93<<5 | 8,  // mov x8, exit
			0xd4000001,              // svc #0
		} {
			code = binary.LittleEndian.AppendUint32(code, w)
		}
	default:
		return nil, fmt.Errorf("no trampoline for %s", arch)
	}
	code = append(append(append(append(code, name...), 0), path...), 0)
	size := uint64(header + len(code))

	var out bytes.Buffer
	out.WriteString("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00") // 64 bit, little endian
	for _, v := range []any{
		uint16(2), machine, uint32(1), // executable
		uint64(base + header), uint64(64), uint64(0), // entry, program headers, no sections
		uint32(0), uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0),
		uint32(1), uint32(5), // one segment to load, to read and execute
		uint64(0), uint64(base), uint64(base), size, size, uint64(0x1000),
	} {
		_ = binary.Write(&out, binary.LittleEndian, v) // never fails on a buffer
	}
	out.Write(code)
	return out.Bytes(), nil
}
