package codeexec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// UnmarshalJSON takes what models write for a spec, beside its JSON names: those
// of the fields in Go ("MaxFiles"), any case, and one pattern as a string.
func (s *OutputSpec) UnmarshalJSON(b []byte) error {
	type plain OutputSpec
	fields, err := looseFields(b, map[string]string{
		"globs": "globs", "maxfiles": "max_files", "maxfilebytes": "max_file_bytes", "maxtotalbytes": "max_total_bytes",
		"inline": "inline", "save": "save", "nametemplate": "name_template",
	})
	if err != nil {
		return err
	}
	if one := bytes.TrimSpace(fields["globs"]); len(one) > 0 && one[0] == '"' {
		fields["globs"] = append(append([]byte("["), one...), ']')
	}
	return fromFields(fields, (*plain)(s))
}

// UnmarshalJSON takes what models write for a spec, beside its JSON names: those
// of the fields in Go, any case, and src and dst as tRPC-Agent for Python calls
// them.
func (s *InputSpec) UnmarshalJSON(b []byte) error {
	type plain InputSpec
	fields, err := looseFields(b, map[string]string{
		"from": "from", "src": "from", "to": "to", "dst": "to", "mode": "mode", "readonly": "read_only", "pin": "pin",
	})
	if err != nil {
		return err
	}
	return fromFields(fields, (*plain)(s))
}

// looseFields reads an object whose names may be written in several ways. Names
// that mean nothing are left out, as package json does; one that is there twice
// is an error.
func looseFields(b []byte, names map[string]string) (map[string]json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, err
	}
	fields := make(map[string]json.RawMessage, len(names))
	for name, value := range all {
		known, ok := names[strings.ToLower(strings.ReplaceAll(name, "_", ""))]
		if !ok {
			continue
		}
		if _, twice := fields[known]; twice {
			return nil, fmt.Errorf("%s is there twice", known)
		}
		fields[known] = value
	}
	return fields, nil
}

func fromFields(fields map[string]json.RawMessage, into any) error {
	b, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}
