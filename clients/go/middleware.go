package weir

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
)

const headerBytesMax = 512 << 10 // the service takes requests of a MiB

// HTTP has the options of the middleware.
type HTTP struct {
	// User finds the user's id, for rules by `user`; empty: nobody.
	User func(*http.Request) string
	// Key finds the subject for rules by `key`; empty: none.
	Key func(*http.Request) string
	// LocalPeer is the address of a client that has none, being behind a unix socket.
	LocalPeer string
}

var (
	// Left out of a request, a header that a rule counts by would let it pass; so one with too many of them is refused.
	tooManyHeaders = &refusal{http.StatusRequestHeaderFieldsTooLarge, plainText, nil,
		fmt.Sprintf("At most %d headers and %d bytes are allowed\n", headersMax, headerBytesMax)}
	// weir resolves them, and applications do not: they would see another path than the rules.
	dotSegments = &refusal{http.StatusBadRequest, plainText, nil, "The path has a segment . or ..\n"}
	notJudged   = &refusal{http.StatusServiceUnavailable, plainText, nil, "Could not be judged; try again later\n"}
	notWeir     = &refusal{http.StatusInternalServerError, plainText, nil, "Internal Server Error\n"}
)

type front struct {
	client *Client
	HTTP
	warning sync.Once
}

// Middleware asks weir about each request before the handler sees it. A request holds its slots until the handler returns. A
// LocalPeer that is not an address panics.
func Middleware(client *Client, options HTTP) func(http.Handler) http.Handler {
	if client == nil {
		panic("weir: Middleware needs a client")
	}
	if options.LocalPeer != "" && !isAddress(options.LocalPeer) {
		panic(fmt.Sprintf("weir: LocalPeer %q is not one IPv4 or IPv6 address", options.LocalPeer))
	}
	f := &front{client: client, HTTP: options}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.serve(w, r, next) })
	}
}

func (f *front) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	verdict, refused := f.judge(r)
	if refused != nil {
		refused.ServeHTTP(w, r)
		return
	}
	defer f.client.leave(verdict, "a request", false) // also if the handler panics
	if len(verdict.header) == 0 {
		next.ServeHTTP(w, r)
		return
	}
	out, adding := adding(w, verdict.header)
	next.ServeHTTP(out, r)
	adding.begin(http.StatusOK) // of a handler that has written nothing
}

func (f *front) judge(r *http.Request) (*Verdict, *refusal) {
	header := r.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if r.Host != "" {
		header.Set("Host", r.Host)
	}
	if refused := objection(r.URL.Path, header); refused != nil {
		return nil, refused
	}
	// The path is as it was sent: weir tries its rules on all that a router may make of it.
	request := Request{Method: r.Method, Path: r.URL.EscapedPath(), Host: r.Host, Peer: f.peer(r.RemoteAddr), Headers: header}
	if r.URL.RawQuery != "" {
		request.Path += "?" + r.URL.RawQuery
	}
	if f.User != nil {
		request.User = f.User(r)
	}
	if f.Key != nil {
		request.Key = f.Key(r)
	}
	verdict, err := f.client.check(r.Context(), &request, "always")
	if err != nil {
		return nil, f.answerTo(err)
	}
	if !verdict.Allowed {
		return nil, refusalOf(&verdict)
	}
	return &verdict, nil
}

func (f *front) answerTo(err error) *refusal {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return notJudged // the client is gone, or the time of the request is over
	}
	f.client.logf("weir: a request was not judged, and answered with status 500: %v", err)
	return notWeir
}

// objection to requests that weir is not asked about.
func objection(path string, header http.Header) *refusal {
	count, size := 0, len(path)
	for name, values := range header {
		for _, value := range values {
			count++
			size += len(name) + len(value)
		}
	}
	if count > headersMax || size > headerBytesMax {
		return tooManyHeaders
	}
	for _, segment := range strings.Split(path, "/") {
		if plain, _, _ := strings.Cut(segment, ";"); plain == "." || plain == ".." {
			return dotSegments
		}
	}
	return nil
}

// peer: a server behind a unix socket has no address of its client.
func (f *front) peer(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	if host, _, _ = strings.Cut(host, "%"); isAddress(host) {
		return host
	}
	if f.LocalPeer == "" {
		f.warning.Do(func() {
			f.client.logf("weir: a request has no client's address, and rules by ip do not apply to it: set LocalPeer")
		})
	}
	return f.LocalPeer
}
