package actuate

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Place is a URL for people: without its user, its query and its fragment, where secrets
// stand.
func Place(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(no URL)" // and so nobody can tell what of it may be shown
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
	if at := strings.LastIndexByte(u.Opaque, '@'); at >= 0 {
		u.Opaque = u.Opaque[at+1:]
	}
	return u.String()
}

// Discreet is an error of net/http or net/url without what Place leaves out: those have
// the whole URL in them.
func Discreet(err error) error {
	var of *url.Error
	if !errors.As(err, &of) {
		return err
	}
	return fmt.Errorf("%s %q: %w", of.Op, Place(of.URL), of.Err)
}
