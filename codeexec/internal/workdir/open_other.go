//go:build !unix

package workdir

const openNonblock = 0
