package validate

// Decision is what a policy says of a piece of code.
type Decision string

// Decisions, from the mildest on.
const (
	Allow  Decision = "allow"
	Review Decision = "review" // a person should look at it first
	Deny   Decision = "deny"
)

// Finding is something in a piece of code that a rule is about.
type Finding struct {
	Rule     string   `json:"rule"` // such as "python.import.subprocess" or "syntax"
	Decision Decision `json:"decision"`
	Message  string   `json:"message"`
	Line     int      `json:"line"`               // from 1; 0 if it is about the whole
	Column   int      `json:"column"`             // in characters, from 1; 0 likewise
	Evidence string   `json:"evidence,omitempty"` // the piece of code, one line at most
	Remedy   string   `json:"remedy,omitempty"`   // what to write instead
}

// Report is what was found in a piece of code.
type Report struct {
	Language string `json:"language"` // normalised
	// Valid says that the code would be taken by its language's compiler; Errors
	// says why not.
	Valid  bool      `json:"valid"`
	Errors []Finding `json:"errors,omitempty"`
	// Decision is the strictest of the findings', Deny if the code is not valid.
	Decision Decision  `json:"decision"`
	Findings []Finding `json:"findings,omitempty"` // in the order of lines
	// Unchecked says that nothing but length and NUL could be looked at, since
	// the language has no checker here.
	Unchecked bool `json:"unchecked,omitempty"`
}
