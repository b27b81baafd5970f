package weir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var background = context.Background()

func TestVerdict(t *testing.T) {
	client, key := remote(t), newKey()
	verdict := check(t, client, Request{Event: "ocr", Key: key})
	expect(t, verdict.Allowed && verdict.Rule == "ocr" && verdict.Limit == "hour", true, fmt.Sprint(verdict))
	expect(t, verdict.Max, int64(2), "max")
	expect(t, verdict.Remaining, int64(1), "remaining")
	expect(t, verdict.Unit, "requests", "unit")
	expect(t, verdict.Window, time.Hour, "window")
	expect(t, verdict.Reset > 0 && verdict.RetryAfter == 0 && verdict.Status == 0, true, "times")
	expect(t, verdict.Header().Get("RateLimit-Policy"), `"ocr/day";q=5;w=86400, "ocr/hour";q=2;w=3600`, "all limits")
	check(t, client, Request{Event: "ocr", Key: key})
	refused := check(t, client, Request{Event: "ocr", Key: key})
	expect(t, refused.Allowed, false, "the third")
	expect(t, refused.Status, 429, "status")
	expect(t, refused.RetryAfter > 0 && refused.Header().Get("Retry-After") != "", true, "retry after")
	expect(t, check(t, client, Request{Event: "ocr", Key: key, Costs: Requests(9)}).RetryAfter < 0, true, "no wait helps")
	none := check(t, client, Request{Event: "nobody limits this", Key: key})
	expect(t, none.Allowed && none.Rule == "" && none.Unit == "" && len(none.Header()) == 0, true, "no rule")
}

func TestCosts(t *testing.T) {
	client, key := remote(t), newKey()
	ask := func(costs Costs, peek bool) Verdict {
		return check(t, client, Request{Event: "llm", Key: key, Costs: costs, Peek: peek})
	}
	expect(t, ask(Costs{"requests": 1, "tokens": 900}, false).Allowed, true, "both units")
	refused := ask(Costs{"tokens": 101}, false)
	expect(t, refused.Allowed, false, "too many tokens")
	expect(t, refused.Unit, "tokens", "unit")
	text := (&TooFrequent{refused}).Error()
	expect(t, strings.HasPrefix(text, "too frequent: rule llm, limit tokens (at most 1000 tokens); try again in "), true, text)
	expect(t, ask(Requests(99), true).Allowed && ask(Requests(99), true).Allowed, true, "a peek charges nothing")
	expect(t, ask(Requests(0), false).Allowed, true, "0 looks")
	expect(t, ask(Requests(99), false).Allowed && !ask(nil, false).Allowed, true, "one request is the default")
}

func TestPenalty(t *testing.T) {
	client, key := remote(t), newKey()
	var last Verdict
	for i := 0; i < 5; i++ {
		last = check(t, client, Request{Event: "strict", Key: key})
	}
	expect(t, !last.Allowed && last.Penalty && last.Unit == "requests", true, fmt.Sprint(last))
}

func TestAttributes(t *testing.T) {
	client, key := remote(t), newKey()
	for _, request := range []Request{
		{Path: "/page", IP: newAddress(), Costs: Requests(2)},
		{Path: "/page?x", Peer: "127.0.0.1", Headers: http.Header{"X-Forwarded-For": {newAddress()}}, Costs: Requests(2)},
		{Path: "/mine", User: key},
		{Method: "POST", Host: "api.example.com", Headers: http.Header{"X-Tenant": {key}}},
		{Domain: "edge", Descriptor: []Entry{{"plan", "free"}, {"user", key}}},
	} {
		expect(t, check(t, client, request).Allowed, true, fmt.Sprint(request))
		expect(t, check(t, client, request).Allowed, false, fmt.Sprint(request))
	}
	repeated := Request{Method: "POST", Host: "api.example.com", Headers: http.Header{"X-Tenant": {"a", "b"}}}
	expect(t, check(t, client, repeated).Status, 400, "a repeated header")
}

