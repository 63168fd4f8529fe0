package packed

// From is the kind of place where a program was found.
type From string

// The places, in the order in which they are looked at.
const (
	FromVariable  From = "variable"   // named by the environment
	FromBeside    From = "beside"     // beside the running program, or in ../lib/cubby
	FromCache     From = "cache"      // the user's cache
	FromRunDir    From = "run folder" // of this run
	FromTemporary From = "temporary"  // a file without a name in the folder for temporary files
	FromMemory    From = "memory"     // a sealed memory file
)

// Report is what can be told of a packed program.
type Report struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"` // in hex
	Size   int64  `json:"size"`   // bytes
	Path   string `json:"path"`   // the file that would run; it may be gone already where From is none that stays
	From   From   `json:"from,omitempty"`
	// Passed are the places that come first and were not taken.
	Passed []ReportPassed `json:"passed_over,omitempty"`
	// Problem says what is wrong with the file; empty if nothing is.
	Problem string `json:"problem,omitempty"`
}

// ReportPassed is a place that was not taken, and why.
type ReportPassed struct {
	From From   `json:"from"`
	Path string `json:"path,omitempty"`
	Why  string `json:"why"`
}

// Stays reports whether the program will be there at the next start, too.
func (f From) Stays() bool { return f == FromVariable || f == FromBeside || f == FromCache }
