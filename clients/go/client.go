// Package weir asks the rate limiter weir whether something may go through.
//
//	client, err := weir.Connect("redis://127.0.0.1:6380", weir.Options{})
//
//	submit := weir.Detect(client, "ocr", func(job Job) string { return job.User }, submitOCR)
//	result, err := submit(ctx, job) // a *TooFrequent if the user has submitted too many
//
//	http.ListenAndServe(":8000", weir.Middleware(client, weir.HTTP{})(mux))
//
// docs/go.md in weir's tree describes all of it.
package weir

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"
)

// Policy is what happens to calls that the service does not answer.
type Policy int

const (
	Allow  Policy = iota // they are let through
	Refuse               // they are refused
)

const (
	defaultDeadline = 50 * time.Millisecond
	deadlineMax     = time.Hour
)

// Options of a connection. The zero value has the defaults.
type Options struct {
	// Deadline is how long a call waits for the answer; 0: 50 ms.
	Deadline time.Duration
	// WhenUnreachable decides calls without an answer: Allow or Refuse.
	WhenUnreachable Policy
	// Logf gets a line when an outage begins, and one when it ends; nil: log.Printf.
	Logf func(format string, args ...interface{})
}

// ErrClosed is returned by calls after Close.
var ErrClosed = errors.New("weir: this client is closed")

// ServiceError says that what answers is not weir, is too old, or that weir does not accept the call.
type ServiceError struct {
	Where string // the address, without its token
	Says  string
}

func (e *ServiceError) Error() string {
	return fmt.Sprintf("weir at %s answers: %s", e.Where, e.Says)
}

// errUnreachable: the call has no answer. It never leaves the package.
var errUnreachable = errors.New("weir: unreachable")

// Client asks the service. Any number of goroutines may use one.
type Client struct {
	deadline time.Duration
	policy   Policy
	logf     func(format string, args ...interface{})
	reach    *reach
	line     *line
}

// Connect makes a client of the service at redis://HOST:PORT, unix:///PATH or redis://:TOKEN@HOST:PORT; rediss:// is over TLS.
// The service need not run yet.
func Connect(url string, options Options) (*Client, error) {
	if options.Deadline == 0 {
		options.Deadline = defaultDeadline
	}
	if options.Deadline < 0 || options.Deadline > deadlineMax {
		return nil, fmt.Errorf("weir: the deadline %v is not above 0 and at most %v", options.Deadline, deadlineMax)
	}
	if options.WhenUnreachable != Allow && options.WhenUnreachable != Refuse {
		return nil, fmt.Errorf("weir: WhenUnreachable is Allow or Refuse, not %d", options.WhenUnreachable)
	}
	if options.Logf == nil {
		options.Logf = log.Printf
	}
	settings, where, err := readURL(url)
	if err != nil {
		return nil, err
	}
	then := "let through"
	if options.WhenUnreachable == Refuse {
		then = "refused"
	}
	c := &Client{deadline: options.Deadline, policy: options.WhenUnreachable, logf: options.Logf}
	c.reach = &reach{where: where, then: then, logf: options.Logf}
	c.line = &line{redis: redis.NewClient(settings), deadline: options.Deadline, reach: c.reach}
	return c, nil
}

// Close lets calls in progress end, and closes the connections after the last of them. Later calls return ErrClosed.
func (c *Client) Close() {
	c.line.close()
}

// Unreachable returns the number of calls that were decided without the service, because it did not answer.
func (c *Client) Unreachable() uint64 {
	return c.reach.undecided.Load()
}

// Check decides, and charges what passes. A refusal is a verdict, not an error. If the service does not answer, the verdict
// is Unavailable, and Options.WhenUnreachable decides. An error is a mistake in the request, a *ServiceError, ErrClosed, or
// that of the context.
func (c *Client) Check(ctx context.Context, request Request) (Verdict, error) {
	return c.check(ctx, &request, "always")
}

// check asks for what to tell an HTTP client "always", or if "refused".
func (c *Client) check(ctx context.Context, request *Request, answer string) (Verdict, error) {
	words, err := request.words(answer)
	if err != nil {
		return Verdict{}, err
	}
	reply, err := c.ask(ctx, words)
	if err == errUnreachable {
		return c.undecided(), nil
	}
	if err != nil {
		return Verdict{}, err
	}
	verdict, ok := readVerdict(reply, request.Refundable)
	if !ok {
		return Verdict{}, &ServiceError{c.reach.where, fmt.Sprintf("%.80q, which weir does not; it is not weir, or too old", fmt.Sprint(reply))}
	}
	return verdict, nil
}

func (c *Client) undecided() Verdict {
	c.reach.undecided.Add(1)
	if c.policy == Allow {
		return Verdict{Allowed: true, Unavailable: true}
	}
	return Verdict{Status: 503, Unavailable: true}
}

// ask returns the answer, or errUnreachable.
func (c *Client) ask(ctx context.Context, words []interface{}) (interface{}, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if size := bytesOf(words); size > requestBytesMax {
		return nil, fmt.Errorf("weir: the request has %d bytes; at most %d are allowed", size, requestBytesMax)
	}
	if !c.reach.mayAsk() {
		return nil, errUnreachable
	}
	return c.line.ask(ctx, words)
}
