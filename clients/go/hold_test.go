package weir

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func used(t testing.TB, client *Client, key string) int64 {
	t.Helper()
	verdict := check(t, client, Request{Event: "llm", Key: key, Costs: Costs{"tokens": 1001}, Peek: true})
	return 1000 - verdict.Remaining
}

func isFree(t testing.TB, client *Client, key string) bool {
	t.Helper()
	return check(t, client, Request{Event: "job", Key: key, Peek: true}).Allowed
}

func held(key string) Request {
	return Request{Event: "llm", Key: key, Costs: Costs{"requests": 1, "tokens": 60}, TTL: 10 * time.Minute}
}

var errWork = errors.New("the work failed")

func count(t testing.TB, wanted int, what string) func(int, error) {
	return func(found int, err error) {
		t.Helper()
		if found != wanted || err != nil {
			t.Fatalf("%s: %d %v, expected %d", what, found, err, wanted)
		}
	}
}

func TestReserve(t *testing.T) {
	client := remote(t)
	for _, c := range []struct {
		name string
		work func(*Hold) error
		left int64
	}{
		{"ends without settling", func(*Hold) error { return nil }, 60},
		{"settles", func(h *Hold) error { count(t, 2, "settled")(h.Settle(Costs{"tokens": 25})); return nil }, 25},
		{"settles with more", func(h *Hold) error { count(t, 2, "settled")(h.Settle(Costs{"tokens": 90})); return nil }, 90},
		{"settles, and fails", func(h *Hold) error { count(t, 2, "settled")(h.Settle(Costs{"tokens": 7})); return errWork }, 7},
		{"fails", func(*Hold) error { return errWork }, 0},
		{"cancels", func(h *Hold) error {
			count(t, 2, "cancelled")(h.Cancel())
			count(t, 0, "later")(h.Settle(nil))
			return nil
		}, 0},
		{"panics", func(*Hold) error { panic(errWork) }, 0},
	} {
		key := newKey()
		func() {
			defer func() { _ = recover() }()
			_ = client.Reserve(background, held(key), func(_ context.Context, h *Hold) error {
				expect(t, used(t, client, key), int64(60), c.name+": held")
				count(t, 2, "renewed")(h.Renew(time.Minute))
				return c.work(h)
			})
		}()
		expect(t, used(t, client, key), c.left, c.name)
	}
}

func TestReserveRefusesAndChecks(t *testing.T) {
	client, key := remote(t), newKey()
	request := held(key)
	request.Costs = Costs{"tokens": 1001}
	var refused *TooFrequent
	never := func(context.Context, *Hold) error { t.Error("called"); return nil }
	err := client.Reserve(background, request, never)
	expect(t, errors.As(err, &refused) && refused.Verdict.Limit == "tokens", true, fmt.Sprint(err))
	err = client.Reserve(background, Request{Event: "llm", Key: key}, never)
	expect(t, strings.Contains(err.Error(), "Reserve needs a TTL"), true, err.Error())
	err = client.Reserve(background, held(key), func(_ context.Context, h *Hold) error {
		_, err := h.Settle(Costs{"tokens": -1})
		expect(t, err != nil, true, "a mistake")
		_, err = h.Renew(0)
		expect(t, err != nil, true, "a mistake")
		count(t, 2, "a mistake did not end it")(h.Settle(Costs{"tokens": 1}))
		return nil
	})
	expect(t, err, nil, "reserve")
	expect(t, used(t, client, key), int64(1), "used")
}

func TestACancelledContextEndsAHold(t *testing.T) {
	client, key := remote(t), newKey()
	ctx, cancel := context.WithCancel(background)
	err := client.Reserve(ctx, held(key), func(ctx context.Context, _ *Hold) error { cancel(); <-ctx.Done(); return ctx.Err() })
	expect(t, err, context.Canceled, "error")
	expect(t, used(t, client, key), int64(0), "given back")
	ctx, cancel = context.WithCancel(background)
	_ = client.Reserve(ctx, held(key), func(ctx context.Context, h *Hold) error {
		cancel()
		count(t, 2, "settled")(h.Settle(Costs{"tokens": 3}))
		return ctx.Err()
	})
	expect(t, used(t, client, key), int64(3), "settled with what was done")
}

