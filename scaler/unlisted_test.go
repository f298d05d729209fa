package scaler

import (
	"errors"
	"fmt"
	"testing"

	"warmpath/scaler/actuate"
)

// said counts the lines of the log that a step makes.
func said(effects []BookEffect) (lines int) {
	for _, e := range effects {
		if _, ok := e.(Tell); ok {
			lines++
		}
	}
	return lines
}

// Words of a provider that differ each time do not fill the log, and what is said last
// can be read all the same.
func TestUnlisted(t *testing.T) {
	b := NewBook(BookSettings{Offers: []Offer{{Name: "o"}}}, nil)
	now, lines := int64(1), 0
	list := func(err error) {
		now += listEveryNs
		lines += said(b.Step(Listed{NowNs: now, Offer: "o", AskedNs: now, Err: err}))
	}
	for i := range 240 { // an hour
		list(fmt.Errorf("AuthFailure, RequestID %d", i))
	}
	if got := b.Offers()[0]; lines < 4 || lines > 8 || got.Unlisted != "AuthFailure, RequestID 239" || got.Withheld != got.Unlisted {
		t.Errorf("%d lines in an hour, %+v", lines, got)
	}
	lines = 0
	list(nil)
	if got := b.Offers()[0]; lines != 1 || got.Unlisted != "" || got.Withheld != "" {
		t.Errorf("well again: %d lines, %+v", lines, got)
	}
	for range 240 {
		list(errors.New("the same"))
	}
	if got := b.Offers()[0]; lines != 2 || got.Unlisted != "the same" || got.Withheld != "" {
		t.Errorf("failing again: %d lines, %+v", lines, got)
	}
}

// What was asked for at once fails for one cause, and rests its offer once.
func TestOneCause(t *testing.T) {
	b := NewBook(BookSettings{Offers: []Offer{{Name: "o"}}}, nil)
	b.Step(Listed{NowNs: 1, Offer: "o"})
	refused := func(now int64) (rest int64) {
		var keys []string
		for _, e := range b.Step(Ordered{NowNs: now, Start: []Start{{"o", 3}}}) {
			if c, ok := e.(CallCreate); ok {
				keys = append(keys, c.Key)
			}
		}
		if len(keys) != 3 {
			t.Fatalf("at %d s %d nodes were asked for", now/1e9, len(keys))
		}
		for _, key := range keys {
			b.Step(Created{NowNs: now, Offer: "o", Key: key, Err: actuate.Refused(actuate.Quota, errors.New("4 of 4"))})
		}
		return b.offers["o"].until - now
	}
	if rest := refused(2); rest != 300e9 {
		t.Errorf("it rests for %d s", rest/1e9)
	}
	if got := b.Offers()[0].Withheld; got != "refused for quota: 4 of 4" {
		t.Errorf("withheld for %q", got)
	}
	if rest := refused(301e9); rest != 600e9 {
		t.Errorf("the second time it rests for %d s", rest/1e9)
	}
}
