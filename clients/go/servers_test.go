package weir

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Real servers for the tests: on free ports of loopback, in folders of their own, gone at the end.

const (
	ample = 60 * time.Second // nothing here is to fail because the machine is busy
	rules = `
settings: { trusted_proxies: [127.0.0.0/8] }
rules:
  - id: ocr
    match: { event: ocr }
    by: [key]
    limits:
      - { name: day, algorithm: fixed_window, max: 5, per: 24h }
      - { name: hour, algorithm: fixed_window, max: 2, per: 1h }
  - id: strict
    match: { event: strict }
    by: [key]
    limits: [ { name: one, algorithm: fixed_window, max: 1, per: 1m } ]
    penalty: { after: 2, within: 1m, for: 1h }
  - id: llm
    match: { event: llm }
    by: [key]
    limits:
      - { name: calls, algorithm: fixed_window, max: 100, per: 1h }
      - { name: tokens, unit: tokens, algorithm: fixed_window, max: 1000, per: 1h }
  - id: job
    match: { event: job }
    by: [key]
    limits:
      - { name: running, concurrent: 1, ttl: 1h }
      - { name: day, algorithm: fixed_window, max: 1000, per: 24h }
  - id: wide
    match: { event: wide }
    by: [key]
    limits: [ { name: hour, algorithm: fixed_window, max: 1000000, per: 1h } ]
  - id: page
    match: { path: /page }
    by: [ip]
    limits: [ { name: hour, algorithm: fixed_window, max: 2, per: 1h } ]
    reject: { status: 420, body: '{"error":"calm"}', content_type: application/json, headers: { X-Why: page } }
  - id: under
    match: { path: /under/page }
    by: [ip]
    limits: [ { name: hour, algorithm: fixed_window, max: 2, per: 1h } ]
  - id: mine
    match: { path: /mine }
    by: [user]
    limits: [ { name: hour, algorithm: fixed_window, max: 1, per: 1h } ]
  - id: keyed
    match: { path: /keyed }
    by: [key]
    limits: [ { name: hour, algorithm: fixed_window, max: 1, per: 1h } ]
  - id: slot
    match: { path: /slot }
    by: [user]
    limits: [ { name: running, concurrent: 1, ttl: 1h } ]
  - id: tenant
    match: { method: POST, host: api.example.com }
    by: ["header:X-Tenant"]
    limits: [ { name: hour, algorithm: fixed_window, max: 1, per: 1h } ]
  - id: descriptors
    match: { domain: edge, descriptor_keys: "plan,user", descriptor: { plan: free } }
    by: ["descriptor:user"]
    limits: [ { name: hour, algorithm: fixed_window, max: 1, per: 1h } ]
`
)

type service struct {
	t       testing.TB
	folder  string
	address string // of --resp
	url     string
	flags   []string
	command *exec.Cmd
}

// serve prepares `weir serve`. It keeps its address when it is started again. The table has room for the slots of many tests.
func serve(t testing.TB, flags ...string) *service {
	t.Helper()
	folder := t.TempDir()
	s := &service{t: t, folder: folder, flags: flags, address: fmt.Sprintf("127.0.0.1:%d", freePort(t))}
	s.url = "redis://" + s.address
	if err := os.WriteFile(filepath.Join(folder, "rules.yaml"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.end(syscall.SIGKILL) })
	return s
}

func (s *service) start() *service {
	s.t.Helper()
	binary := os.Getenv("WEIR_BINARY")
	if binary == "" {
		s.t.Skip("WEIR_BINARY does not name a weir; tests/clients/go.sh does")
	}
	log := filepath.Join(s.folder, "log")
	file, err := os.Create(log)
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	s.command = exec.Command(binary, append([]string{"serve", "--data", filepath.Join(s.folder, "data"), "--rules",
		filepath.Join(s.folder, "rules.yaml"), "--cells-memory", "none", "--cells-keys", "200000", "--resp", s.address,
		"--http", "off", "--admin", "off"}, s.flags...)...)
	s.command.Stdout, s.command.Stderr = file, file
	s.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.command.Start(); err != nil {
		s.t.Fatal(err)
	}
	until(s.t, "weir listens", func() bool {
		said, _ := os.ReadFile(log)
		if bytes.Contains(said, []byte("error")) && s.command.ProcessState != nil {
			s.t.Fatal(string(said))
		}
		return bytes.Contains(said, []byte(" listen: resp on "))
	})
	return s
}

