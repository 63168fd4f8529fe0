package steps

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// errNotComparable is the error of a Go value that no language here has.
var errNotComparable = errors.New("a value of this type cannot be expected")

// value is a value of any language, as the testee sends it and Go values become
// it.
type value struct {
	Kind string
	// Text is an int's digits, a float's, a str, a bytes' base64, an other's repr.
	Text  string
	Alt   string // how an other prints
	Bool  bool
	Items []value    // of a list, tuple or set
	Pairs [][2]value // of a dict
	// strict says that it comes from a Literal: lists and tuples differ.
	strict bool
}

// Kinds of values.
const (
	kindNone  = "none"
	kindBool  = "bool"
	kindInt   = "int"
	kindFloat = "float"
	kindStr   = "str"
	kindBytes = "bytes"
	kindList  = "list"
	kindTuple = "tuple"
	kindSet   = "set"
	kindDict  = "dict"
	kindOther = "other"
	kindLarge = "large" // too large to be sent
)

// Bounds of values that are compared.
const (
	maxDepth  = 60      // the testee sends none that is nested deeper
	maxDigits = 1 << 16 // longer ones are compared as texts
)

// received makes a value of what the testee sent, decoded: {"k": kind, "v":
// content}. It is hostile.
func received(x any, depth int) (value, bool) {
	m, ok := x.(map[string]any)
	if !ok || depth > maxDepth {
		return value{}, false
	}
	v := value{}
	v.Kind, _ = m["k"].(string)
	v.Alt, _ = m["s"].(string)
	all, isList := m["v"].([]any)
	switch v.Kind {
	case kindNone, kindLarge:
		return v, true
	case kindBool:
		v.Bool, ok = m["v"].(bool)
		return v, ok
	case kindInt, kindFloat, kindStr, kindBytes, kindOther:
		v.Text, ok = m["v"].(string)
		return v, ok
	case kindList, kindTuple, kindSet:
		for _, x := range all {
			item, ok := received(x, depth+1)
			if !ok {
				return value{}, false
			}
			v.Items = append(v.Items, item)
		}
		return v, isList
	case kindDict:
		for _, x := range all {
			pair, _ := x.([]any)
			if len(pair) != 2 {
				return value{}, false
			}
			key, ok := received(pair[0], depth+1)
			item, also := received(pair[1], depth+1)
			if !ok || !also {
				return value{}, false
			}
			v.Pairs = append(v.Pairs, [2]value{key, item})
		}
		return v, isList
	}
	return value{}, false
}

// valueOf makes a value of Go's.
func valueOf(x any) (value, error) {
	if x == nil {
		return value{Kind: kindNone}, nil
	}
	return reflected(reflect.ValueOf(x), 0)
}

func reflected(v reflect.Value, depth int) (value, error) {
	if depth > maxDepth {
		return value{}, fmt.Errorf("%w: it is nested too deeply", errNotComparable)
	}
	if v.IsValid() && v.CanInterface() {
		switch x := v.Interface().(type) {
		case json.Number:
			return number(x.String()), nil
		case *big.Int:
			return value{Kind: kindInt, Text: x.String()}, nil
		case []byte:
			return value{Kind: kindBytes, Text: base64.StdEncoding.EncodeToString(x)}, nil
		case json.Marshaler:
			return viaJSON(x)
		}
	}
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return value{Kind: kindNone}, nil
		}
		return reflected(v.Elem(), depth+1)
	case reflect.Bool:
		return value{Kind: kindBool, Bool: v.Bool()}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return value{Kind: kindInt, Text: strconv.FormatInt(v.Int(), 10)}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return value{Kind: kindInt, Text: strconv.FormatUint(v.Uint(), 10)}, nil
	case reflect.Float32, reflect.Float64:
		return value{Kind: kindFloat, Text: strconv.FormatFloat(v.Float(), 'g', -1, v.Type().Bits())}, nil
	case reflect.String:
		return value{Kind: kindStr, Text: v.String()}, nil
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.IsNil() {
			return value{Kind: kindNone}, nil
		}
		out := value{Kind: kindList}
		for i := range v.Len() {
			item, err := reflected(v.Index(i), depth+1)
			if err != nil {
				return value{}, err
			}
			out.Items = append(out.Items, item)
		}
		return out, nil
	case reflect.Map:
		if v.IsNil() {
			return value{Kind: kindNone}, nil
		}
		out := value{Kind: kindDict}
		for key, item := range v.Seq2() {
			k, err := reflected(key, depth+1)
			if err != nil {
				return value{}, err
			}
			i, err := reflected(item, depth+1)
			if err != nil {
				return value{}, err
			}
			out.Pairs = append(out.Pairs, [2]value{k, i})
		}
		// For a text that is the same each time.
		slices.SortFunc(out.Pairs, func(a, b [2]value) int { return strings.Compare(a[0].key(), b[0].key()) })
		return out, nil
	case reflect.Struct:
		return viaJSON(v.Interface())
	}
	return value{}, fmt.Errorf("%w: %s", errNotComparable, v.Type())
}

