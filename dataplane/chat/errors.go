package chat

import (
	"errors"
	"fmt"
)

// Class says what an Error means to the caller.
type Class uint8

const (
	// Unsupported: the template has a construct that this package does not
	// have, or that no Python would compile. Compile only.
	Unsupported Class = iota
	// Raised: Python would raise an error too, so the engine will refuse the
	// request; what the template says with raise_exception is in Message.
	Raised
	// Inexact: what Python would do is not known here.
	Inexact
	// Limit: the work is larger than Machine.Limits allow.
	Limit
	// Malformed: the JSON cannot be read.
	Malformed
)

func (c Class) String() string {
	switch c {
	case Unsupported:
		return "unsupported"
	case Raised:
		return "raised"
	case Inexact:
		return "inexact"
	case Limit:
		return "limit"
	case Malformed:
		return "malformed"
	}
	return fmt.Sprintf("class %d", uint8(c))
}

// Error is the only type of error that this package returns.
type Error struct {
	Class Class
	// Template is the name that the template was compiled with, if any.
	Template string
	// Line of the template, from 1; 0 if the error has none.
	Line int
	// Message names what went wrong and, where there is one, the remedy.
	Message string
}

func (e *Error) Error() string {
	where := ""
	if e.Line > 0 {
		where = fmt.Sprintf("template line %d: ", e.Line)
	}
	if e.Template != "" {
		where = e.Template + ": " + where
	}
	return fmt.Sprintf("chat: %s: %s%s", e.Class, where, e.Message)
}

// ClassOf returns the class of an error of this package; Inexact for any other.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return Inexact
}

func raised(format string, args ...any) error {
	return &Error{Class: Raised, Message: fmt.Sprintf(format, args...)}
}

func inexact(format string, args ...any) error {
	return &Error{Class: Inexact, Message: fmt.Sprintf(format, args...)}
}

// atLine adds the line to an error that has none yet: the innermost wins.
func atLine(err error, line int) error {
	if e, ok := err.(*Error); ok && e.Line == 0 {
		e.Line = line
	}
	return err
}

func withName(err error, name string) error {
	if e, ok := err.(*Error); ok {
		e.Template = name
	}
	return err
}
