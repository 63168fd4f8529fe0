// Package fileowner tells whether a file that is to be trusted is somebody else's.
package fileowner
