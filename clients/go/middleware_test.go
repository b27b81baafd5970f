package weir

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const own = `"own";q=1;w=1` // of a handler that sets the header itself

type site struct {
	t    *testing.T
	url  string
	seen atomic.Int64
}

// visit serves a handler behind the middleware; nil answers with the path.
func visit(t *testing.T, client *Client, options HTTP, handler http.HandlerFunc) *site {
	s := &site{t: t}
	if handler == nil {
		handler = func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery == "own" {
				w.Header().Add("RateLimit", own)
			}
			fmt.Fprint(w, r.URL.Path)
		}
	}
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.seen.Add(1); handler(w, r) })
	server := httptest.NewServer(Middleware(client, options)(counted))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func byHeaders() HTTP {
	return HTTP{
		User: func(r *http.Request) string { return r.Header.Get("X-User") },
		Key:  func(r *http.Request) string { return r.Header.Get("X-Key") },
	}
}

func (s *site) ask(method, path string, headers ...string) (*http.Response, string) {
	s.t.Helper()
	request, err := http.NewRequest(method, s.url, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	request.URL.Opaque = path // as it is
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			request.Host = headers[i+1]
		}
		request.Header.Add(headers[i], headers[i+1])
	}
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer, string(body)
}

func (s *site) status(path string, headers ...string) int {
	s.t.Helper()
	answer, _ := s.ask("GET", path, headers...)
	return answer.StatusCode
}

func (s *site) statuses(wanted []int, path string, headers ...string) {
	s.t.Helper()
	for i, status := range wanted {
		expect(s.t, s.status(path, headers...), status, fmt.Sprintf("%s, request %d", path, i))
	}
}

func TestMiddleware(t *testing.T) {
	s, from := visit(t, remote(t), HTTP{}, nil), newAddress()
	answer, body := s.ask("GET", "/page", "X-Forwarded-For", from)
	expect(t, answer.StatusCode, 200, "status")
	expect(t, body, "/page", "body")
	expect(t, answer.Header.Get("RateLimit-Policy"), `"page/hour";q=2;w=3600`, "policy")
	expect(t, answer.Header.Get("RateLimit"), `"page/hour";r=1;t=3600`, "limit")
	s.statuses([]int{200}, "/%70age//?x=1", "X-Forwarded-For", from) // by another spelling
	answer, body = s.ask("GET", "/page", "X-Forwarded-For", from)
	expect(t, answer.StatusCode, 420, "status")
	expect(t, body, `{"error":"calm"}`, "body")
	expect(t, strings.Join(answer.Header.Values("Content-Type"), "|"), "application/json", "content type")
	expect(t, answer.Header.Get("X-Why"), "page", "header of the rule")
	expect(t, answer.Header.Get("Retry-After") != "", true, "retry after")
	expect(t, strings.HasPrefix(answer.Header.Get("RateLimit"), `"page/hour";r=0;t=`), true, answer.Header.Get("RateLimit"))
	answer, body = s.ask("HEAD", "/page", "X-Forwarded-For", from)
	expect(t, answer.StatusCode == 420 && body == "", true, "HEAD")
	expect(t, s.seen.Load(), int64(2), "what the handler has seen")
}

