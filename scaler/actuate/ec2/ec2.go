package ec2

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	static "github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go/logging"

	"warmpath/scaler/actuate"
)

const (
	pageSize  = 1000 // the most that EC2 gives at once
	mostPages = 100
)

// Actuator makes nodes of instances. Any goroutine may call its methods.
type Actuator struct {
	o      Options
	client *sdk.Client
	signs  *credentials // of the client
	page   int32        // instances in one page of a list

	mu     sync.Mutex
	recent recent          // guarded by mu
	making map[string]bool // keys that RunInstances is under way for; guarded by mu
}

var _ actuate.Actuator = (*Actuator)(nil)

// New checks the options and contacts nobody: whether EC2 takes the credentials, and has
// what is asked for, Create and List tell. It reads the SDK's shared files.
func New(o Options) (*Actuator, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("actuator ec2: %w", err)
	}
	client, signs, err := o.connect()
	if err != nil {
		return nil, fmt.Errorf("actuator ec2: %w", err)
	}
	return &Actuator{o: o, client: client, signs: signs, page: pageSize, recent: recent{}, making: map[string]bool{}}, nil
}

// connect makes the client. It contacts nobody.
func (o *Options) connect() (*sdk.Client, *credentials, error) {
	ctx, cancel := context.WithTimeout(context.Background(), o.Timeout)
	defer cancel()
	c, err := o.settings(ctx)
	if err != nil {
		return nil, nil, err
	}
	signs := &credentials{found: c.Credentials}
	if o.AccessKey == "" {
		signs.again = func(ctx context.Context) (aws.CredentialsProvider, error) {
			c, err := o.settings(ctx)
			return c.Credentials, err
		}
	}
	return sdk.NewFromConfig(c, func(to *sdk.Options) {
		to.Credentials = signs
		if o.Endpoint != "" {
			to.BaseEndpoint = &o.Endpoint
		}
		if o.Client != nil {
			to.HTTPClient = o.Client
		}
	}), signs, nil
}

// settings are the SDK's, from its environment variables and shared files.
func (o *Options) settings(ctx context.Context) (aws.Config, error) {
	load := []func(*config.LoadOptions) error{
		config.WithRegion(o.Region),
		config.WithAppID("warmpath-scaler"),
		config.WithLogger(logging.LoggerFunc(func(class logging.Classification, format string, v ...any) {
			level := slog.LevelDebug
			if class == logging.Warn {
				level = slog.LevelWarn
			}
			o.Log.Log(context.Background(), level, "AWS SDK: "+fmt.Sprintf(format, v...))
		})),
	}
	if o.Profile != "" {
		load = append(load, config.WithSharedConfigProfile(o.Profile))
	}
	if o.AccessKey != "" {
		load = append(load, config.WithCredentialsProvider(static.NewStaticCredentialsProvider(o.AccessKey, o.SecretKey, o.Session)))
	}
	c, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return aws.Config{}, fmt.Errorf("read the AWS SDK's settings, profile %q: %w", o.Profile, err)
	}
	return c, nil
}

// Close implements actuate.Actuator. There is nothing to close: the nodes stay, and idle
// connections end by themselves.
func (a *Actuator) Close() error { return nil }

// Create implements actuate.Actuator. It looks for the key among the fleet's instances,
// and asks for one if there is none. A key whose instance has ended is not made again:
// that instance is returned, Ended.
func (a *Actuator) Create(ctx context.Context, w actuate.Wanted) (actuate.Instance, error) {
	i, err := a.create(ctx, w)
	if err != nil {
		return actuate.Instance{}, fmt.Errorf("make node %q in %s: %w", w.Key, a.o.Region, verdict(err))
	}
	return i, nil
}

func (a *Actuator) create(ctx context.Context, w actuate.Wanted) (actuate.Instance, error) {
	if err := actuate.CheckKey(w.Key); err != nil {
		return actuate.Instance{}, actuate.Refused(actuate.Settings, err)
	}
	in, err := a.o.request(w)
	if err != nil {
		return actuate.Instance{}, actuate.Refused(actuate.Settings, err)
	}
	all, err := a.describe(ctx)
	if err != nil {
		return actuate.Instance{}, err
	}
	there, found, err := a.begin(w.Key, all)
	if found || err != nil {
		return there, err
	}
	out, err := call(ctx, a, a.client.RunInstances, in, onceUnlessThrottled)
	return a.finish(w.Key, out, err)
}

