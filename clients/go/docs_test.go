package weir

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	page = "../../docs/go.md"
	// As the first rules of the service, but for the end of an hour, which may come at any time.
	tour = `
rules:
  - id: ocr
    match: { event: ocr }
    by: [key]
    limits: [ { name: hour, algorithm: fixed_window, max: 20, per: 1h } ]
`
	// What the pieces of the page talk about.
	around = `package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"weir.example/weir"
)

type Job struct {
	User  string
	Pages []string
}

type Answer struct{ Tokens int64 }

var (
	ctx          context.Context
	client       *weir.Client
	mux          http.Handler
	w            http.ResponseWriter
	r            *http.Request
	job          Job
	user, prompt string
	submit       func(context.Context, Job) (string, error)
	_            = errors.As
	_            = fmt.Println
	_            = time.Minute
)

func submitOCR(context.Context, Job) (string, error)          { return "", nil }
func readPages(context.Context, Job) (string, error)          { return "", nil }
func askTheModel(context.Context, string) (Answer, error)     { return Answer{}, nil }
func use(...interface{})                                      {}
func main()                                                   {}
`
)

func blocks(t *testing.T, language string) []string {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Skip("not in weir's tree")
	}
	var found []string
	for _, match := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllSubmatch(text, -1) {
		found = append(found, string(match[1]))
	}
	return found
}

// module makes a folder with a module that uses this package, as the page does.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, needs, _ := strings.Cut(string(own), "\n\n")
	files["go.sum"] = string(sums)
	files["go.mod"] = "module tour\n\n" + needs + "\nrequire weir.example/weir v0.0.0\nreplace weir.example/weir => " + here + "\n"
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func goTool(t *testing.T, folder string, words ...string) string {
	t.Helper()
	command := exec.Command("go", words...)
	command.Dir = folder
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(words, " "), err, out)
	}
	return string(out)
}

func TestTheTour(t *testing.T) {
	service := serve(t)
	if err := os.WriteFile(filepath.Join(service.folder, "rules.yaml"), []byte(tour), 0o600); err != nil {
		t.Fatal(err)
	}
	service.start()
	code := ""
	for _, block := range blocks(t, "go") {
		if strings.HasPrefix(block, "// ocr.go\n") {
			// The deadline is for users; a busy machine is not what is tested here.
			code = strings.Replace(block, "weir.Options{}", `weir.Options{Deadline: 60e9}`, 1)
		}
	}
	code = strings.Replace(code, "redis://127.0.0.1:6380", service.url, 1)
	found := goTool(t, module(t, map[string]string{"ocr.go": code}), "run", ".")
	shown := regexp.QuoteMeta(blocks(t, "text")[0])
	if !regexp.MustCompile("(?s)^" + strings.ReplaceAll(shown, "…", ".*") + "$").MatchString(found) {
		t.Fatal(found)
	}
}

// The other pieces of the page compile: each in a function of its own.
func TestThePieces(t *testing.T) {
	code := around
	for _, block := range blocks(t, "go") {
		if strings.HasPrefix(block, "// ocr.go\n") {
			continue
		}
		used := regexp.MustCompile(`(?m)^((?:\w+, )*\w+) :=`).FindAllStringSubmatch(block, -1)
		code += "\nfunc _() {\n" + block
		for _, names := range used {
			code += "use(" + names[1] + ")\n"
		}
		code += "}\n"
	}
	goTool(t, module(t, map[string]string{"pieces.go": code}), "build", "-o", os.DevNull, ".")
}
