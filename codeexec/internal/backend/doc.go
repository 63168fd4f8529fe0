// Package backend is what executors share in running blocks: it puts results
// together, reads errors, and passes output on. Users of executors need none of it.
package backend
