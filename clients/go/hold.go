package weir

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

// Settle says what a request with a hold has truly cost. A unit that is not named keeps what was held; Requests(0) alone gives
// back everything; nil leaves everything as it was held. It returns the number of limits that were settled: 0 if that was done
// before, if `held` is empty, or if the service does not answer. `held` is the Hold, or the Receipt, of a verdict.
func (c *Client) Settle(ctx context.Context, held string, costs Costs) (int, error) {
	words, err := settling(held, costs)
	if err != nil {
		return 0, err
	}
	return c.end(ctx, held, words)
}

// Renew lets the hold last for `ttl` from now on. It returns the number of limits that still hold: 0 if it is over.
func (c *Client) Renew(ctx context.Context, held string, ttl time.Duration) (int, error) {
	if err := ttlMistake(ttl); err != nil {
		return 0, err
	}
	return c.end(ctx, held, []interface{}{"WEIR.RENEW", held, "ttl", milliseconds(ttl)})
}

// Release frees slots of limits with `concurrent`; everything else stays charged.
func (c *Client) Release(ctx context.Context, held string) (int, error) {
	return c.Settle(ctx, held, nil)
}

// Refund gives back what a Refundable request was charged, or cancels a hold. It returns the number of limits: 0 if there is
// nothing to give back (any more).
func (c *Client) Refund(ctx context.Context, held string) (int, error) {
	return c.Settle(ctx, held, Requests(0))
}

func settling(held string, costs Costs) ([]interface{}, error) {
	if err := costs.mistake(); err != nil {
		return nil, err
	}
	amount, named := costs[requests]
	if named && amount == 0 && len(costs) == 1 {
		return []interface{}{"WEIR.REFUND", held}, nil
	}
	words := []interface{}{"WEIR.SETTLE", held}
	if named {
		words = append(words, "cost", strconv.FormatInt(amount, 10))
	}
	return costs.others(words), nil
}

// end: what cannot be sent ends after its time to live.
func (c *Client) end(ctx context.Context, held string, words []interface{}) (int, error) {
	if held == "" {
		return 0, nil
	}
	reply, err := c.ask(ctx, words)
	if err == errUnreachable {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	count, ok := reply.(int64)
	if !ok {
		return 0, &ServiceError{c.reach.where, fmt.Sprintf("%.80q in place of a number", fmt.Sprint(reply))}
	}
	return int(count), nil
}

// Hold is what Reserve gives to its function. The first of Settle and Cancel ends it; later ones return 0. Its methods need no context: a
// hold ends although the work was cancelled.
type Hold struct {
	Verdict Verdict

	client *Client
	ended  atomic.Bool
}

// Settle says the true amounts, see Client.Settle.
func (h *Hold) Settle(costs Costs) (int, error) {
	if err := costs.mistake(); err != nil || !h.ended.CompareAndSwap(false, true) {
		return 0, err
	}
	return h.client.Settle(context.Background(), h.Verdict.Hold, costs)
}

// Cancel gives back everything.
func (h *Hold) Cancel() (int, error) {
	return h.Settle(Requests(0))
}

// Renew lets the hold last for `ttl` from now on. It returns the number of limits that still hold: 0 if it is over.
func (h *Hold) Renew(ttl time.Duration) (int, error) {
	if h.ended.Load() {
		return 0, ttlMistake(ttl)
	}
	return h.client.Renew(context.Background(), h.Verdict.Hold, ttl)
}

// Reserve holds the costs for work whose true costs are known only later, or returns a *TooFrequent. The work settles what it is
// given with the true amounts. If it returns an error or panics, everything is given back; if it ends without settling, what was held
// stays charged. Should this process die, the hold ends after the TTL of the request.
func (c *Client) Reserve(ctx context.Context, request Request, work func(ctx context.Context, hold *Hold) error) error {
	if request.TTL == 0 {
		return errors.New("weir: Reserve needs a TTL: how long the hold lasts if nobody ends it")
	}
	verdict, err := c.check(ctx, &request, "always")
	if err != nil {
		return err
	}
	if !verdict.Allowed {
		return &TooFrequent{verdict}
	}
	hold := &Hold{Verdict: verdict, client: c}
	costs := Requests(0)
	defer func() { // also if the work panics
		if _, err := hold.Settle(costs); err != nil {
			c.logf("weir: a hold could not be settled; it ends after its time to live: %v", err)
		}
	}()
	if err := work(ctx, hold); err != nil {
		return err
	}
	costs = nil
	return nil
}

// leave ends a call or a request: it frees slots, or gives back everything. The caller is to see how the call ended, so errors are only
// logged.
func (c *Client) leave(verdict *Verdict, what string, refund bool) {
	var err error
	switch {
	case refund && verdict.Receipt != "":
		_, err = c.Refund(context.Background(), verdict.Receipt)
	case verdict.Hold != "":
		_, err = c.Release(context.Background(), verdict.Hold)
	}
	if err != nil {
		c.logf("weir: a charge or a hold for %s could not be given back: %v", what, err)
	}
}
