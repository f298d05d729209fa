package ec2

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"warmpath/scaler/actuate"
)

// The marks of a node.
const (
	markPrefix = "warmpath:"
	tagFleet   = markPrefix + "fleet"
	tagKey     = markPrefix + "key"
	tagName    = "Name" // what consoles show
)

var tagNames = []string{tagFleet, tagKey, tagName}

// token is what makes RunInstances idempotent: the same for a key for ever, and for no two
// keys. It is 64 ASCII characters, the most that EC2 takes. Settings are not in it: a
// second request with others shall make no second node.
func token(fleet, key string) string {
	sum := sha256.Sum256([]byte(fleet + "\x00" + key))
	return hex.EncodeToString(sum[:])
}

// request is what asks for one node.
func (o *Options) request(w actuate.Wanted) (*sdk.RunInstancesInput, error) {
	userData, err := o.userData(w)
	if err != nil {
		return nil, err
	}
	template, err := parseTemplate(o.LaunchTemplate)
	if err != nil {
		return nil, err
	}
	in := &sdk.RunInstancesInput{
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		ClientToken:       aws.String(token(o.Fleet, w.Key)),
		TagSpecifications: o.tags(w.Key),
		LaunchTemplate:    template,
		ImageId:           some(o.Image),
		InstanceType:      types.InstanceType(o.InstanceType),
		SubnetId:          some(o.Subnet),
		SecurityGroupIds:  o.SecurityGroups,
		KeyName:           some(o.KeyName),
		// A node that shuts itself down shall be gone. The default is to stop it, which
		// keeps its disks, and what they cost.
		InstanceInitiatedShutdownBehavior: types.ShutdownBehaviorTerminate,
	}
	if userData != "" {
		in.UserData = aws.String(base64.StdEncoding.EncodeToString([]byte(userData)))
	}
	switch {
	case strings.HasPrefix(o.InstanceProfile, "arn:"):
		in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Arn: some(o.InstanceProfile)}
	case o.InstanceProfile != "":
		in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Name: some(o.InstanceProfile)}
	}
	if o.Spot {
		// One that is asked for again by itself, or stopped and not ended when its price
		// is passed, would come back without anybody's asking.
		in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{
			MarketType: types.MarketTypeSpot,
			SpotOptions: &types.SpotMarketOptions{
				SpotInstanceType:             types.SpotInstanceTypeOneTime,
				InstanceInterruptionBehavior: types.InstanceInterruptionBehaviorTerminate,
				MaxPrice:                     some(o.MaxPrice),
			},
		}
	}
	return in, nil
}

// tags are on an instance and its disks from the first moment. There is no half-made
// instance without them: EC2's user guide ("Tag your Amazon EC2 resources") says that it
// rolls the creation back if a tag cannot be applied, and leaves nothing untagged at any
// time. So a list by tag finds all that was ever made.
func (o *Options) tags(key string) []types.TagSpecification {
	marks := map[string]string{tagFleet: o.Fleet, tagKey: key, tagName: key}
	maps.Copy(marks, o.Tags) // check keeps the names apart
	var tags []types.Tag
	for _, name := range slices.Sorted(maps.Keys(marks)) {
		tags = append(tags, types.Tag{Key: aws.String(name), Value: aws.String(marks[name])})
	}
	return []types.TagSpecification{
		{ResourceType: types.ResourceTypeInstance, Tags: tags},
		{ResourceType: types.ResourceTypeVolume, Tags: tags},
	}
}

var (
	templateID   = regexp.MustCompile(`^lt-[0-9a-f]+$`)
	templateName = regexp.MustCompile(`^[a-zA-Z0-9().\-/_]+$`) // its length is not looked at here: {3,128} takes 100 KB of every process
	templateTurn = regexp.MustCompile(`^([1-9][0-9]*|\$Latest|\$Default)$`)
)

// parseTemplate reads id:version or name:version; "" is none. Names have no ':'.
func parseTemplate(s string) (*types.LaunchTemplateSpecification, error) {
	if s == "" {
		return nil, nil
	}
	name, version, versioned := strings.Cut(s, ":")
	switch {
	case versioned && !templateTurn.MatchString(version):
		return nil, fmt.Errorf("version %q: use a number, $Latest or $Default", version)
	case templateID.MatchString(name):
		return &types.LaunchTemplateSpecification{LaunchTemplateId: &name, Version: some(version)}, nil
	case len(name) >= 3 && len(name) <= 128 && templateName.MatchString(name):
		return &types.LaunchTemplateSpecification{LaunchTemplateName: &name, Version: some(version)}, nil
	}
	return nil, errors.New("use its id, lt-…, or its name, of 3 to 128 letters, digits and ( ) . - / _")
}

// placeholder also finds ${word}, which is the shell's.
var placeholder = regexp.MustCompile(`\$?\{[a-z_]+\}`)

func (o *Options) checkUserData() error {
	for _, p := range placeholder.FindAllString(o.UserData, -1) {
		if !slices.Contains([]string{"{key}", "{model}", "{fleet}"}, p) && p[0] != '$' {
			return fmt.Errorf("user data has an unknown placeholder %s: use {key}, {model} or {fleet}, or put spaces inside the braces if it is none", p)
		}
	}
	if len(o.UserData) > mostUserDataBytes {
		return fmt.Errorf("user data has %d bytes: EC2 takes %d: have it fetch what it needs", len(o.UserData), mostUserDataBytes)
	}
	return nil
}

// userData is what one node runs first.
func (o *Options) userData(w actuate.Wanted) (string, error) {
	var err error
	text := placeholder.ReplaceAllStringFunc(o.UserData, func(p string) string {
		switch {
		case p == "{key}":
			return w.Key
		case p == "{fleet}":
			return o.Fleet
		case p != "{model}":
			return p
		case w.Model == "":
			err = errors.New("user data has {model}, and no model was named: name one in the offer, or write it into the user data")
		case strings.ContainsFunc(w.Model, func(r rune) bool { return !inModel(r) }):
			// It is put into a script that a shell runs.
			err = fmt.Errorf("user data has {model}, and model %q has more in it than letters, digits and - _ . : / @ +: write it into the user data", w.Model)
		}
		return w.Model
	})
	if err == nil && len(text) > mostUserDataBytes {
		err = fmt.Errorf("user data has %d bytes with its placeholders filled in: EC2 takes %d", len(text), mostUserDataBytes)
	}
	return text, err
}

func inModel(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:/@+", r)
}

// some is nil for "": EC2 takes an empty parameter for a wrong one.
func some(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