func TestKeysOfAllKinds(t *testing.T) {
	client := remote(t)
	own := newKey()
	for _, key := range []string{
		own + " with blanks ", own + "\x00nul", own + "\x00other", own + "\r\n*1\r\n", "$5\r\n" + own, own + "é\xff\xfe", own + strings.Repeat("x", 900_000),
		own + strings.Repeat("x", 900_001),
	} {
		name := fmt.Sprintf("%.30q", key)
		expect(t, check(t, client, Request{Event: "ocr", Key: key}).Remaining, int64(1), name)
		expect(t, check(t, client, Request{Event: "ocr", Key: key}).Remaining, int64(0), name)
		expect(t, check(t, client, Request{Event: "ocr", Key: key}).Allowed, false, name)
	}
	expect(t, check(t, client, Request{Event: "ocr", Key: ""}).Rule, "", "an empty key is none")
	_, err := client.Check(background, Request{Event: "ocr", Key: strings.Repeat("x", 2<<20)})
	expect(t, err != nil && strings.Contains(err.Error(), "at most 1048576 are allowed"), true, fmt.Sprint(err))
	expect(t, client.Unreachable(), uint64(0), "unreachable")
}

func TestMistakes(t *testing.T) {
	client := remote(t)
	many := http.Header{"X": make([]string, 101)}
	units := Costs{}
	for i := 0; i < 17; i++ {
		units[fmt.Sprint("u", i)] = 1
	}
	for words, request := range map[string]Request{
		`ip "1.2.3.4, 5.6.7.8" is not one`: {IP: "1.2.3.4, 5.6.7.8"},
		`peer "fe80::1%eth0" is not one`:   {Peer: "fe80::1%eth0"},
		"101 headers are too many":         {Headers: many},
		"a header without a name":          {Headers: http.Header{"": {"x"}}},
		"257 entries are too many":         {Descriptor: make([]Entry, 257)},
		"an entry without a key":           {Descriptor: []Entry{{"", "x"}}},
		`the unit "a b" is not`:            {Costs: Costs{"a b": 1}},
		`the unit "a\n" is not`:            {Costs: Costs{"a\n": 1}},
		"the cost -1 in requests":          {Costs: Requests(-1)},
		"the cost 9007199254740992":        {Costs: Requests(1 << 53)},
		"17 units besides requests":        {Costs: units},
		"the ttl 1µs is not":               {TTL: time.Microsecond},
		"the ttl 25h0m0s is not":           {TTL: 25 * time.Hour},
		"Peek charges nothing":             {Peek: true, TTL: time.Minute},
	} {
		verdict, err := client.Check(background, request)
		expect(t, err != nil && strings.Contains(err.Error(), words), true, fmt.Sprint(words, ": ", err))
		expect(t, verdict.Allowed, false, words)
	}
}

func TestOptions(t *testing.T) {
	for words, wrong := range map[string]func() error{
		"deadline": func() error { _, err := Connect("redis://h:1", Options{Deadline: -1}); return err },
		"at most":  func() error { _, err := Connect("redis://h:1", Options{Deadline: 2 * time.Hour}); return err },
		"Allow":    func() error { _, err := Connect("redis://h:1", Options{WhenUnreachable: 7}); return err },
		`unknown option "protocol"`: func() error {
			_, err := Connect("redis://:secret@h:1?protocol=3", Options{})
			return err
		},
		"rediss://":    func() error { _, err := Connect("redis://h:1?ssl_ca_certs=x", Options{}); return err },
		"ssl_ca_certs": func() error { _, err := Connect("rediss://h:1?ssl_ca_certs=/nowhere", Options{}); return err },
		"ssl_certfile": func() error { _, err := Connect("rediss://h:1?ssl_certfile=/nowhere", Options{}); return err },
	} {
		err := wrong()
		expect(t, err != nil && strings.Contains(err.Error(), words), true, fmt.Sprint(words, ": ", err))
	}
	for _, url := range []string{"redis://:geh/eim@127.0.0.1:6380", "http://:geheim@127.0.0.1", "127.0.0.1:6380", "redis://:gehe%im@h", "redis://", "unix://", "", "redis://h:port",
		"redis://h:1/x", "unix://host/geheim"} {
		_, err := Connect(url, Options{})
		expect(t, err, error(errURL), url)
		expect(t, strings.Contains(err.Error(), "eim"), false, url)
	}
}

