package ec2

import (
	"context"
	"fmt"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"

	"warmpath/scaler/actuate"
)

// noCredentials says that a request was not even signed.
type noCredentials struct{ error }

func (e *noCredentials) Unwrap() error { return e.error }

// credentials are what the SDK finds. It reads its shared files once; after EC2 has refused
// what was in them they are read again, as somebody may have corrected them.
type credentials struct {
	again func(context.Context) (aws.CredentialsProvider, error) // nil = they are not the SDK's to find

	mu      sync.Mutex
	found   aws.CredentialsProvider // guarded by mu
	refused bool                    // guarded by mu; since they were read
}

// Retrieve implements aws.CredentialsProvider. It tells the failure to find any from all
// others: the SDK has no name for it.
func (c *credentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	from, err := c.now(ctx)
	if err != nil {
		return aws.Credentials{}, &noCredentials{err}
	}
	found, err := from.Retrieve(ctx)
	if err != nil {
		return found, &noCredentials{fmt.Errorf("no credentials: %w", err)}
	}
	return found, nil
}

func (c *credentials) now(ctx context.Context) (aws.CredentialsProvider, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.refused || c.again == nil {
		return c.found, nil
	}
	found, err := c.again(ctx)
	if err == nil {
		c.found, c.refused = found, false
	}
	return c.found, err
}

// hear takes note of what became of a call.
func (c *credentials) hear(err error) {
	r := actuate.AsRefusal(verdict(err))
	if r == nil || r.Reason != actuate.Credential {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = true
}