func viaJSON(x any) (value, error) {
	b, err := json.Marshal(x)
	if err != nil {
		return value{}, fmt.Errorf("%w: %w", errNotComparable, err)
	}
	var decoded any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&decoded); err != nil {
		return value{}, fmt.Errorf("%w: %w", errNotComparable, err)
	}
	return valueOf(decoded)
}

func number(digits string) value {
	if strings.ContainsAny(digits, ".eE") {
		return value{Kind: kindFloat, Text: digits}
	}
	return value{Kind: kindInt, Text: digits}
}

// float returns a number as a float, and false if the value is none.
func (v value) float() (float64, bool) {
	if v.Kind != kindInt && v.Kind != kindFloat {
		return 0, false
	}
	f, err := strconv.ParseFloat(v.Text, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// key is the same for values that are equal, and differs for others.
func (v value) key() string {
	switch v.Kind {
	case kindNone:
		return "none"
	case kindBool:
		return strconv.FormatBool(v.Bool)
	case kindInt:
		if len(v.Text) < maxDigits {
			if n, ok := new(big.Int).SetString(v.Text, 10); ok {
				return "n" + n.String()
			}
		}
	case kindFloat:
		f, ok := v.float()
		if ok && f == math.Trunc(f) && !math.IsInf(f, 0) {
			n, _ := big.NewFloat(f).Int(nil)
			return "n" + n.String()
		}
		if ok {
			return "f" + strconv.FormatFloat(f, 'g', -1, 64)
		}
	case kindList, kindTuple, kindSet:
		var keys []string
		for _, item := range v.Items {
			keys = append(keys, counted(item.key()))
		}
		if v.Kind == kindSet {
			slices.Sort(keys)
			keys = slices.Compact(keys)
		}
		return v.Kind + strings.Join(keys, "")
	case kindDict:
		var keys []string
		for _, p := range v.Pairs {
			keys = append(keys, counted(p[0].key())+counted(p[1].key()))
		}
		slices.Sort(keys)
		return v.Kind + strings.Join(keys, "")
	}
	return v.Kind + v.Text
}

// counted makes a text that ends where it ends, whatever follows; quotes would
// grow with each level.
func counted(s string) string { return strconv.Itoa(len(s)) + ":" + s }

// equal compares what was expected with what came.
func equal(want, got value, tolerance float64, strict bool, depth int) bool {
	if depth > maxDepth || got.Kind == kindLarge {
		return false
	}
	a, number := want.float()
	b, other := got.float()
	if number && other {
		return want.key() == got.key() || tolerance > 0 && math.Abs(a-b) <= tolerance
	}
	sequence := (want.Kind == kindList || want.Kind == kindTuple) && (got.Kind == kindList || got.Kind == kindTuple)
	if want.Kind != got.Kind && (strict || !sequence) {
		return want.Kind == kindStr && got.Kind == kindOther && (want.Text == got.Text || want.Text == got.Alt)
	}
	switch want.Kind {
	case kindList, kindTuple:
		return slices.EqualFunc(want.Items, got.Items, func(x, y value) bool { return equal(x, y, tolerance, strict, depth+1) })
	case kindDict:
		if len(want.Pairs) != len(got.Pairs) {
			return false
		}
		items := map[string]value{}
		for _, p := range got.Pairs {
			items[p[0].key()] = p[1]
		}
		for _, p := range want.Pairs {
			item, ok := items[p[0].key()]
			if !ok || !equal(p[1], item, tolerance, strict, depth+1) {
				return false
			}
		}
		return true
	}
	return want.key() == got.key()
}

// String writes the value as Python does.
func (v value) String() string {
	list := func(items []value) string {
		var all []string
		for _, item := range items {
			all = append(all, item.String())
		}
		return strings.Join(all, ", ")
	}
	switch v.Kind {
	case kindNone:
		return "None"
	case kindBool:
		if v.Bool {
			return "True"
		}
		return "False"
	case kindStr:
		return strconv.Quote(v.Text)
	case kindList:
		return "[" + list(v.Items) + "]"
	case kindDict:
		var all []string
		for _, p := range v.Pairs {
			all = append(all, p[0].String()+": "+p[1].String())
		}
		return "{" + strings.Join(all, ", ") + "}"
	}
	return v.Text
}