func TestNobodyListens(t *testing.T) {
	for _, policy := range []Policy{Allow, Refuse} {
		var told lines
		client := connect(t, fmt.Sprintf("redis://:secret@127.0.0.1:%d", freePort(t)), Options{Deadline: ample, WhenUnreachable: policy, Logf: told.add})
		for i := 0; i < 20; i++ {
			verdict := check(t, client, Request{Event: "ocr", Key: "u", Refundable: true})
			expect(t, verdict.Allowed, policy == Allow, "allowed")
			expect(t, verdict.Unavailable && verdict.Receipt == "" && len(verdict.Header()) == 0, true, "unavailable")
			expect(t, verdict.Status, map[Policy]int{Allow: 0, Refuse: 503}[policy], "status")
		}
		expect(t, client.Unreachable(), uint64(20), "unreachable")
		text := told.text()
		expect(t, strings.Count(text, "does not answer") == 1 && !strings.Contains(text, "secret"), true, text)
	}
}

type lines struct {
	lock sync.Mutex
	all  []string
}

func (l *lines) add(format string, args ...interface{}) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.all = append(l.all, fmt.Sprintf(format, args...))
}

func (l *lines) text() string {
	l.lock.Lock()
	defer l.lock.Unlock()
	return strings.Join(l.all, "\n")
}

func asks(t *testing.T, client *Client, key string) func() bool {
	return func() bool { return !check(t, client, Request{Event: "ocr", Key: key, Peek: true}).Unavailable }
}

func TestAKilledServiceComesBack(t *testing.T) {
	fragile := serve(t).start()
	var told lines
	client := connect(t, fragile.url, Options{Deadline: ample, Logf: told.add})
	expect(t, check(t, client, Request{Event: "ocr", Key: "u"}).Remaining, int64(1), "remaining")
	fragile.end(syscall.SIGKILL)
	for i := 0; i < 10; i++ {
		expect(t, check(t, client, Request{Event: "ocr", Key: "u"}).Unavailable, true, "killed")
	}
	fragile.start()
	until(t, "it is asked again", asks(t, client, "u"))
	expect(t, check(t, client, Request{Event: "ocr", Key: "u"}).Remaining, int64(0), "counts stay")
	expect(t, strings.Contains(told.text(), "answers again"), true, told.text())
	// A restart between two calls goes unnoticed.
	before := client.Unreachable()
	fragile.end(syscall.SIGTERM)
	fragile.start()
	expect(t, check(t, client, Request{Event: "ocr", Key: "u"}).Unavailable, false, "restarted")
	expect(t, client.Unreachable(), before, "unreachable")
}

func TestKilledInTheMiddleOfManyCalls(t *testing.T) {
	fragile := serve(t).start()
	client := connect(t, fragile.url, Options{Deadline: ample, WhenUnreachable: Refuse})
	var group sync.WaitGroup
	var decided atomic.Int64
	for i := 0; i < 50; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for {
				verdict, err := client.Check(background, Request{Event: "wide", Key: "u"})
				if err != nil || verdict.Unavailable {
					return
				}
				decided.Add(1)
			}
		}()
	}
	until(t, "calls are made", func() bool { return decided.Load() > 100 })
	fragile.end(syscall.SIGKILL)
	group.Wait()
}

// A service that accepts and never answers: after five failures calls do not wait.
func TestAServiceThatNeverAnswers(t *testing.T) {
	var asked atomic.Int64
	address := listening(t, func(conn net.Conn) {
		asked.Add(1)
		_, _ = io.Copy(io.Discard, conn)
	})
	client := connect(t, "redis://"+address, Options{Deadline: 20 * time.Millisecond})
	for i := 0; i < 1000; i++ {
		verdict := check(t, client, Request{Event: "ocr", Key: "u"})
		expect(t, verdict.Allowed && verdict.Unavailable, true, "verdict")
	}
	expect(t, asked.Load() < 500, true, fmt.Sprint(asked.Load(), " calls of 1000 were sent"))
	expect(t, client.Unreachable(), uint64(1000), "unreachable")
}