func TestProblems(t *testing.T) {
	s, key := visit(t, remote(t), byHeaders(), nil), newKey()
	s.statuses([]int{200, 429}, "/mine", "X-User", key, "Accept", "application/json")
	answer, body := s.ask("GET", "/mine", "X-User", key, "Accept", "application/json")
	expect(t, answer.Header.Get("Content-Type"), "application/problem+json", "content type")
	var problem map[string]interface{}
	expect(t, json.Unmarshal([]byte(body), &problem), nil, body)
	expect(t, problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded", "type")
	_, body = s.ask("GET", "/mine", "X-User", key, "Accept", "*/*")
	expect(t, body, "Too many requests\n", "body")
}

func TestWhatRulesSee(t *testing.T) {
	s, key, from := visit(t, remote(t), byHeaders(), nil), newKey(), newAddress()
	s.statuses([]int{200, 429}, "/mine", "X-User", key)
	s.statuses([]int{200, 200}, "/mine")
	s.statuses([]int{200, 429}, "/keyed", "X-Key", key)
	for i, status := range []int{200, 429} {
		answer, _ := s.ask("POST", "/any", "Host", "api.example.com:80", "X-Tenant", key)
		expect(t, answer.StatusCode, status, fmt.Sprint("tenant ", i))
	}
	for path, status := range map[string]int{"/under%252Fpage": 200, "/free%20%C3%A9": 200} {
		expect(t, s.status(path, "X-Forwarded-For", from), status, path)
	}
	for i, path := range []string{"/under%2Fpage?q=1", "/under/p%61ge", "/under%2Fpage"} {
		expect(t, s.status(path, "X-Forwarded-For", from), []int{200, 200, 429}[i], path)
	}
	answer, _ := s.ask("GET", "/free?own")
	expect(t, answer.Header.Get("RateLimit-Policy"), "", "no rule")
	answer, _ = s.ask("GET", "/page?own", "X-Forwarded-For", from)
	expect(t, strings.Join(answer.Header.Values("RateLimit"), "|"), own, "the handler's header")
	expect(t, answer.Header.Get("RateLimit-Policy"), `"page/hour";q=2;w=3600`, "policy")
}

func TestObjections(t *testing.T) {
	s := visit(t, remote(t), HTTP{}, nil)
	var many, large []string
	for i := 0; i < 101; i++ {
		many = append(many, fmt.Sprint("X-Many-", i), "y")
	}
	for i := 0; i < 9; i++ {
		large = append(large, fmt.Sprint("X-Large-", i), strings.Repeat("y", 60000))
	}
	expect(t, s.status("/page", many...), 431, "many")
	expect(t, s.status("/page", large...), 431, "large")
	for _, path := range []string{"/page/..", "/page/%2e%2E/x", "/./page", "/page%2f../x", "/page/..;x/y"} {
		expect(t, s.status(path), 400, path)
	}
	expect(t, s.seen.Load(), int64(0), "what the handler has seen")
	expect(t, s.status("/..page/..x/.y?a=/../b"), 200, "no dot segments")
}

func TestPeers(t *testing.T) {
	client, from := remote(t), newAddress()
	ask := func(options HTTP, remote string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/page", nil)
		r.RemoteAddr = remote
		r.Header.Set("X-Forwarded-For", from)
		Middleware(client, options)(http.NotFoundHandler()).ServeHTTP(w, r)
		return w.Code
	}
	for i, remote := range []string{"", "@", "/run/app.sock"} {
		expect(t, ask(HTTP{LocalPeer: "127.0.0.1"}, remote), []int{404, 404, 420}[i], "with LocalPeer")
		expect(t, ask(HTTP{}, remote), 404, "without")
	}
	expect(t, ask(HTTP{}, "127.0.0.1:99"), 420, "an address")
	expect(t, ask(HTTP{}, fmt.Sprintf("[2001:db8:%x::1%%eth0]:99", numbers.Add(1))), 404, "another one; IPv6 counts by /64")
	defer func() { expect(t, strings.Contains(fmt.Sprint(recover()), `LocalPeer "unix" is not`), true, "panics") }()
	Middleware(client, HTTP{LocalPeer: "unix"})
}

func TestAWarningWithoutAPeer(t *testing.T) {
	var told lines
	client := connect(t, running(t).url, Options{Deadline: ample, Logf: told.add})
	handler := Middleware(client, HTTP{})(http.NotFoundHandler())
	for i := 0; i < 3; i++ {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "@"
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	expect(t, strings.Count(told.text(), "set LocalPeer"), 1, told.text())
}

func TestTheMiddlewareWhenNobodyListens(t *testing.T) {
	for policy, status := range map[Policy]int{Allow: 200, Refuse: 503} {
		client := connect(t, fmt.Sprintf("redis://127.0.0.1:%d", freePort(t)), Options{Deadline: ample, WhenUnreachable: policy})
		answer, body := visit(t, client, HTTP{}, nil).ask("GET", "/page")
		expect(t, answer.StatusCode, status, "status")
		expect(t, body, map[Policy]string{Allow: "/page", Refuse: "Could not be judged; try again later\n"}[policy], "body")
	}
}

func TestTheMiddlewareLetsNothingThroughByMistake(t *testing.T) {
	never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("called") })
	address := listening(t, answering(func(conn net.Conn, _, _ string) { _, _ = conn.Write([]byte("-ERR unknown command\r\n")) }))
	w := httptest.NewRecorder()
	Middleware(connect(t, "redis://"+address, Options{Deadline: ample}), HTTP{})(never).ServeHTTP(w, httptest.NewRequest("GET", "/page", nil))
	expect(t, w.Code, 500, "not weir")
	ctx, cancel := context.WithCancel(background)
	cancel()
	w = httptest.NewRecorder()
	Middleware(remote(t), HTTP{})(never).ServeHTTP(w, httptest.NewRequest("GET", "/page", nil).WithContext(ctx))
	expect(t, w.Code, 503, "the client is gone")
}

