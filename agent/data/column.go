package data

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// column is what is known of a column, or of the values at one place of JSON.
type column struct {
	name             string
	values, missing  int
	numbers, whole   int
	exact            int   // numbers that are written as integers of at most 64 bits
	low, high        int64 // of those
	booleans, dates  int
	least, most      float64
	firstDay, endDay string
	examples         []string
}

const maxExamples = 3

// layouts are how dates are recognised: those that sort as they are.
var layouts = []string{time.DateOnly, "2006-01", time.DateTime, time.RFC3339}

// add takes a value as text. Numbers, dates and booleans are recognised if typed
// is not set, as in a CSV.
func (c *column) add(value string, typed bool) {
	value = strings.TrimSpace(value)
	if !typed {
		switch strings.ToLower(value) {
		case "", "na", "n/a", "nan", "null", "none", "-":
			c.missing++
			return
		}
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			c.number(value, n)
			return
		}
		if v := strings.ToLower(value); v == "true" || v == "false" {
			c.values++
			c.booleans++
			return
		}
	}
	c.values++
	if isDate(value) {
		if c.dates++; c.dates == 1 || value < c.firstDay {
			c.firstDay = value
		}
		c.endDay = max(c.endDay, value)
	}
	if len(c.examples) < maxExamples && !slices.Contains(c.examples, clipBytes(value)) {
		c.examples = append(c.examples, strings.Clone(clipBytes(value)))
	}
}

func isDate(s string) bool {
	if len(s) < len("2006-01") || len(s) > 40 || s[4] != '-' {
		return false
	}
	return slices.ContainsFunc(layouts, func(l string) bool { _, err := time.Parse(l, s); return err == nil })
}

// number takes a number as it is written and as a float, which has fewer digits.
func (c *column) number(text string, n float64) {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		if c.exact == 0 {
			c.low, c.high = i, i
		}
		c.exact++
		c.low, c.high = min(c.low, i), max(c.high, i)
	}
	if c.numbers == 0 {
		c.least, c.most = n, n
	}
	c.values++
	c.numbers++
	if n == float64(int64(n)) {
		c.whole++
	}
	c.least, c.most = min(c.least, n), max(c.most, n)
}

// line describes the column.
func (c *column) line() string {
	s := "column " + quoted(c.name) + ": "
	span := func(kind string) string { return fmt.Sprintf("%s, %g to %g", kind, c.least, c.most) }
	switch c.values {
	case 0:
		s += "nothing"
	case c.numbers:
		if c.exact == c.numbers {
			s += fmt.Sprintf("integer, %d to %d", c.low, c.high)
		} else if c.whole == c.numbers {
			s += span("integer")
		} else {
			s += span("number")
		}
	case c.booleans:
		s += "boolean"
	case c.dates:
		s += fmt.Sprintf("date, %s to %s", quoted(c.firstDay), quoted(c.endDay))
	default:
		s += "text"
		if c.numbers > 0 {
			s += fmt.Sprintf(", %d of %d are numbers", c.numbers, c.values)
		}
		for i, e := range c.examples {
			s += []string{", such as ", ", ", ", "}[i] + quoted(e)
		}
	}
	if c.missing > 0 {
		s += fmt.Sprintf("; %d missing", c.missing)
	}
	return s + "\n"
}

// linesOf describes columns.
func linesOf(columns []*column, all int) string {
	var b strings.Builder
	for _, c := range columns[:min(len(columns), MaxColumns)] {
		b.WriteString(c.line())
	}
	if all > MaxColumns {
		fmt.Fprintf(&b, "and %d more\n", all-MaxColumns)
	}
	return b.String()
}
