package doctor

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"warmpath/controlplane/kernel"
)

// Report is what warmpath doctor prints.
type Report struct {
	Kernel Kernel  `json:"kernel"`
	Checks []Check `json:"checks"`
}

// Kernel is how much the kernel would tell a router that is started here as this
// process was.
type Kernel struct {
	Tier    kernel.Tier     `json:"tier"`
	Reasons []kernel.Reason `json:"reasons"` // why it is not full
}

// Check is one thing that was looked at.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Needed bool   `json:"needed"` // the router does not serve as configured without it
	Detail string `json:"detail"`
	Remedy string `json:"remedy"` // "" if ok
}

func good(name, format string, args ...any) Check {
	return Check{Name: name, OK: true, Detail: fmt.Sprintf(format, args...)}
}

// lacking is a check that says what could be better.
func lacking(name, detail, remedy string) Check {
	return Check{Name: name, Detail: detail, Remedy: remedy}
}

// broken is a check that says why the router will not serve.
func broken(name, detail, remedy string) Check {
	return Check{Name: name, Needed: true, Detail: detail, Remedy: remedy}
}

// needed marks a check of what the router cannot do without.
func needed(c Check) Check {
	c.Needed = true
	return c
}

// Failed counts what is needed and not ok, and what else is not ok.
func (r *Report) Failed() (needed, other int) {
	for _, c := range r.Checks {
		switch {
		case c.OK:
		case c.Needed:
			needed++
		default:
			other++
		}
	}
	return needed, other
}

// Print writes the report for a person: a line a check, the remedy below it.
func (r *Report) Print(w io.Writer) error {
	width := 0
	for _, c := range r.Checks {
		width = max(width, utf8.RuneCountInString(c.Name))
	}
	var b strings.Builder
	for _, c := range r.Checks {
		state := "ok"
		switch {
		case !c.OK && c.Needed:
			state = "FAIL"
		case !c.OK:
			state = "note"
		}
		fmt.Fprintf(&b, "%-4s  %-*s  %s\n", state, width, c.Name, c.Detail)
		if c.Remedy != "" {
			fmt.Fprintf(&b, "%*s→ %s\n", 4+2+width+2, "", c.Remedy)
		}
	}
	switch failed, other := r.Failed(); {
	case failed > 0:
		fmt.Fprintf(&b, "\n%s\n", failures(failed))
	case other > 0:
		fmt.Fprintf(&b, "\neverything that is needed works; what is marked note could be better\n")
	default:
		fmt.Fprintf(&b, "\neverything works\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Err is nil if everything that is needed works.
func (r *Report) Err() error {
	if failed, _ := r.Failed(); failed > 0 {
		return fmt.Errorf("doctor: %s", failures(failed))
	}
	return nil
}

func failures(n int) string {
	if n == 1 {
		return "1 check of what is needed failed"
	}
	return fmt.Sprintf("%d checks of what is needed failed", n)
}