// begin returns the node that has the key, or makes sure that there is room for it.
func (a *Actuator) begin(key string, listed []types.Instance) (there actuate.Instance, found bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	live := len(a.making)
	for _, i := range a.recent.merge(a.view(listed), time.Now()) {
		if i.Phase != actuate.Ended {
			live++
		}
		if i.Key == key && (!found || before(i, there)) {
			there, found = i, true
		}
	}
	switch {
	case found:
		return there, true, nil
	case a.making[key]:
		return there, false, errors.New("it is being made by another call")
	case live >= a.o.MaxNodes:
		return there, false, actuate.Refused(actuate.Quota, fmt.Errorf("the fleet %q has %d nodes, and may have %d: end some, or raise the bound", a.o.Fleet, live, a.o.MaxNodes))
	}
	a.making[key] = true
	return there, false, nil
}

// before orders instances of one key: those that end come last, and else the order is
// always the same.
func before(a, b actuate.Instance) bool {
	if a, b := max(a.Phase, actuate.Running), max(b.Phase, actuate.Running); a != b {
		return a < b
	}
	return a.ID < b.ID
}

// finish takes the answer to RunInstances.
func (a *Actuator) finish(key string, out *sdk.RunInstancesOutput, err error) (actuate.Instance, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.making, key)
	switch {
	case codeOf(err) == codeTokenEnded:
		return actuate.Instance{Key: key, Phase: actuate.Ended, Detail: err.Error()}, nil
	case codeOf(err) == codeTokenOther:
		// That request may have made one, which is not listed yet.
		return actuate.Instance{}, fmt.Errorf("this key was asked for before, with other settings: the list will tell whether that made a node: %w", err)
	case err != nil:
		return actuate.Instance{}, err
	case len(out.Instances) != 1 || aws.ToString(out.Instances[0].InstanceId) == "":
		return actuate.Instance{}, fmt.Errorf("one instance was asked for, and the answer has %d", len(out.Instances))
	}
	i := a.o.instance(&out.Instances[0])
	i.Key = key
	a.recent.add(i, time.Now())
	return i, nil
}

// onceUnlessThrottled has the SDK ask again only when it is told that nothing was done.
// After any other failure something may have been, and the caller looks before it asks
// again. The token would keep AWS from making two; others that speak its language do not
// all know tokens.
func onceUnlessThrottled(to *sdk.Options) {
	to.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
		o.Retryables = []retry.IsErrorRetryable{retry.NoRetryCanceledError{}, retry.RetryableErrorCode{Codes: retry.DefaultThrottleErrorCodes}}
	})
}

// List implements actuate.Actuator. EC2 goes on listing instances that have ended for
// about an hour, and so does this.
func (a *Actuator) List(ctx context.Context) ([]actuate.Instance, error) {
	all, err := a.describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the nodes of fleet %q in %s: %w", a.o.Fleet, a.o.Region, verdict(err))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.recent.merge(a.view(all), time.Now()), nil
}

func (a *Actuator) view(all []types.Instance) []actuate.Instance {
	seen := make([]actuate.Instance, len(all))
	for i := range all {
		seen[i] = a.o.instance(&all[i])
	}
	return seen
}

// Delete implements actuate.Actuator. Without an ID it ends every instance that has the
// key. It ends none that does not carry the fleet's mark.
func (a *Actuator) Delete(ctx context.Context, i actuate.Instance) error {
	if err := a.delete(ctx, i); err != nil {
		return fmt.Errorf("end node %q (%s) in %s: %w", i.Key, cmp.Or(i.ID, "all of its key"), a.o.Region, verdict(err))
	}
	return nil
}

func (a *Actuator) delete(ctx context.Context, i actuate.Instance) error {
	filter := types.Filter{Name: aws.String("instance-id"), Values: []string{i.ID}}
	if i.ID == "" {
		if err := actuate.CheckKey(i.Key); err != nil {
			return actuate.Refused(actuate.Settings, err)
		}
		filter = types.Filter{Name: aws.String("tag:" + tagKey), Values: []string{i.Key}}
	}
	found, err := a.describe(ctx, filter)
	if err != nil {
		return err
	}
	targets, err := a.targets(i, found)
	if err != nil {
		return err
	}
	return endAll(targets, func(id string) error { return a.terminate(ctx, id) })
}

