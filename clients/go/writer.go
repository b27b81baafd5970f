package weir

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// writer adds headers to a response, except those that the handler has set itself.
type writer struct {
	http.ResponseWriter
	ours  http.Header
	begun bool
}

func (w *writer) begin(status int) {
	if w.begun || status < 200 && status != http.StatusSwitchingProtocols {
		return // informational ones come before the response
	}
	w.begun = true
	header := w.Header()
	for name, values := range w.ours {
		if _, there := header[name]; !there {
			header[name] = values
		}
	}
}

func (w *writer) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(text []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(text)
}

func (w *writer) WriteString(text string) (int, error) {
	w.begin(http.StatusOK)
	return io.WriteString(w.ResponseWriter, text)
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter {
	return w.ResponseWriter
}

// What a handler can do with its writer besides: as much as without us, and no more.

type flushing struct{ *writer }

func (w flushing) Flush() {
	w.begin(http.StatusOK)
	w.ResponseWriter.(http.Flusher).Flush()
}

type hijacking struct{ flushing }

func (w hijacking) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.ResponseWriter.(http.Hijacker).Hijack()
}

type http1 struct{ hijacking }

func (w http1) ReadFrom(from io.Reader) (int64, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.(io.ReaderFrom).ReadFrom(from)
}

type http2 struct{ flushing }

func (w http2) Push(target string, options *http.PushOptions) error {
	return w.ResponseWriter.(http.Pusher).Push(target, options)
}

// adding returns what the handler gets, and what is in it.
func adding(inner http.ResponseWriter, ours http.Header) (http.ResponseWriter, *writer) {
	w := &writer{ResponseWriter: inner, ours: ours}
	if _, ok := inner.(http.Flusher); !ok {
		return w, w
	}
	if _, ok := inner.(http.Pusher); ok {
		return http2{flushing{w}}, w
	}
	if _, ok := inner.(http.Hijacker); !ok {
		return flushing{w}, w
	}
	if _, ok := inner.(io.ReaderFrom); ok {
		return http1{hijacking{flushing{w}}}, w
	}
	return hijacking{flushing{w}}, w
}