func TestByHand(t *testing.T) {
	client, key := remote(t), newKey()
	text := check(t, client, held(key)).Hold
	count(t, 2, "renewed")(client.Renew(background, text, time.Minute))
	count(t, 2, "settled")(client.Settle(background, text, Requests(0)))
	count(t, 0, "again")(client.Refund(background, text))
	charged := check(t, client, Request{Event: "llm", Key: key, Costs: Costs{"tokens": 60}, Refundable: true})
	expect(t, charged.Hold == "" && charged.Receipt != "", true, "receipt")
	count(t, 1, "refunded")(client.Refund(background, charged.Receipt))
	expect(t, used(t, client, key), int64(0), "used")
	short := held(key)
	short.TTL, short.KeepOnExpiry = time.Millisecond, true
	check(t, client, short)
	short.KeepOnExpiry = false
	check(t, client, short)
	until(t, "one hold is over, and one is kept", func() bool { return used(t, client, key) == 60 })
	count(t, 0, "nothing")(client.Settle(background, "", Requests(1)))
	_, err := client.Refund(background, "rubbish")
	var said *ServiceError
	expect(t, errors.As(err, &said) && strings.Contains(err.Error(), "receipt"), true, fmt.Sprint(err))
}

func TestSlots(t *testing.T) {
	client, key := remote(t), newKey()
	first := check(t, client, Request{Event: "job", Key: key})
	expect(t, first.Hold != "" && first.Receipt == "" && !isFree(t, client, key), true, "taken")
	count(t, 2, "released")(client.Release(background, first.Hold))
	second := check(t, client, Request{Event: "job", Key: key, Refundable: true})
	expect(t, second.Hold != "" && second.Hold == second.Receipt, true, "hold and receipt")
	count(t, 2, "refunded")(client.Refund(background, second.Receipt))
	expect(t, isFree(t, client, key), true, "free")
}

func TestAServiceThatDiesMeanwhileKeepsTheHold(t *testing.T) {
	service := serve(t).start()
	client := connect(t, service.url, Options{Deadline: ample})
	var text string
	err := client.Reserve(background, held("u"), func(_ context.Context, h *Hold) error {
		text = h.Verdict.Hold
		service.end(syscall.SIGKILL)
		count(t, 0, "renewed")(h.Renew(time.Minute))
		return nil
	})
	expect(t, err, nil, "reserve")
	service.start()
	until(t, "it is asked again", asks(t, client, "u"))
	expect(t, used(t, client, "u"), int64(60), "nobody could settle it")
	count(t, 2, "settled")(client.Settle(background, text, Costs{"tokens": 8}))
	expect(t, used(t, client, "u"), int64(8), "settled")
}

// ---- Detect ----

type job struct {
	user string
	fail error
	boom bool
}

func jobUser(j job) string { return j.user }

func detected(t *testing.T, client *Client, event string, options ...DetectOptions[job]) func(context.Context, job) (string, error) {
	return Detect(client, event, jobUser, func(_ context.Context, j job) (string, error) {
		if event == "job" && isFree(t, client, j.user) {
			t.Error("the slot is free while the call runs")
		}
		if j.boom {
			panic("boom")
		}
		return "done for " + j.user, j.fail
	}, options...)
}

func TestDetect(t *testing.T) {
	client, key := remote(t), newKey()
	submit := detected(t, client, "ocr")
	for i := 0; i < 2; i++ {
		result, err := submit(background, job{user: key})
		expect(t, err, nil, "error")
		expect(t, result, "done for "+key, "result")
	}
	result, err := submit(background, job{user: key})
	var refused *TooFrequent
	expect(t, errors.As(err, &refused) && result == "", true, fmt.Sprint(err))
	expect(t, refused.Verdict.RetryAfter > 0, true, "retry after")
	expect(t, strings.HasPrefix(err.Error(), "too frequent: rule ocr, limit hour (at most 2); try again in "), true, err.Error())
	for _, blank := range []string{"", " ", "\t\r\n"} {
		_, err := submit(background, job{user: blank})
		expect(t, err != nil && strings.Contains(err.Error(), "the key for ocr is blank"), true, fmt.Sprint(err))
	}
}

