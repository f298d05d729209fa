package chat

import "strconv"

// Clock is the civil time that strftime_now shows: the engine's local time,
// since that is what transformers asks for (datetime.now()).
type Clock struct {
	Year, Month, Day     int // Month and Day from 1
	Hour, Minute, Second int
	Microsecond          int
}

var (
	monthNames = [...]string{"January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"}
	dayNames   = [...]string{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"}
)

func (c *Clock) leap() bool {
	return c.Year%4 == 0 && (c.Year%100 != 0 || c.Year%400 == 0)
}

// yearDay is the day of the year, from 1.
func (c *Clock) yearDay() int {
	before := [...]int{0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334}
	day := before[c.Month-1] + c.Day
	if c.Month > 2 && c.leap() {
		day++
	}
	return day
}

// weekday is the day of the week, from Sunday = 0.
func (c *Clock) weekday() int {
	y := c.Year - 1
	return (y + y/4 - y/100 + y/400 + c.yearDay()) % 7
}

func (c *Clock) valid() bool {
	return c.Year >= 1000 && c.Year <= 9999 && c.Month >= 1 && c.Month <= 12 && c.Day >= 1 && c.Day <= 31 &&
		c.Hour >= 0 && c.Hour < 24 && c.Minute >= 0 && c.Minute < 60 && c.Second >= 0 && c.Second < 62
}

// globalStrftime is strftime_now(format) of transformers, in the C locale.
func globalStrftime(m *Machine, in Value, p []Value) (Value, error) {
	format, err := m.textArg("strftime() argument 1", p[0])
	if err != nil {
		return in, err
	}
	m.run.usedTime = true
	if !m.Now.valid() {
		return in, inexact("the time: Machine.Now is not set")
	}
	out := m.scratch[:0]
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			out = append(out, format[i])
			continue
		}
		i++
		bare := i < len(format) && format[i] == '-' // glibc: without leading zeros
		if bare {
			i++
		}
		if i >= len(format) {
			return in, inexact("a time format that ends with %%")
		}
		var ok bool
		if out, ok = m.Now.append(out, format[i], bare); !ok {
			return in, inexact("the time format %%%c", format[i])
		}
	}
	m.scratch = out
	return Text(m.keep(out)), nil
}

// appendPadded appends n with zeros on its left up to width.
func appendPadded(out []byte, n, width int) []byte {
	digits := 1
	for rest := n; rest >= 10; rest /= 10 {
		digits++
	}
	for ; digits < width; digits++ {
		out = append(out, '0')
	}
	return strconv.AppendInt(out, int64(n), 10)
}

// append writes one conversion of C's strftime; ok is false if it is not
// known.
func (c *Clock) append(out []byte, verb byte, bare bool) (_ []byte, ok bool) {
	n, width := 0, 2
	switch verb {
	case 'd':
		n = c.Day
	case 'm':
		n = c.Month
	case 'y':
		n = c.Year % 100
	case 'H':
		n = c.Hour
	case 'I':
		n = (c.Hour+11)%12 + 1
	case 'M':
		n = c.Minute
	case 'S':
		n = c.Second
	case 'j':
		n, width = c.yearDay(), 3
	default:
		if bare {
			return out, false
		}
		return c.appendOther(out, verb)
	}
	if bare {
		width = 0
	}
	return appendPadded(out, n, width), true
}

// appendOther writes the conversions that have no form without zeros.
func (c *Clock) appendOther(out []byte, verb byte) (_ []byte, ok bool) {
	switch verb {
	case 'Y':
		return appendPadded(out, c.Year, 4), true
	case 'f':
		return appendPadded(out, c.Microsecond, 6), true
	case 'w':
		return appendPadded(out, c.weekday(), 1), true
	case 'u':
		return appendPadded(out, (c.weekday()+6)%7+1, 1), true
	case 'b', 'h':
		return append(out, monthNames[c.Month-1][:3]...), true
	case 'B':
		return append(out, monthNames[c.Month-1]...), true
	case 'a':
		return append(out, dayNames[c.weekday()][:3]...), true
	case 'A':
		return append(out, dayNames[c.weekday()]...), true
	case 'p':
		return append(out, [...]string{"AM", "PM"}[c.Hour/12]...), true
	case 'F':
		out = append(appendPadded(out, c.Year, 4), '-')
		out = append(appendPadded(out, c.Month, 2), '-')
		return appendPadded(out, c.Day, 2), true
	case 'T':
		out = append(appendPadded(out, c.Hour, 2), ':')
		out = append(appendPadded(out, c.Minute, 2), ':')
		return appendPadded(out, c.Second, 2), true
	case 'Z', 'z': // datetime.now() has no time zone
		return out, true
	case '%':
		return append(out, '%'), true
	}
	return out, false
}
