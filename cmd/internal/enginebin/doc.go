// Package enginebin carries the program cubby-engine in builds with the tag
// cubby_packed, as make does them. A process that is started to be the engine becomes it
// before other packages are initialised.
package enginebin
