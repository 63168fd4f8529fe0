package steps

import (
	"regexp"
	"strings"
)

// sentence explains errors of a type whose message matches.
type sentence struct {
	message *regexp.Regexp // nil: any
	text    string         // $1 is what the message's group matched
}

// sentences returns what there is to say of a type of error, the special before
// the general.
func sentences(kind string) []sentence {
	re := regexp.MustCompile
	switch kind {
	case "NameError":
		return []sentence{
			{re(`name '(\w{1,60})' is not defined`), "The name $1 is used before anything has that name: define or import it first, or look for a typing error."},
			{nil, "A name is used that nothing has."},
		}
	case "UnboundLocalError":
		return []sentence{{nil, "A variable of the function is read before it has a value: an assignment anywhere in a function makes the name its own."}}
	case "ZeroDivisionError":
		return []sentence{{nil, "Something is divided by zero: check the divisor first, it may be an empty list's length."}}
	case "IndexError":
		return []sentence{{nil, "An index is beyond the end: the sequence is shorter than the code expects, perhaps empty."}}
	case "KeyError":
		return []sentence{{nil, "The dictionary, or table, has no such key: print its keys, or use get with a default."}}
	case "AttributeError":
		return []sentence{
			{re(`'NoneType' object`), "The value is None: what should have made it returned nothing."},
			{re(`has no attribute '(\w{1,60})'`), "The object has nothing called $1: it may be of another type than the code expects."},
		}
	case "TypeError":
		return []sentence{
			{re(`unsupported operand type`), "The operator does not work between these types: convert one of the values first."},
			{re(`can only concatenate|must be str, not`), "Text and another type are joined: convert with str()."},
			{re(`'NoneType'`), "A value is None where another was expected."},
			{re(`missing \d+ required|takes .* positional argument|unexpected keyword`), "The call does not fit the function's parameters."},
			{re(`not callable|is not a function`), "Something is called that is not a function: a variable may have taken the function's name."},
			{re(`is not subscriptable|is not iterable`), "The value is not a sequence: it may be of another type than the code expects."},
			{re(`Cannot read properties of (undefined|null)`), "The value is $1: what should have made it returned nothing, or the name is not there."},
			{re(`Assignment to constant`), "A const is given another value: declare it with let."},
			{nil, "A value is of a type that does not work here."},
		}
	case "ValueError":
		return []sentence{
			{re(`invalid literal for int|could not convert string to float`), "The text is not a number: strip units, signs and separators, or skip such values."},
			{re(`unpack`), "There are more or fewer values than names on the left side."},
			{re(`math domain error|expected a (?:nonnegative|positive) input`), "The function is not defined for that number, such as a root of a negative one."},
			{nil, "A value is of the right type, but not one that works here."},
		}
	case "ModuleNotFoundError":
		return []sentence{
			{re(`No module named '([\w.]{1,80})'`), "The package $1 is not installed here: write it with the standard library or what is installed."},
		}
	case "ImportError":
		return []sentence{{nil, "The module has nothing of that name, perhaps in this version."}}
	case "FileNotFoundError":
		return []sentence{{nil, "There is no such file: names are relative to the working directory; list it to see what is there."}}
	case "PermissionError":
		return []sentence{{nil, "The sandbox does not allow that: read and write in the working directory."}}
	case "IndentationError", "TabError":
		return []sentence{{nil, "The lines of a block do not begin in the same column: use four blanks for each level."}}
	case "SyntaxError":
		return []sentence{
			{re(`was never closed|unexpected EOF|Unexpected end of input`), "A bracket, brace or quote is opened and never closed."},
			{re(`unterminated`), "A quote is opened and never closed."},
			{nil, "The code is not written as the language wants it, at or just before this place."},
		}
	case "RecursionError":
		return []sentence{{nil, "A function calls itself without end: look at the case that should stop it."}}
	case "RangeError":
		return []sentence{
			{re(`call stack`), "A function calls itself without end: look at the case that should stop it."},
			{nil, "A number is outside of what is allowed here."},
		}
	case "ReferenceError":
		return []sentence{
			{re(`Cannot access '(\w{1,60})' before`), "The name $1 is used above the line that declares it."},
			{re(`(\w{1,60}) is not defined`), "The name $1 is used and declared nowhere: declare or require it, or look for a typing error."},
		}
	case "MemoryError":
		return []sentence{{nil, "It keeps too much at once: work through the data in pieces."}}
	case "UnicodeDecodeError":
		return []sentence{{nil, "The bytes are not text in that encoding: try another, such as encoding=\"latin-1\"."}}
	case "JSONDecodeError", "json.decoder.JSONDecodeError":
		return []sentence{{nil, "The text is not JSON: print its beginning to see what it is."}}
	case "AssertionError":
		return []sentence{{nil, "Something that the code asserts is not true: the code, or the assertion, is wrong."}}
	case "StopIteration":
		return []sentence{{nil, "next() was called and nothing was left: give it a default."}}
	case "EOFError":
		return []sentence{{nil, "The code waits for input and nobody types here: put the values into the code."}}
	case "TimeoutError", "ConnectionError", "ConnectionRefusedError", "socket.gaierror", "gaierror", "URLError", "urllib.error.URLError":
		return []sentence{{nil, "The other side cannot be reached: the sandbox may have no network. Use the files that are there."}}
	case "OverflowError":
		return []sentence{{nil, "The number is too large for this operation: use integers, or logarithms."}}
	case "CommandNotFound":
		return []sentence{{nil, "There is no such command here: look for a typing error, or do it another way."}}
	case "UnboundVariable":
		return []sentence{{nil, "The variable has no value: set it first, or use ${NAME:-default}."}}
	case "UnsupportedLanguage":
		return []sentence{{nil, "Write the code in a language that can be run here."}}
	}
	return nil
}

// plain says in a sentence what an error means, "" if it is not a common one.
func plain(kind, message string) string {
	for _, s := range sentences(kind) {
		if s.message == nil {
			return s.text
		}
		if m := s.message.FindStringSubmatch(message); m != nil {
			if len(m) > 1 {
				return strings.ReplaceAll(s.text, "$1", m[1])
			}
			return s.text
		}
	}
	return ""
}