func TestAStoppedServiceIsAskedAgain(t *testing.T) {
	fragile := serve(t).start()
	client := connect(t, fragile.url, Options{Deadline: 50 * time.Millisecond})
	until(t, "it is asked", asks(t, client, "u"))
	_ = fragile.command.Process.Signal(syscall.SIGSTOP)
	until(t, "it does not answer", func() bool { return !asks(t, client, "u")() })
	_ = fragile.command.Process.Signal(syscall.SIGCONT)
	until(t, "it is asked again", asks(t, client, "u"))
	// Late answers are nobody's.
	until(t, "an answer", func() bool {
		verdict := check(t, client, Request{Event: "wide", Key: "u"})
		return verdict.Unavailable == false && verdict.Rule == "wide"
	})
}

func TestFarAway(t *testing.T) {
	// Connecting and asking together take longer than a deadline; asking alone does not.
	deadline := 200 * time.Millisecond
	address := listening(t, answering(func(conn net.Conn, _, answer string) {
		time.Sleep(deadline * 7 / 10)
		_, _ = conn.Write([]byte(answer))
	}))
	client := connect(t, "redis://:token@"+address, Options{Deadline: deadline})
	until(t, "an answer", func() bool { return !check(t, client, Request{Event: "ocr", Key: "u"}).Unavailable })
}

func TestAnswersByteByByte(t *testing.T) {
	address := listening(t, answering(func(conn net.Conn, _, answer string) {
		for i := range answer {
			if _, err := conn.Write([]byte(answer[i : i+1])); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}))
	client := connect(t, "redis://"+address, Options{Deadline: 50 * time.Millisecond})
	expect(t, check(t, client, Request{Event: "ocr", Key: "u"}).Unavailable, true, "late as a whole")
}

func TestALostAnswerIsNotChargedTwice(t *testing.T) {
	service := running(t)
	var broken atomic.Bool
	address := listening(t, func(conn net.Conn) {
		beyond, err := net.Dial("tcp", service.address)
		if err != nil {
			return
		}
		defer beyond.Close()
		buffer := make([]byte, 9999)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				return
			}
			_, _ = beyond.Write(buffer[:n])
			if n, err = beyond.Read(buffer); err != nil || broken.Swap(false) {
				return
			}
			_, _ = conn.Write(buffer[:n])
		}
	})
	client, key := connect(t, "redis://"+address, Options{Deadline: ample}), newKey()
	look := Request{Event: "ocr", Key: key, Costs: Requests(0)}
	expect(t, check(t, client, look).Remaining, int64(2), "before")
	broken.Store(true)
	expect(t, check(t, client, Request{Event: "ocr", Key: key}).Unavailable, true, "lost")
	expect(t, check(t, client, look).Remaining, int64(1), "after")
}

func TestContexts(t *testing.T) {
	client := remote(t)
	cancelled, cancel := context.WithCancel(background)
	cancel()
	verdict, err := client.Check(cancelled, Request{Event: "ocr", Key: newKey()})
	expect(t, err, context.Canceled, "cancelled before")
	expect(t, verdict.Allowed, false, "verdict")

	silent := listening(t, func(conn net.Conn) { time.Sleep(ample) })
	waiting := connect(t, "redis://"+silent, Options{Deadline: ample})
	soon, cancel := context.WithTimeout(background, 10*time.Millisecond)
	defer cancel()
	_, err = waiting.Check(soon, Request{Event: "ocr", Key: "u"})
	expect(t, err, context.DeadlineExceeded, "a shorter deadline of the caller")
	expect(t, waiting.Unreachable(), uint64(0), "nobody is to blame")
}

// Callers that leave at any moment leave no slot in use, and no answer for others.
func TestCallersThatLeave(t *testing.T) {
	client := remote(t)
	var group sync.WaitGroup
	for i := 0; i < 200; i++ {
		key, wait := newKey(), time.Duration(i)*2*time.Microsecond
		group.Add(1)
		go func() {
			defer group.Done()
			ctx, cancel := context.WithTimeout(background, wait)
			defer cancel()
			verdict, err := client.Check(ctx, Request{Event: "job", Key: key})
			if err == nil {
				_, err = client.Release(background, verdict.Hold)
			}
			if err != nil && err != context.DeadlineExceeded {
				t.Error(err)
			}
			other := check(t, client, Request{Event: "wide", Key: key})
			expect(t, other.Rule, "wide", "another answer")
			until(t, "the slot is free", func() bool { return check(t, client, Request{Event: "job", Key: key, Peek: true}).Allowed })
		}()
	}
	group.Wait()
}

