package weir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	connectionsMax  = 8
	batchMax        = 256
	batchBytesMax   = 64 << 10 // more than this goes alone: it cannot harm others if the service takes less
	requestBytesMax = 1 << 20  // as the service's request-bytes
	patience        = 4        // deadlines of an exchange, see swap()
	starved         = 1.2      // deadlines after which a timer was late, because the program did not run
)

// The states of a question. The one who leaves `waiting` first, caller or exchange, decides.
const (
	waiting int32 = iota
	answered
	gone
)

type question struct {
	words    []interface{}
	state    atomic.Int32
	exchange atomic.Pointer[exchange] // the one that has sent it
	came     chan struct{}            // closed when reply and err are set
	reply    interface{}
	err      error
}

// exchange is what goes over a connection together. It tells of at most one failure: many calls in one exchange are not
// many failures in a row.
type exchange struct {
	told atomic.Bool
}

// line sends questions over a few connections. What is asked while all of them are in use goes together in the next exchange, so
// that many at once take a few round trips. No question is sent twice: it might be charged twice.
type line struct {
	redis    *redis.Client
	deadline time.Duration
	reach    *reach

	lock    sync.Mutex
	asked   []*question
	running int // exchanges that are under way
	closed  bool
}

func newQuestion(words []interface{}) *question {
	return &question{words: words, came: make(chan struct{})}
}

// ask returns the answer, errUnreachable after the deadline, or the error of the context.
func (l *line) ask(ctx context.Context, words []interface{}) (interface{}, error) {
	q := newQuestion(words)
	if !l.send(q, false) {
		return nil, ErrClosed
	}
	begin := time.Now()
	timer := time.NewTimer(l.deadline)
	defer timer.Stop()
	for again := true; ; again = false {
		select {
		case <-q.came:
			return q.reply, q.err
		case <-ctx.Done():
			return l.leave(q, ctx.Err())
		case <-timer.C:
		}
		// A program that was kept from running may find its answer: it gets the time to read it, once.
		if !again || time.Since(begin) < time.Duration(starved*float64(l.deadline)) {
			break
		}
		timer.Reset(l.deadline)
	}
	return l.leave(q, errUnreachable)
}

// leave ends the waiting, unless the answer has come in this moment.
func (l *line) leave(q *question, err error) (interface{}, error) {
	if !q.state.CompareAndSwap(waiting, gone) {
		<-q.came
		return q.reply, q.err
	}
	if e := q.exchange.Load(); e != nil && err == errUnreachable {
		l.fail(e, fmt.Sprintf("no answer within %v", l.deadline))
	}
	return nil, err
}

func (l *line) fail(e *exchange, why string) {
	if e.told.CompareAndSwap(false, true) {
		l.reach.failed(why)
	}
}

// send returns false if the line is closed. What undoes a charge is sent all the same.
func (l *line) send(q *question, undoes bool) bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.closed && !(undoes && l.running > 0) {
		return false
	}
	l.asked = append(l.asked, q)
	if l.running < connectionsMax {
		l.running++
		go l.run()
	}
	return true
}

func (l *line) close() {
	l.lock.Lock()
	last := !l.closed && l.running == 0
	l.closed = true
	l.lock.Unlock()
	if last {
		_ = l.redis.Close()
	}
}

func (l *line) run() {
	for {
		batch, last := l.next()
		if len(batch) > 0 {
			l.swap(batch)
			continue
		}
		if last {
			_ = l.redis.Close()
		}
		return
	}
}

// next returns questions that somebody waits for. Without any it ends the caller, who closes the connections if it is the last.
func (l *line) next() (batch []*question, last bool) {
	l.lock.Lock()
	defer l.lock.Unlock()
	size, taken := 0, 0
	for _, q := range l.asked {
		if q.state.Load() == waiting {
			size += bytesOf(q.words)
			if len(batch) == batchMax || len(batch) > 0 && size > batchBytesMax {
				break
			}
			batch = append(batch, q)
		}
		taken++
	}
	l.asked = l.asked[taken:]
	if len(l.asked) == 0 {
		l.asked = nil // frees what was taken
	}
	if len(batch) == 0 {
		l.running--
		last = l.closed && l.running == 0
	}
	return batch, last
}

// swap makes one exchange. It lasts longer than its callers wait, so that connecting to a service far away, which takes several
// round trips, ends some time, and so that a late answer costs no connection.
func (l *line) swap(batch []*question) {
	e := &exchange{}
	ctx, cancel := context.WithTimeout(context.Background(), patience*l.deadline)
	defer cancel()
	pipe := l.redis.Pipeline()
	commands := make([]*redis.Cmd, len(batch))
	for i, q := range batch {
		q.exchange.Store(e)
		commands[i] = pipe.Do(ctx, q.words...)
	}
	_, whole := pipe.Exec(ctx)
	for i, q := range batch {
		reply, err := outcome(commands[i], whole)
		l.deliver(e, q, reply, err)
	}
}

// outcome: if there is no connection, only the error of all of them says so.
func outcome(command *redis.Cmd, whole error) (interface{}, error) {
	reply, err := command.Result()
	if err == nil && reply == nil && whole != nil {
		err = whole
	}
	return reply, err
}

func (l *line) deliver(e *exchange, q *question, reply interface{}, err error) {
	if err != nil {
		if err = l.failure(e, err); err == errUnreachable && q.state.Load() == gone {
			return
		}
	}
	if q.state.CompareAndSwap(waiting, answered) {
		if err != errUnreachable {
			l.reach.worked()
		}
		q.reply, q.err = reply, err
		close(q.came)
		return
	}
	// Nobody waits for it any more: what it holds would be in use until its time to live is over.
	if receipt := receiptOf(reply); err == nil && receipt != "" {
		l.send(newQuestion([]interface{}{"WEIR.REFUND", receipt}), true)
	}
}

// failure returns what to tell the caller. Most of what weir itself says against a call, another try would not change.
func (l *line) failure(e *exchange, err error) error {
	if errors.Is(err, redis.ErrClosed) {
		return ErrClosed
	}
	if isAnswer(err) && !isPassing(err.Error()) {
		return &ServiceError{l.reach.where, strings.TrimPrefix(err.Error(), "ERR ")}
	}
	l.fail(e, reason(err))
	return errUnreachable
}

// isAnswer: something was said, even if it makes no sense.
func isAnswer(err error) bool {
	var said redis.Error
	var number *strconv.NumError
	return errors.As(err, &said) || errors.As(err, &number) || strings.HasPrefix(err.Error(), "redis: ")
}

// isPassing: it is overloaded, or its token is being changed.
func isPassing(text string) bool {
	for _, word := range []string{"try again later", "WRONGPASS", "NOAUTH"} {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

func reason(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "WRONGPASS"):
		return "its token is not the one in the url"
	case strings.Contains(text, "NOAUTH"):
		return "it wants a token: redis://:TOKEN@HOST:PORT"
	case errors.Is(err, io.EOF):
		return "it closes the connection; is this its port for Redis clients, 6380?"
	}
	return text
}

func bytesOf(words []interface{}) int {
	size := 0
	for _, word := range words {
		size += len(word.(string))
	}
	return size
}
