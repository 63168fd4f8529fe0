package data

import (
	"bytes"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby"
)

// CSV describes a table in text. Its encoding (UTF-8, UTF-16 with a mark, else
// Windows' and Latin 1) and its delimiter (comma, semicolon, tab, bar) are found
// out; the file stays as it is.
func CSV(name string, content []byte) (Source, error) {
	s, err := newSource(name, content)
	if err != nil {
		return s, err
	}
	text, encoding := decoded(content)
	comma := delimiter(text)
	r := csv.NewReader(strings.NewReader(text))
	r.Comma, r.LazyQuotes, r.FieldsPerRecord, r.ReuseRecord = comma, true, -1, true
	var (
		columns             []*column
		rows, width, uneven int
		header              bool
		first               strings.Builder
	)
	for {
		record, err := r.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return s, &cubby.Error{Op: "describe data", Code: cubby.CodeInvalidArgument, Err: fmt.Errorf("%s is no table: %w", name, err)}
		}
		if columns == nil {
			width, header = len(record), isHeader(record)
			for i, cell := range record[:min(width, MaxColumns)] {
				if !header {
					cell = fmt.Sprint("number ", i+1)
				}
				columns = append(columns, &column{name: strings.Clone(clipBytes(cell))})
			}
			if header {
				continue
			}
		}
		rows++
		if len(record) != width {
			uneven++
		}
		for i, c := range columns {
			if i < len(record) {
				c.add(record[i], false)
			} else {
				c.missing++
			}
		}
		if rows <= MaxRows {
			fmt.Fprintf(&first, "row %d:", rows)
			for _, cell := range record[:min(len(record), MaxColumns)] {
				first.WriteString(" " + quoted(cell))
			}
			first.WriteString("\n")
		}
	}
	if columns == nil {
		return s, &cubby.Error{Op: "describe data", Code: cubby.CodeInvalidArgument, Err: errors.New(name + " is empty")}
	}
	head := fmt.Sprintf("The file %s is a table in text (%s, delimiter %q) with %d columns and %d rows", quoted(name), encoding, string(comma), width, rows)
	if header {
		head += " below a header."
	} else {
		head += " and no header."
	}
	if uneven > 0 {
		head += fmt.Sprintf(" %d rows have more or fewer fields.", uneven)
	}
	s.Description = described(head, linesOf(columns, width)+first.String())
	return s, nil
}

// isHeader reports whether the first row names columns: no cell is a number.
func isHeader(record []string) bool {
	for _, cell := range record {
		if _, err := strconv.ParseFloat(strings.TrimSpace(cell), 64); err == nil {
			return false
		}
	}
	return true
}

// decoded returns a text and how it was encoded.
func decoded(b []byte) (text, encoding string) {
	switch {
	case bytes.HasPrefix(b, []byte("\xef\xbb\xbf")):
		return strings.ToValidUTF8(string(b[3:]), "\uFFFD"), "UTF-8 with a byte order mark"
	case bytes.HasPrefix(b, []byte("\xff\xfe")):
		return wide(b[2:], binary.LittleEndian), "UTF-16, little endian"
	case bytes.HasPrefix(b, []byte("\xfe\xff")):
		return wide(b[2:], binary.BigEndian), "UTF-16, big endian"
	case utf8.Valid(b):
		return string(b), "UTF-8"
	}
	var out strings.Builder
	for _, c := range b {
		out.WriteRune(rune(c))
	}
	return out.String(), "no UTF-8: perhaps Windows-1252"
}

func wide(b []byte, order binary.ByteOrder) string {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = order.Uint16(b[2*i:])
	}
	return string(utf16.Decode(units))
}

// delimiter is what most evenly parts the first lines.
func delimiter(text string) rune {
	best, most := ',', 0
	for _, d := range ",;\t|" {
		r := csv.NewReader(strings.NewReader(text[:min(len(text), 64<<10)]))
		r.Comma, r.LazyQuotes, r.FieldsPerRecord = d, true, -1
		fields, score := 0, 0
		for range 20 {
			record, err := r.Read()
			if err != nil {
				break
			}
			if fields == 0 {
				fields = len(record)
			}
			if len(record) == fields && fields > 1 {
				score += min(fields, 100)
			}
		}
		if score > most {
			best, most = d, score
		}
	}
	return best
}