// endAll ends each, whatever becomes of the others. It is refused only if all were: a
// refusal says that nothing was ended.
func endAll(ids []string, end func(id string) error) error {
	if len(ids) == 1 {
		return end(ids[0])
	}
	var failed []error
	refused := 0
	for _, id := range ids {
		err := end(id)
		if err == nil {
			continue
		}
		if actuate.AsRefusal(verdict(err)) != nil {
			refused++
		}
		failed = append(failed, fmt.Errorf("%s: %w", id, err))
	}
	err := errors.Join(failed...)
	if err != nil && refused < len(ids) {
		return errors.New(err.Error()) // its words alone
	}
	return err
}

// targets returns the ids of what has to be told to end.
func (a *Actuator) targets(i actuate.Instance, found []types.Instance) ([]string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var ids []string
	known := map[string]bool{}
	take := func(is actuate.Instance, end bool) error {
		switch {
		case i.ID != "" && is.ID != i.ID || i.ID == "" && is.Key != i.Key:
			return nil // nothing that was asked for
		case i.Key != "" && is.Key != "" && is.Key != i.Key:
			return actuate.Refused(actuate.Settings, fmt.Errorf("the key of %s is %q: name that, or its id alone", is.ID, is.Key))
		}
		known[is.ID] = true
		if end {
			ids = append(ids, is.ID)
		}
		return nil
	}
	for n := range found {
		if err := take(a.o.instance(&found[n]), !ends(&found[n])); err != nil {
			return nil, err
		}
	}
	for id, m := range a.recent {
		if known[id] {
			continue
		}
		if err := take(m.Instance, true); err != nil {
			return nil, err
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// terminate ends one instance: of several in one request, one that is not known would keep
// the others alive.
func (a *Actuator) terminate(ctx context.Context, id string) error {
	_, err := call(ctx, a, a.client.TerminateInstances, &sdk.TerminateInstancesInput{InstanceIds: []string{id}})
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.recent.end(id)
		return nil
	case codeOf(err) != codeNoInstance:
		return err
	case a.recent[id] != nil && time.Since(a.recent[id].at) < listsLag:
		// EC2's developer guide ("Eventual consistency") warns that it may run all the same.
		return fmt.Errorf("it was made a moment ago, and is not known everywhere yet: %v", err)
	}
	return nil
}

// describe returns the instances of the fleet that meet the filters: all of them, or an
// error.
func (a *Actuator) describe(ctx context.Context, filters ...types.Filter) ([]types.Instance, error) {
	in := &sdk.DescribeInstancesInput{
		Filters:    append([]types.Filter{{Name: aws.String("tag:" + tagFleet), Values: []string{a.o.Fleet}}}, filters...),
		MaxResults: &a.page,
	}
	var all []types.Instance
	seen := map[string]bool{} // what moves between pages may be on two
	for range mostPages {
		out, err := call(ctx, a, a.client.DescribeInstances, in)
		if err != nil {
			return nil, err
		}
		for _, r := range out.Reservations {
			for n := range r.Instances {
				if is := &r.Instances[n]; a.o.ours(is) && !seen[aws.ToString(is.InstanceId)] {
					seen[aws.ToString(is.InstanceId)] = true
					all = append(all, *is)
				}
			}
		}
		if aws.ToString(out.NextToken) == "" {
			return all, nil
		}
		in.NextToken = out.NextToken
	}
	return nil, fmt.Errorf("the list has more than %d pages of %d instances", mostPages, a.page)
}

// call makes one call to EC2. That its caller left, or that there was no answer in time, is
// no refusal, whatever else the SDK says about it.
func call[In, Out any](ctx context.Context, a *Actuator, do func(context.Context, *In, ...func(*sdk.Options)) (*Out, error), in *In, with ...func(*sdk.Options)) (*Out, error) {
	within, cancel := context.WithTimeoutCause(ctx, a.o.Timeout, fmt.Errorf("no answer within %v", a.o.Timeout))
	defer cancel()
	out, err := do(within, in, with...)
	a.signs.hear(err)
	switch {
	case err == nil:
		return out, nil
	case within.Err() != nil: // also if ctx has ended
		return nil, fmt.Errorf("%w: %v", context.Cause(within), err)
	}
	var answered *awshttp.ResponseError
	if !errors.As(err, &answered) || answered.RequestID == "" {
		return nil, err
	}
	a.o.Log.Debug("EC2 answered with an error", "request_id", answered.RequestID, "err", err)
	return nil, &said{err, strings.Replace(err.Error(), "RequestID: "+answered.RequestID+", ", "", 1)}
}
