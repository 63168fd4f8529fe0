package main

import (
	"strings"
	"testing"
)

func TestTimeouts(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"60s", "1m"}, {"90", "1m30s"}, {"1.5s", "1.5s"}, {"2h", "2h0m"},
		{"0", ""}, {"-1s", ""}, {"25h", ""}, {"1us", ""}, {"soon", ""},
	} {
		var d timeValue
		err := d.Set(tt.in)
		if (err == nil) != (tt.want != "") || err == nil && d.String() != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.in, d.String(), err, tt.want)
		}
	}
}

func TestParseShare(t *testing.T) {
	there := func(name string) bool { return name == "a:b" }
	for _, tt := range []struct{ in, local, remote string }{
		{"data.csv", "data.csv", "/home/user/data.csv"},
		{"x/data.csv", "x/data.csv", "/home/user/data.csv"},
		{"data.csv:in.csv", "data.csv", "/home/user/in.csv"},
		{"data.csv:in/", "data.csv", "/home/user/in/data.csv"},
		{"data.csv:/tmp/x", "data.csv", "/tmp/x"},
		{"a:b", "a:b", "/home/user/a:b"},
		{"a:b:c", "a:b", "/home/user/c"},
		{"dir/", "dir/", "/home/user/dir"},
		{"dir:.", "dir", "/home/user"},
		{":x", "", ""}, {"x:", "", ""}, {"x:..", "", ""}, {"x:../../etc", "", ""}, {"", "", ""},
	} {
		got, err := parseShare(tt.in, there)
		if got != (share{tt.local, tt.remote}) || (err == nil) != (tt.local != "") {
			t.Errorf("%q: %+v, %v", tt.in, got, err)
		}
	}
}

func FuzzParseShare(f *testing.F) {
	for _, s := range []string{"a:b", "a:../b", ":", "a:/../..", "a::", "a:b/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		s, err := parseShare(in, func(string) bool { return false })
		if err == nil && (s.local == "" || !strings.HasPrefix(s.remote, "/") || strings.Contains(s.remote+"/", "/../")) {
			t.Errorf("%q became %+v", in, s)
		}
	})
}

func TestShebang(t *testing.T) {
	for _, tt := range []struct{ first, want string }{
		{"#!/usr/bin/python3", "python"}, {"#!/usr/bin/env python3.12", "python"}, {"#! /bin/sh -e", "bash"},
		{"#!/usr/bin/env -S A=1 node --x", "javascript"}, {"#!/usr/bin/env bun", "typescript"}, {"#!/usr/bin/perl", ""},
		{"#!", ""}, {"#!/usr/bin/env", ""}, {"print(1)", ""}, {"", ""},
	} {
		if got := shebang(tt.first + "\nrest"); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.first, got, tt.want)
		}
	}
}
