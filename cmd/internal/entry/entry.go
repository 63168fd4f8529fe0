// Package entry holds what a program of Cubby's does before Go's runtime, which
// destroys one thing that the program must know and ends without a useful word
// where limits are small:
//
//   - Go opens /dev/null in the place of standard streams that are closed. What is
//     printed then is lost, and looks as if it had been written.
//   - Below some limits (getrlimit(2)) Go ends with a trace that does not name the
//     limit, or packages panic while they are initialised.
//
// The linker's flag "-E cubby_entry" makes the process begin in this package's
// assembler, which notes the first and refuses the second with one message and
// status 125. A program that is linked without it begins as every Go program, and
// finds no stream closed. Only Linux on amd64 and arm64 has that symbol.
package entry
