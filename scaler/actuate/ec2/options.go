package ec2

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"warmpath/scaler/actuate"
)

// Addresses that a node's URL is made of.
const (
	Private = "private"
	Public  = "public"
)

// MaxNodes bounds the nodes of one fleet in a region: a pool of the scaler's has no more.
const MaxNodes = 1024

const (
	defaultTimeout = 30 * time.Second
	// Limits of EC2, from its user guide: "Tag restrictions" and "Instance user data".
	mostTags          = 50 // of one resource
	mostTagKey        = 128
	mostTagValue      = 256
	mostUserDataBytes = 16 << 10 // before base64
)

// Options say what a node is, and by which account it is made.
type Options struct {
	Region   string // such as eu-south-1
	Endpoint string // base URL of the API; "" = AWS, or what the SDK is told by its own settings
	Fleet    string // marks the nodes; as a key in form

	// AccessKey, SecretKey and, of temporary ones, Session are credentials. Without them
	// the SDK looks where it always does: its environment variables, the profile of the
	// shared files, the role of the host.
	AccessKey, SecretKey, Session string
	Profile                       string // of the SDK's shared files; "" = its default

	// LaunchTemplate is the id or the name of one, and ":version" (a number, $Latest or
	// $Default; without it $Default). What is given beside it takes its place in it.
	LaunchTemplate  string
	Image           string // id; "" = the template's
	InstanceType    string // "" = the template's
	Subnet          string // id; "" = the template's, or the default one
	SecurityGroups  []string
	KeyName         string
	InstanceProfile string // name or ARN
	// UserData is what an instance runs first. {key}, {model} and {fleet} stand for the
	// node's own; other words of small letters in braces are refused. ${word} is the
	// shell's and stays as it is, and so does { word }.
	UserData string
	Spot     bool
	MaxPrice string            // of a spot instance, in USD an hour; "" = the on-demand price
	Tags     map[string]string // added to the marks

	Address  string        // Private or Public; "" = Private
	Port     int           // of the engine
	MaxNodes int           // of the fleet in the region, whoever made them; 0 = MaxNodes
	Timeout  time.Duration // of one call to EC2, with all that the SDK tries; 0 = 30 s
	Log      *slog.Logger
	Client   *http.Client // in place of the SDK's own
}

// check fills in defaults and returns what is wrong.
func (o *Options) check() error {
	o.Address = cmp.Or(o.Address, Private)
	o.MaxNodes = cmp.Or(o.MaxNodes, MaxNodes)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.SecurityGroups, o.Tags = slices.Clone(o.SecurityGroups), maps.Clone(o.Tags)
	switch {
	case !regionForm.MatchString(o.Region):
		return fmt.Errorf("region %q: name one, such as eu-south-1", o.Region)
	case o.Address != Private && o.Address != Public:
		return fmt.Errorf("address %q: use %s or %s", o.Address, Private, Public)
	case o.Port < 1 || o.Port > 65535:
		return fmt.Errorf("port %d: use that of the engine, 1 to 65535", o.Port)
	case o.MaxNodes < 0 || o.MaxNodes > MaxNodes:
		return fmt.Errorf("max nodes %d: use 1 to %d, or 0, which is %d", o.MaxNodes, MaxNodes, MaxNodes)
	case o.Timeout < 0:
		return fmt.Errorf("timeout %v: use a time above 0", o.Timeout)
	}
	if err := actuate.CheckKey(o.Fleet); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	if err := checkEndpoint(o.Endpoint); err != nil {
		return fmt.Errorf("endpoint %q: %w", actuate.Place(o.Endpoint), err)
	}
	for _, check := range []func() error{o.checkCredentials, o.checkLaunch, o.checkPrice, o.checkUserData, o.checkTags} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

var regionForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)

func checkEndpoint(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return actuate.Discreet(err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.User != nil:
		return errors.New("use https://host without a user or a query, or \"\", which is AWS")
	}
	return nil
}

func (o *Options) checkCredentials() error {
	switch {
	case (o.AccessKey == "") != (o.SecretKey == ""):
		return errors.New("of access key and secret key one is missing: give both, or neither, so that the SDK looks for them")
	case o.Session != "" && o.AccessKey == "":
		return errors.New("a session token is given and no access key: give both, or neither")
	case o.AccessKey != "" && o.Profile != "":
		return fmt.Errorf("an access key is given, and profile %q, too: take one out", o.Profile)
	}
	return nil
}

var securityGroupForm = regexp.MustCompile(`^sg-[0-9a-f]+$`)

func (o *Options) checkLaunch() error {
	if o.LaunchTemplate == "" && o.Image == "" {
		return errors.New("image is empty: name one (ami-…), or a launch template that does")
	}
	if o.LaunchTemplate == "" && o.InstanceType == "" {
		return errors.New("instance type is empty: name one, or a launch template that does")
	}
	if _, err := parseTemplate(o.LaunchTemplate); err != nil {
		return fmt.Errorf("launch template %q: %w", o.LaunchTemplate, err)
	}
	for i, group := range o.SecurityGroups {
		if !securityGroupForm.MatchString(group) {
			return fmt.Errorf("security group %d %q: use its id, sg-…", i+1, group)
		}
	}
	return nil
}

var priceForm = regexp.MustCompile(`^[0-9]{1,6}(\.[0-9]{1,6})?$`)

func (o *Options) checkPrice() error {
	if o.MaxPrice == "" {
		return nil
	}
	if !o.Spot {
		return fmt.Errorf("max price %q is of spot instances: set spot, or take it out", o.MaxPrice)
	}
	if price, err := strconv.ParseFloat(o.MaxPrice, 64); err != nil || price <= 0 || !priceForm.MatchString(o.MaxPrice) {
		return fmt.Errorf("max price %q: use USD an hour, such as 1.25", o.MaxPrice)
	}
	return nil
}

func (o *Options) checkTags() error {
	marks := len(tagNames)
	if len(o.Tags) > mostTags-marks {
		return fmt.Errorf("%d tags: EC2 takes %d, and %d are the marks: use at most %d", len(o.Tags), mostTags, marks, mostTags-marks)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Tags)) {
		value := o.Tags[name]
		switch {
		case name == "" || utf8.RuneCountInString(name) > mostTagKey:
			return fmt.Errorf("tag %q: its name has %d letters: use 1 to %d", name, utf8.RuneCountInString(name), mostTagKey)
		case utf8.RuneCountInString(value) > mostTagValue:
			return fmt.Errorf("tag %q: its value has %d letters: use at most %d", name, utf8.RuneCountInString(value), mostTagValue)
		case !utf8.ValidString(name) || !utf8.ValidString(value):
			return fmt.Errorf("tag %q = %q is no UTF-8", name, value)
		case strings.HasPrefix(strings.ToLower(name), "aws:"):
			return fmt.Errorf("tag %q: names with aws: are AWS's own: use another", name)
		case strings.HasPrefix(name, markPrefix) || name == tagName:
			return fmt.Errorf("tag %q is set for each node: take it out", name)
		}
	}
	return nil
}