func TestThousandsOfGoroutines(t *testing.T) {
	client, key := remote(t), newKey()
	var group sync.WaitGroup
	var passed atomic.Int64
	begin := make(chan struct{})
	for i := 0; i < 5000; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			<-begin
			verdict, err := client.Check(background, Request{Event: "ocr", Key: key})
			if err != nil || verdict.Unavailable {
				t.Error(verdict, err)
			}
			if verdict.Allowed {
				passed.Add(1)
			}
		}()
	}
	close(begin)
	group.Wait()
	expect(t, passed.Load(), int64(2), "passed")
	found := int(client.line.redis.PoolStats().TotalConns)
	expect(t, found <= connectionsMax, true, fmt.Sprint(found, " connections"))
}

func TestClose(t *testing.T) {
	before := runtime.NumGoroutine()
	client := connect(t, running(t).url, Options{Deadline: ample})
	for i := 0; i < 20; i++ {
		go func() {
			if _, err := client.Check(background, Request{Event: "wide", Key: "u"}); err != nil && err != ErrClosed {
				t.Error(err)
			}
		}()
	}
	client.Close()
	client.Close()
	_, err := client.Check(background, Request{Event: "ocr", Key: "u"})
	expect(t, err, ErrClosed, "after Close")
	_, err = client.Refund(background, "x")
	expect(t, err, ErrClosed, "after Close")
	until(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}

func TestToken(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a-token/of-some-length\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	service := serve(t, "--token-file", token).start()
	right := connect(t, "redis://:a-token%2Fof-some-length@"+service.address, Options{Deadline: ample})
	expect(t, check(t, right, Request{Event: "ocr", Key: "u"}).Remaining, int64(1), "remaining")
	for part, words := range map[string]string{"": "it wants a token", ":wrong@": "its token is not the one in the url"} {
		var told lines
		client := connect(t, "redis://"+part+service.address, Options{Deadline: ample, WhenUnreachable: Refuse, Logf: told.add})
		expect(t, check(t, client, Request{Event: "ocr", Key: "u"}).Unavailable, true, part)
		expect(t, strings.Contains(told.text(), words), true, told.text())
	}
}

func TestUnixSocket(t *testing.T) {
	service := serve(t)
	socket := filepath.Join(service.folder, "socket")
	service.address, service.url = "unix:"+socket, "unix://"+socket
	service.start()
	client := connect(t, service.url, Options{Deadline: ample, WhenUnreachable: Refuse})
	expect(t, check(t, client, Request{Event: "ocr", Key: "u"}).Remaining, int64(1), "remaining")
	service.end(syscall.SIGTERM)
	expect(t, check(t, client, Request{Event: "ocr", Key: "u"}).Unavailable, true, "stopped")
}

func TestSomethingElseAnswers(t *testing.T) {
	for _, answer := range []string{"HTTP/1.1 400 Bad Request\r\n\r\n", "*1\r\n:1\r\n", "+OK\r\n", ":x\r\n", "-ERR unknown command 'WEIR.CHECK'\r\n"} {
		for _, whole := range []bool{true, false} { // or only to what comes after HELLO
			answer, whole := answer, whole
			address := listening(t, answering(func(conn net.Conn, command, usual string) {
				if whole || !strings.EqualFold(command, "HELLO") {
					usual = answer
				}
				_, _ = conn.Write([]byte(usual))
			}))
			client := connect(t, "redis://"+address, Options{Deadline: ample})
			_, err := client.Check(background, Request{Event: "ocr", Key: "u"})
			var said *ServiceError
			expect(t, errors.As(err, &said) && said.Where == "redis://"+address, true, fmt.Sprintf("%q: %v", answer, err))
		}
	}
}
