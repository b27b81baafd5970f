package weir

import (
	"context"
	"fmt"
	"strings"
)

const blanks = " \t\n\v\f\r"

// DetectOptions of a function whose argument is an A.
type DetectOptions[A any] struct {
	// Costs finds the cost of a call, before weir is asked; nil: one request.
	Costs func(argument A) Costs
	// RefundOnError gives the cost back when the function returns an error or panics. A call whose context is over keeps its charge:
	// otherwise a client could have work done, and disconnect.
	RefundOnError bool
}

// Detect returns a function that charges each call of `function`, or returns a *TooFrequent instead of calling it. `key` says for whom
// the call counts: a blank one is an error. `function` holds a slot of a limit with `concurrent` for as long as it runs. A mistake in the arguments
// of Detect itself panics: a nil function, a blank event, more than one DetectOptions.
func Detect[A, R any](
	client *Client, event string, key func(argument A) string, function func(context.Context, A) (R, error), options ...DetectOptions[A],
) func(context.Context, A) (R, error) {
	switch {
	case client == nil || key == nil || function == nil:
		panic("weir: Detect needs a client, a key and a function; one of them is nil")
	case strings.Trim(event, blanks) == "":
		panic("weir: Detect: the event is blank; name the one that the rules match")
	case strings.Contains(event, "\x00"):
		panic("weir: Detect: an event has no NUL")
	case len(options) > 1:
		panic("weir: Detect: more than one DetectOptions")
	}
	var how DetectOptions[A]
	if len(options) == 1 {
		how = options[0]
	}
	return func(ctx context.Context, argument A) (result R, err error) {
		request := Request{Event: event, Key: key(argument), Refundable: how.RefundOnError}
		if how.Costs != nil {
			// No costs are an amount, too: 0. They must not become the default.
			if request.Costs = how.Costs(argument); request.Costs == nil {
				request.Costs = Costs{}
			}
		}
		verdict, err := client.enter(ctx, &request)
		if err != nil {
			return result, err
		}
		failed := true
		defer func() { // also if the function panics
			client.leave(verdict, event, failed && how.RefundOnError && ctx.Err() == nil)
		}()
		result, err = function(ctx, argument)
		failed = err != nil
		return result, err
	}
}

// enter charges a call, or returns an error.
func (c *Client) enter(ctx context.Context, request *Request) (*Verdict, error) {
	if strings.Trim(request.Key, blanks) == "" {
		return nil, fmt.Errorf("weir: the key for %s is blank; it says for whom the call counts", request.Event)
	}
	verdict, err := c.check(ctx, request, "refused")
	if err != nil {
		return nil, err
	}
	if !verdict.Allowed {
		return nil, &TooFrequent{verdict}
	}
	return &verdict, nil
}