func TestDetectHoldsASlot(t *testing.T) {
	client, key := remote(t), newKey()
	work := detected(t, client, "job")
	for _, j := range []job{{user: key}, {user: key, fail: errWork}, {user: key, boom: true}, {user: key}} {
		func() {
			defer func() { expect(t, recover() != nil, j.boom, "the panic reaches the caller") }()
			_, err := work(background, j)
			expect(t, err, j.fail, "error")
		}()
		expect(t, isFree(t, client, key), true, "free after the call")
	}
}

func TestDetectGivesBack(t *testing.T) {
	client := remote(t)
	options := DetectOptions[job]{Costs: func(job) Costs { return Costs{"requests": 1, "tokens": 60} }, RefundOnError: true}
	work := detected(t, client, "llm", options)
	ended, cancel := context.WithCancel(background)
	for _, c := range []struct {
		job  job
		left int64
	}{{job{}, 60}, {job{fail: errWork}, 0}, {job{boom: true}, 0}} {
		c.job.user = newKey()
		func() {
			defer func() { _ = recover() }()
			_, _ = work(background, c.job)
		}()
		expect(t, used(t, client, c.job.user), c.left, fmt.Sprint(c))
	}
	key := newKey()
	leaves := Detect(client, "llm", jobUser, func(ctx context.Context, _ job) (int, error) { cancel(); return 0, ctx.Err() }, options)
	_, err := leaves(ended, job{user: key})
	expect(t, err, context.Canceled, "error")
	expect(t, used(t, client, key), int64(60), "a cancelled call keeps its charge")
}

func TestDetectAndCosts(t *testing.T) {
	client, key := remote(t), newKey()
	costs := Costs{"tokens": -1}
	work := detected(t, client, "llm", DetectOptions[job]{Costs: func(job) Costs { return costs }})
	_, err := work(background, job{user: key})
	expect(t, err != nil && strings.Contains(err.Error(), "the cost -1 in tokens"), true, fmt.Sprint(err))
	costs = nil
	_, err = work(background, job{user: key})
	expect(t, err, nil, "no costs")
	expect(t, check(t, client, Request{Event: "llm", Key: key, Costs: Requests(100), Peek: true}).Allowed, true, "no costs are 0")
}

func TestDetectMistakes(t *testing.T) {
	client := remote(t)
	function := func(context.Context, job) (int, error) { return 0, nil }
	for words, wrong := range map[string]func(){
		"nil":           func() { Detect(nil, "ocr", jobUser, function) },
		"is blank":      func() { Detect(client, " ", jobUser, function) },
		"has no NUL":    func() { Detect(client, "a\x00b", jobUser, function) },
		"more than one": func() { Detect(client, "ocr", jobUser, function, DetectOptions[job]{}, DetectOptions[job]{}) },
	} {
		func() {
			defer func() { said := fmt.Sprint(recover()); expect(t, strings.Contains(said, words), true, said) }()
			wrong()
		}()
	}
}

func TestDetectWhenNobodyListens(t *testing.T) {
	client := connect(t, fmt.Sprintf("redis://127.0.0.1:%d", freePort(t)), Options{Deadline: ample, WhenUnreachable: Refuse})
	_, err := detected(t, client, "ocr")(background, job{user: "u"})
	expect(t, err != nil && err.Error() == "refused, since weir or the store of its counters does not answer", true, fmt.Sprint(err))
}

func TestPanicsWithManyHoldsOpen(t *testing.T) {
	client := remote(t)
	work := detected(t, client, "job")
	var group sync.WaitGroup
	for i := 0; i < 100; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			key := newKey()
			for n := 0; n < 3; n++ {
				func() {
					defer func() { _ = recover() }()
					_, err := work(background, job{user: key, boom: true})
					t.Error("not called: ", err)
				}()
			}
			if !isFree(t, client, key) {
				t.Error("a slot is in use")
			}
		}()
	}
	group.Wait()
}
