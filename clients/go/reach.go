package weir

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	failuresMax = 5
	pause       = 500 * time.Millisecond
)

// reach knows whether there is any use in asking. After some failures in a row one call in a pause tries, and the others do
// not wait.
type reach struct {
	where, then string
	logf        func(format string, args ...interface{})
	undecided   atomic.Uint64 // calls that were decided without the service
	failures    atomic.Int32  // in a row; written under the lock

	lock    sync.Mutex
	nextTry time.Time
}

func (r *reach) mayAsk() bool {
	if r.failures.Load() < failuresMax {
		return true
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	now := time.Now()
	if now.Before(r.nextTry) {
		return false
	}
	r.nextTry = now.Add(pause)
	return true
}

func (r *reach) worked() {
	if r.failures.Load() == 0 {
		return
	}
	r.lock.Lock()
	again := r.failures.Swap(0) > 0
	r.lock.Unlock()
	if again {
		r.logf("weir at %s answers again; %d calls were decided without it so far", r.where, r.undecided.Load())
	}
}

func (r *reach) failed(why string) {
	r.lock.Lock()
	first := r.failures.Load() == 0
	if r.failures.Load() < failuresMax {
		r.failures.Add(1)
	}
	r.nextTry = time.Now().Add(pause)
	r.lock.Unlock()
	if first {
		r.logf("weir at %s does not answer, and calls are %s until it does: %s", r.where, r.then, why)
	}
}
