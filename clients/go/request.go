package weir

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"time"
)

const (
	headersMax = 100
	entriesMax = 256
	costMax    = 1<<53 - 1
	costsMax   = 16 // in other units than requests
	ttlMax     = 24 * time.Hour
	requests   = "requests"
)

var unitPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,50}$`)

// Costs has an amount for each unit, such as {"requests": 1, "tokens": 1200}. A unit that is not there costs 0, also requests.
type Costs map[string]int64

// Requests is the cost of n requests, and nothing in other units.
func Requests(n int64) Costs {
	return Costs{requests: n}
}

// Entry is one entry of a descriptor.
type Entry struct {
	Key, Value string
}

// Request is what weir is asked about. All fields are optional; a rule does not apply if its `by` is not among them.
type Request struct {
	Event, Key, User   string
	Method, Path, Host string      // the path as the client sent it
	IP                 string      // the client's address, if you know it
	Peer               string      // otherwise that of the connection; weir finds the client with X-Forwarded-For
	Headers            http.Header // at most 100
	Domain             string
	Descriptor         []Entry // in their order; at most 256

	Costs        Costs         // nil: one request
	Peek         bool          // charges nothing
	Refundable   bool          // the verdict gets a receipt, for Refund
	TTL          time.Duration // the charge is held for so long, see Reserve
	KeepOnExpiry bool          // a hold that ends by itself stays as a charge
}

func (r *Request) words(answer string) ([]interface{}, error) {
	if err := r.mistake(); err != nil {
		return nil, err
	}
	command, reply := "WEIR.CHECK", "long"
	switch {
	case r.Peek:
		command = "WEIR.PEEK"
	case r.TTL > 0:
		command = "WEIR.RESERVE"
	}
	if r.Refundable {
		reply = "receipt"
	}
	words := r.attributes([]interface{}{command, "reply", reply, "answer", answer})
	if r.TTL > 0 {
		expiry := "release"
		if r.KeepOnExpiry {
			expiry = "keep"
		}
		words = append(words, "ttl", milliseconds(r.TTL), "on_expiry", expiry)
	}
	if r.Costs != nil {
		words = append(words, "cost", strconv.FormatInt(r.Costs[requests], 10))
		words = r.Costs.others(words)
	}
	return words, nil
}

func (r *Request) attributes(words []interface{}) []interface{} {
	for _, attribute := range [...][2]string{
		{"event", r.Event}, {"key", r.Key}, {"user", r.User}, {"method", r.Method}, {"path", r.Path}, {"host", r.Host},
		{"domain", r.Domain}, {"ip", r.IP}, {"peer", r.Peer},
	} {
		if attribute[1] != "" {
			words = append(words, attribute[0], attribute[1])
		}
	}
	for name, values := range r.Headers {
		for _, value := range values {
			words = append(words, "header:"+name, value)
		}
	}
	for _, entry := range r.Descriptor {
		words = append(words, "descriptor:"+entry.Key, entry.Value)
	}
	return words
}

func (r *Request) mistake() error {
	for what, address := range map[string]string{"ip": r.IP, "peer": r.Peer} {
		if address != "" && !isAddress(address) {
			return fmt.Errorf("weir: %s %q is not one IPv4 or IPv6 address; put a whole X-Forwarded-For into Headers, and into "+
				"Peer the address that sent it", what, address)
		}
	}
	count := 0
	for name, values := range r.Headers {
		if name == "" {
			return errors.New("weir: a header without a name")
		}
		count += len(values)
	}
	if count > headersMax {
		return fmt.Errorf("weir: %d headers are too many: %d at most for a request", count, headersMax)
	}
	if len(r.Descriptor) > entriesMax {
		return fmt.Errorf("weir: %d entries are too many: %d at most for a descriptor", len(r.Descriptor), entriesMax)
	}
	for _, entry := range r.Descriptor {
		if entry.Key == "" {
			return errors.New("weir: an entry without a key")
		}
	}
	if r.TTL != 0 {
		if r.Peek {
			return errors.New("weir: Peek charges nothing, so that there is nothing to hold: leave TTL out")
		}
		if err := ttlMistake(r.TTL); err != nil {
			return err
		}
	}
	return r.Costs.mistake()
}

func (c Costs) mistake() error {
	others := 0
	for unit, amount := range c {
		if !unitPattern.MatchString(unit) {
			return fmt.Errorf("weir: the unit %q is not a name of letters, digits, _, - and ., 1 to 50 bytes", unit)
		}
		if amount < 0 || amount > costMax {
			return fmt.Errorf("weir: the cost %d in %s is not between 0 and %d", amount, unit, int64(costMax))
		}
		if unit != requests {
			others++
		}
	}
	if others > costsMax {
		return fmt.Errorf("weir: costs in %d units besides %s: at most %d are allowed", others, requests, costsMax)
	}
	return nil
}

func (c Costs) others(words []interface{}) []interface{} {
	for unit, amount := range c {
		if unit != requests {
			words = append(words, "cost:"+unit, strconv.FormatInt(amount, 10))
		}
	}
	return words
}

func ttlMistake(ttl time.Duration) error {
	if ttl < time.Millisecond || ttl > ttlMax {
		return fmt.Errorf("weir: the ttl %v is not from 1ms to %v", ttl, ttlMax)
	}
	return nil
}

func milliseconds(d time.Duration) string {
	return strconv.FormatInt(d.Milliseconds(), 10)
}

func isAddress(text string) bool {
	address, err := netip.ParseAddr(text)
	return err == nil && address.Zone() == ""
}