func (s *service) end(how syscall.Signal) {
	if s.command != nil {
		_ = s.command.Process.Signal(how)
		_ = s.command.Wait()
		s.command = nil
	}
}

var (
	sharedLock sync.Mutex
	shared     *service
	sharedEnd  []func()
)

// lasting lets a helper of one test live as long as all of them.
type lasting struct{ testing.TB }

func (l lasting) Cleanup(f func()) { sharedEnd = append(sharedEnd, f) }

func (l lasting) TempDir() string {
	folder, err := os.MkdirTemp("", "weir-go-")
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

func TestMain(m *testing.M) {
	status := m.Run()
	for i := len(sharedEnd) - 1; i >= 0; i-- {
		sharedEnd[i]()
	}
	os.Exit(status)
}

// running returns the service that tests share which do not hurt it.
func running(t testing.TB) *service {
	t.Helper()
	sharedLock.Lock()
	defer sharedLock.Unlock()
	if shared == nil {
		s := serve(lasting{t})
		shared = s.start()
	}
	return shared
}

// remote asks that one.
func remote(t testing.TB) *Client {
	t.Helper()
	return connect(t, running(t).url, Options{Deadline: ample, WhenUnreachable: Refuse})
}

func connect(t testing.TB, url string, options Options) *Client {
	t.Helper()
	if options.Logf == nil {
		options.Logf = func(string, ...interface{}) {}
	}
	client, err := Connect(url, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

var numbers atomic.Int64

// newKey returns one that nobody has used.
func newKey() string { return fmt.Sprintf("subject-%d", numbers.Add(1)) }

func newAddress() string {
	n := numbers.Add(1)
	return fmt.Sprintf("10.1.%d.%d", n/250, n%250+1)
}

func freePort(t testing.TB) int {
	for {
		port := 20000 + rand.New(rand.NewSource(time.Now().UnixNano())).Intn(12768)
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			listener.Close()
			return port
		}
	}
}

func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(ample); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, ample)
		}
	}
}

func check(t testing.TB, client *Client, request Request) Verdict {
	t.Helper()
	verdict, err := client.Check(context.Background(), request)
	if err != nil {
		t.Fatalf("%+v: %v", request, err)
	}
	return verdict
}

func expect(t testing.TB, found, wanted interface{}, what string) {
	t.Helper()
	if found != wanted {
		t.Fatalf("%s: %v, expected %v", what, found, wanted)
	}
}

// listening has each connection in a goroutine of its own; it is something else than weir.
func listening(t testing.TB, attend func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); attend(conn) }()
		}
	}()
	return listener.Addr().String()
}

const (
	hello   = "*2\r\n$6\r\nserver\r\n$4\r\nweir\r\n"
	allowed = "*11\r\n:1\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n:0\r\n$-1\r\n:0\r\n:0\r\n$-1\r\n"
)

// answering has an answer to each command, and leaves the sending of it to others.
func answering(each func(conn net.Conn, command, answer string)) func(net.Conn) {
	return func(conn net.Conn) {
		asked := bufio.NewReader(conn)
		for {
			line, err := asked.ReadString('\n')
			if err != nil {
				return
			}
			count, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
			command := ""
			for i := 0; i < count; i++ {
				size, _ := asked.ReadString('\n')
				length, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(size, "$")))
				word := make([]byte, length+2)
				if _, err := io.ReadFull(asked, word); err != nil {
					return
				}
				if i == 0 {
					command = string(word[:length])
				}
			}
			answer := allowed
			if strings.EqualFold(command, "HELLO") {
				answer = hello
			}
			each(conn, command, answer)
		}
	}
}
