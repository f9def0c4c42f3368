package experiment

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// mock is the mock of the evaluation service that all tests share; each plays a service of its own.
var mock *mockService

type mockService struct {
	mu      sync.Mutex
	orders  io.WriteCloser
	answers *bufio.Reader
}

func TestMain(m *testing.M) {
	command := exec.Command(os.Getenv("MOCK_SERVICE"))
	orders, _ := command.StdinPipe()
	answers, _ := command.StdoutPipe()
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "MOCK_SERVICE must name the mock of the evaluation service:", err)
		os.Exit(1)
	}
	mock = &mockService{orders: orders, answers: bufio.NewReader(answers)}
	mock.answers.ReadString('\n')
	code := m.Run()
	orders.Close()
	command.Wait()
	os.Exit(code)
}

// played is a service that the mock plays. Id is nil for one at which every connection is refused.
type played struct {
	Id  *int   `json:"id"`
	Url string `json:"url"`
}

// play plays a script, or `"refused"` or `"black_hole"`, until the test is over.
func play(t testing.TB, script string) played {
	t.Helper()
	order := `{"play":` + script + `}`
	switch script {
	case `"refused"`, `"black_hole"`:
		order = `{` + script + `:true}`
	}
	var service played
	mock.order(t, order, &service)
	if service.Id != nil {
		t.Cleanup(func() { mock.order(t, fmt.Sprintf(`{"stop":%d}`, *service.Id), nil) })
	}
	return service
}

// seen is what a played service has received.
type seen struct {
	ConnectionsAccepted int `json:"connections_accepted"`
	ConnectionsOpen     int `json:"connections_open"`
	ConnectionsOpenMax  int `json:"connections_open_max"`
	RequestsTotal       int `json:"requests_total"`
	Requests            []receivedRequest
}

type receivedRequest struct {
	Method, Path, Body string
	Headers            [][2]string
}

func (r receivedRequest) header(name string) (value string, found bool) {
	for _, header := range r.Headers {
		if strings.EqualFold(header[0], name) {
			return header[1], true
		}
	}
	return "", false
}

func (p played) seen(t testing.TB) (seen seen) {
	t.Helper()
	mock.order(t, fmt.Sprintf(`{"seen":%d}`, *p.Id), &seen)
	return seen
}

func (m *mockService) order(t testing.TB, order string, into any) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	var line bytes.Buffer
	if err := json.Compact(&line, []byte(order)); err != nil {
		t.Fatal(err)
	}
	line.WriteByte('\n')
	m.orders.Write(line.Bytes())
	answer, err := m.answers.ReadBytes('\n')
	if err == nil && into != nil {
		err = json.Unmarshal(answer, into)
	}
	var refusal struct{ Error string }
	if err != nil || json.Unmarshal(answer, &refusal) == nil && refusal.Error != "" {
		t.Fatalf("the mock answers %s to %s: %v", answer, order, err)
	}
}