func TestTooFrequentAnswersARequest(t *testing.T) {
	client, key := remote(t), newKey()
	submit := detected(t, client, "ocr")
	s := visit(t, client, HTTP{}, func(w http.ResponseWriter, r *http.Request) {
		_, err := submit(r.Context(), job{user: key})
		if refused, ok := err.(*TooFrequent); ok {
			refused.ServeHTTP(w, r)
		}
	})
	s.statuses([]int{200, 200}, "/")
	answer, body := s.ask("GET", "/")
	expect(t, answer.StatusCode, 429, "status")
	expect(t, body, "Too many requests\n", "body")
	expect(t, answer.Header.Get("Retry-After") != "", true, "retry after")
}

func TestARequestHoldsItsSlot(t *testing.T) {
	client := remote(t)
	entered, leave := make(chan bool), make(chan bool)
	s := visit(t, client, byHeaders(), func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.RawQuery {
		case "panic":
			panic(http.ErrAbortHandler)
		case "wait":
			entered <- true
			<-leave
		}
	})
	key := newKey()
	done := make(chan bool)
	go func() { s.ask("GET", "/slot?wait", "X-User", key); close(done) }()
	<-entered
	s.statuses([]int{429}, "/slot", "X-User", key)
	leave <- true
	<-done
	s.statuses([]int{200, 200}, "/slot", "X-User", key)
	request, _ := http.NewRequest("GET", s.url+"/slot?panic", nil)
	request.Header.Set("X-User", key)
	_, err := http.DefaultTransport.RoundTrip(request)
	expect(t, err != nil, true, "the panic ends the connection")
	until(t, "the slot is free", func() bool { return s.status("/slot", "X-User", key) == 200 })
	// A client that disconnects.
	ctx, cancel := context.WithCancel(background)
	go func() { <-entered; cancel(); leave <- true }()
	request, _ = http.NewRequestWithContext(ctx, "GET", s.url+"/slot?wait", nil)
	request.Header.Set("X-User", key)
	if answer, err := http.DefaultTransport.RoundTrip(request); err == nil {
		answer.Body.Close()
	}
	until(t, "the slot is free", func() bool { return s.status("/slot", "X-User", key) == 200 })
}

func TestWhatAHandlerCanDoWithItsWriter(t *testing.T) {
	s := visit(t, remote(t), HTTP{}, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.RawQuery {
		case "hijack":
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"))
		case "flush":
			w.(http.Flusher).Flush()
		case "copy":
			_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("copied"))
		case "hints":
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = io.WriteString(w, "hinted")
		}
	})
	for query, body := range map[string]string{"flush": "", "copy": "copied", "hints": "hinted", "": ""} {
		answer, found := s.ask("GET", "/page?"+query, "X-Forwarded-For", newAddress())
		expect(t, found, body, query)
		expect(t, answer.Header.Get("RateLimit-Policy"), `"page/hour";q=2;w=3600`, query)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(ample))
	fmt.Fprintf(conn, "GET /page?hijack HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: %s\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", newAddress())
	line, _ := bufio.NewReader(conn).ReadString('\n')
	expect(t, line, "HTTP/1.1 101 Switching Protocols\r\n", "a handshake")

	plain, _ := adding(struct{ http.ResponseWriter }{httptest.NewRecorder()}, nil)
	_, flushes := plain.(http.Flusher)
	expect(t, flushes, false, "no more than without us")
	second := httptest.NewUnstartedServer(Middleware(remote(t), HTTP{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pushes := w.(http.Pusher)
		fmt.Fprint(w, r.ProtoMajor, pushes)
	})))
	second.EnableHTTP2 = true
	second.StartTLS()
	defer second.Close()
	request, _ := http.NewRequest("GET", second.URL+"/page", nil)
	request.Header.Set("X-Forwarded-For", newAddress())
	answer, err := second.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	expect(t, string(body), "2 true", "HTTP/2")
}
