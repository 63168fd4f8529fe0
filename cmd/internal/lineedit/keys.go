package lineedit

import (
	"bytes"
	"unicode/utf8"
)

// key is what a person did: a command, or text.
type key struct {
	do    action
	text  string // of insert
	paste bool   // text was pasted, and may have many lines
}

// action is a command of the editor.
type action uint8

const (
	nothing action = iota
	insert
	accept
	newline
	left
	right
	up
	down
	wordLeft
	wordRight
	lineStart
	lineEnd
	deleteLeft
	deleteRight
	deleteWordLeft
	deleteWordRight
	deleteToStart
	deleteToEnd
	yank
	search
	clearScreen
	interrupt
	endOfInput // Ctrl-D: deletes to the right where there is something
	cancel     // a search
	older
	newer
	suspend
)

// controls are the keys that are one byte. Line ends of both kinds accept: what was
// typed while nobody read has been changed from one to the other by the kernel.
var controls = map[byte]action{
	'\r': accept, '\n': accept, 0x7f: deleteLeft, '\b': deleteLeft,
	ctrl('a'): lineStart, ctrl('e'): lineEnd, ctrl('b'): left, ctrl('f'): right, ctrl('p'): older, ctrl('n'): newer,
	ctrl('c'): interrupt, ctrl('d'): endOfInput, ctrl('g'): cancel, ctrl('k'): deleteToEnd, ctrl('l'): clearScreen,
	ctrl('r'): search, ctrl('u'): deleteToStart, ctrl('w'): deleteWordLeft, ctrl('y'): yank,
	ctrl('z'): suspend,
}

func ctrl(letter byte) byte { return letter & 0x1f }

// sequences are the keys that terminals send as an escape sequence, without the
// escape. What has the form of one and is none of these is left out.
var sequences = map[string]action{
	"[A": up, "OA": up, "[B": down, "OB": down, "[C": right, "OC": right, "[D": left, "OD": left,
	"[H": lineStart, "OH": lineStart, "[1~": lineStart, "[7~": lineStart, "[F": lineEnd, "OF": lineEnd, "[4~": lineEnd, "[8~": lineEnd,
	"[3~": deleteRight, "[1;5D": wordLeft, "[1;3D": wordLeft, "[5D": wordLeft, "[1;5C": wordRight, "[1;3C": wordRight, "[5C": wordRight,
	"[3;5~": deleteWordRight, "[3;3~": deleteWordRight, "[13;2u": newline, "[27;2;13~": newline, "[13;5u": newline, "[13;3u": newline,
	"b": wordLeft, "f": wordRight, "d": deleteWordRight, "\x7f": deleteWordLeft, "\b": deleteWordLeft, "\r": newline, "\n": newline,
}

const (
	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
	pasteOn    = "\x1b[?2004h" // have pastes begin and end so
	pasteOff   = "\x1b[?2004l"
	maxPaste   = 1 << 20 // bytes; what is more is left out
	maxKey     = 64      // bytes of a sequence
)

// keys makes keys of the bytes that a terminal sends, however they are cut.
type keys struct {
	pending []byte
	pasting bool
	pasted  []byte
}

func (k *keys) add(b []byte) { k.pending = append(k.pending, b...) }

// next returns the next key, and false where more bytes are needed for it.
func (k *keys) next() (key, bool) {
	if k.pasting {
		return k.paste()
	}
	if len(k.pending) == 0 {
		return key{}, false
	}
	if c := k.pending[0]; c == 0x1b {
		return k.sequence()
	} else if c < 0x20 || c == 0x7f {
		k.pending = k.pending[1:]
		return key{do: controls[c]}, true
	}
	// Text comes in pieces as large as there are: letters of one character belong
	// together.
	n := 0
	for n < len(k.pending) && k.pending[n] >= 0x20 && k.pending[n] != 0x7f && utf8.FullRune(k.pending[n:]) {
		_, size := utf8.DecodeRune(k.pending[n:])
		n += size
	}
	if n == 0 {
		return key{}, false
	}
	text := string(bytes.ToValidUTF8(k.pending[:n], nil))
	k.pending = k.pending[n:]
	return key{do: insert, text: text}, true
}

// sequence reads a key that begins with an escape. An escape alone waits for the
// next key, which it changes, as in a shell.
func (k *keys) sequence() (key, bool) {
	p := k.pending
	if len(p) < 2 {
		return key{}, false
	}
	n := 2
	switch p[1] {
	case '[':
		for n < len(p) && n < maxKey && p[n] >= 0x20 && p[n] < 0x40 {
			n++
		}
		if n == len(p) {
			return key{}, false
		}
		if p[n] >= 0x40 && p[n] < 0x7f {
			n++
		}
	case 'O':
		if len(p) < 3 {
			return key{}, false
		}
		n = 3
	default:
		if p[1] >= utf8.RuneSelf || p[1] == 0x1b || p[1] == ctrl('c') || p[1] == ctrl('d') {
			n = 1 // what follows counts, the escape does not
		}
	}
	text := string(p[:n])
	k.pending = p[n:]
	if text == pasteBegin {
		k.pasting, k.pasted = true, nil
		return k.paste()
	}
	return key{do: sequences[text[1:]]}, true
}

func (k *keys) paste() (key, bool) {
	i := bytes.Index(k.pending, []byte(pasteEnd))
	take := i
	if i < 0 {
		take = max(len(k.pending)-len(pasteEnd)+1, 0) // the end may have begun
	}
	k.pasted = append(k.pasted, k.pending[:min(take, maxPaste-len(k.pasted))]...)
	k.pending = k.pending[take:]
	if i < 0 {
		return key{}, false
	}
	k.pending = k.pending[len(pasteEnd):]
	k.pasting = false
	text := string(bytes.ToValidUTF8(k.pasted, nil))
	k.pasted = nil
	return key{do: insert, text: text, paste: true}, true
}
