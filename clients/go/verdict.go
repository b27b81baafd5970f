package weir

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The places of items in a reply.
const (
	atReceipt = 10
	atUnit    = 11 // and the penalty
	atAnswer  = 13 // content type, body, names and values of headers
)

// Verdict is what weir answers.
type Verdict struct {
	Allowed     bool
	Rule, Limit string        // the limit that refused, or the one that is nearest to its end; empty if no rule applied
	Unit        string        // what Max and Remaining count: "requests" unless the limit has another
	Max         int64         //
	Remaining   int64         //
	Reset       time.Duration // until the limit is as if unused
	Window      time.Duration // in which Max comes back
	RetryAfter  time.Duration // 0 when allowed; negative: no wait will help
	Status      int           // HTTP status of the refusal, 0 when allowed
	Unavailable bool          // nobody could decide: weir, or the store of its counters, does not answer
	Penalty     bool          // refused because the rule has refused too often before
	Receipt     string        // of a Refundable request that was charged
	Hold        string        // what the request holds until it is settled or released, or its time to live is over

	header  http.Header
	refusal *refusal
}

// Header returns the headers for the answer to an HTTP client, as weir wrote them: RateLimit-Policy, RateLimit and, when refused,
// Retry-After and those of the rule, unless the setting `headers` of the rules says otherwise.
func (v Verdict) Header() http.Header {
	return v.header.Clone()
}

// TooFrequent is the error of a call that was refused. Its verdict says by which rule, and when to come back.
type TooFrequent struct {
	Verdict Verdict
}

func (e *TooFrequent) Error() string {
	v := &e.Verdict
	switch {
	case v.Unavailable:
		return "refused, since weir or the store of its counters does not answer"
	case v.Rule == "" && v.Status == http.StatusBadRequest:
		return "refused, since the request repeats a header with different values"
	case v.Rule == "":
		return "refused, since it could not be judged"
	}
	unit, wait := "", ""
	if v.Unit != requests && v.Unit != "" {
		unit = " " + v.Unit
	}
	if v.RetryAfter > 0 {
		wait = fmt.Sprintf("; try again in %d s", (v.RetryAfter+time.Second-1)/time.Second)
	}
	return fmt.Sprintf("too frequent: rule %s, limit %s (at most %d%s)%s", v.Rule, v.Limit, v.Max, unit, wait)
}

// ServeHTTP answers a request with the refusal: the status, body and headers that the rule defines.
func (e *TooFrequent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	refusalOf(&e.Verdict).ServeHTTP(w, r)
}

// refusal as HTTP.
type refusal struct {
	status int
	kind   string
	header http.Header
	body   string
}

const plainText = "text/plain; charset=utf-8"

func (f *refusal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	for name, values := range f.header {
		header[name] = values
	}
	header.Set("Content-Type", f.kind)
	header.Set("Content-Length", strconv.Itoa(len(f.body)))
	w.WriteHeader(f.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte(f.body))
	}
}

// refusalOf returns the one that weir wrote; else plain words, for when nobody could ask weir.
func refusalOf(v *Verdict) *refusal {
	if v.refusal != nil {
		return v.refusal
	}
	body := "Too many requests\n"
	if v.Rule == "" && v.Status == http.StatusBadRequest {
		body = "Bad request: a header is repeated with different values\n"
	} else if v.Rule == "" || v.Unavailable {
		body = "Could not be judged; try again later\n"
	}
	return &refusal{refusalStatus(v.Status), plainText, v.header, body}
}

// refusalStatus: with another number net/http would panic, or let the client believe that it passed.
func refusalStatus(status int) int {
	if status < 300 || status > 999 {
		return http.StatusTooManyRequests
	}
	return status
}

// readVerdict returns false if the reply is not one of weir.
func readVerdict(reply interface{}, refundable bool) (Verdict, bool) {
	items, ok := reply.([]interface{})
	if !ok || len(items) < atUnit {
		return Verdict{}, false
	}
	allowed, ok := items[0].(int64)
	if !ok {
		return Verdict{}, false
	}
	v := Verdict{
		Allowed: allowed != 0, Rule: text(items[1]), Limit: text(items[2]), Max: number(items[3]), Remaining: number(items[4]),
		Reset: duration(items[5]), RetryAfter: duration(items[6]), Window: duration(items[7]),
		Status: int(number(items[8])), Unavailable: number(items[9]) != 0,
	}
	if v.Rule != "" {
		v.Unit = requests
	}
	receipt := text(items[atReceipt])
	if refundable {
		v.Receipt = receipt
	}
	if !refundable || mayHold(receipt) {
		v.Hold = receipt
	}
	if len(items) > atUnit {
		v.Unit = text(items[atUnit])
		v.Penalty = len(items) > atUnit+1 && number(items[atUnit+1]) != 0
	}
	if len(items) >= atAnswer+2 {
		v.readAnswer(items[atAnswer:])
	}
	return v, true
}

func (v *Verdict) readAnswer(items []interface{}) {
	v.header = http.Header{}
	for i := 2; i+1 < len(items); i += 2 {
		v.header.Add(text(items[i]), text(items[i+1]))
	}
	if kind, ok := items[0].(string); ok && !v.Allowed {
		v.refusal = &refusal{refusalStatus(v.Status), kind, v.header, text(items[1])}
	}
}

// receiptOf returns what gives back the charge of a reply, if there is something.
func receiptOf(reply interface{}) string {
	items, ok := reply.([]interface{})
	if !ok || len(items) < atUnit {
		return ""
	}
	return text(items[atReceipt])
}

// mayHold: whether the receipt of a Refundable request, whose reply does not say, has slots to release. Where the text has
// another form than the one that is known here, it may.
func mayHold(receipt string) bool {
	if receipt == "" || !strings.HasPrefix(receipt, "03") || len(receipt) <= 64 {
		return receipt != ""
	}
	return strings.Trim(receipt[8:16]+receipt[48:64], "0") != ""
}

func text(item interface{}) string {
	found, _ := item.(string)
	return found
}

func number(item interface{}) int64 {
	found, _ := item.(int64)
	return found
}

func duration(item interface{}) time.Duration {
	ms := number(item)
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}
