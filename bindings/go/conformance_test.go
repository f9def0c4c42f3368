package experiment

// Runs the cases that every language runs; see tests/conformance/README.md.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

type conformanceCase struct {
	Name, Why   string
	Client      map[string]any
	Server      json.RawMessage
	Creation    *expected
	Steps       []steps
	Requests    []expectedRequest
	Connections *int
	Logs        []expectedLine
	Except      map[string]string
}

type steps []step // made at once

type step struct {
	Close, Sleep      *int
	User              *caseUser
	Options           caseOptions
	Fetch             string
	Gets              expected
	BeginsAfterMillis int  `json:"begins_after_millis"`
	CancelAfterMillis *int `json:"cancel_after_millis"`
	WithinMillis      int  `json:"within_millis"`
	NotBeforeMillis   int  `json:"not_before_millis"`
}

// A way of fetching: how the client is made, and what is called when nothing asks for a context.
type way struct {
	name   string
	open   func(apiKey string, config *Config) (*Client, error)
	simple func(c *Client, user *User, options *FetchOptions) (map[string]Variant, error)
}

var ways = []way{
	{"Initialize and FetchV2WithOptions", func(apiKey string, config *Config) (*Client, error) {
		client := Initialize(apiKey, config)
		return client, client.refusal() // with which every fetch fails
	}, (*Client).FetchV2WithOptions},
	{"NewClient and a context", NewClient, func(c *Client, user *User, options *FetchOptions) (map[string]Variant, error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		return c.FetchV2WithContextAndOptions(user, ctx, options)
	}},
}

func TestConformance(t *testing.T) {
	cases, excepted := readCases(t)
	outcomes := map[bool]int{}
	for _, c := range cases {
		outcomes[t.Run(c.Name, func(t *testing.T) {
			for _, way := range ways {
				t.Run(way.name, func(t *testing.T) {
					t.Parallel()
					c.run(t, way)
				})
			}
		})]++
	}
	fmt.Printf("conformance go: %d passed, %d failed, %d excepted\n", outcomes[true], outcomes[false], excepted)
	if outcomes[true] == 0 {
		t.Error("nothing has passed")
	}
}

func readCases(t *testing.T) (cases []conformanceCase, excepted int) {
	files, _ := filepath.Glob("../../tests/conformance/*.json")
	for _, file := range files {
		var inFile []conformanceCase
		decodeStrictly(t, must(os.ReadFile(file)), &inFile)
		for _, c := range inFile {
			if reason, isExcepted := c.Except["go"]; isExcepted {
				fmt.Printf("excepted: %s: %s\n", c.Name, reason)
				excepted++
			} else if strings.Contains(c.Name, os.Getenv("CONFORMANCE_ONLY")) {
				cases = append(cases, c)
			}
		}
	}
	return cases, excepted
}

func (c *conformanceCase) run(t *testing.T, way way) {
	service := play(t, cmp.Or(string(c.Server), "{}"))
	log := &recorder{}
	apiKey, config := settings(t, c.Client, service.Url, log)
	client, err := way.open(apiKey, config)
	if err != nil || c.Creation != nil {
		cmp.Or(c.Creation, &expected{}).compare(t, nil, nil, err)
		return
	}
	defer client.Close()
	for _, steps := range c.Steps {
		var all sync.WaitGroup
		for _, s := range steps {
			all.Add(1)
			go func() { defer all.Done(); s.run(t, way, client) }()
		}
		all.Wait()
	}
	if c.Requests != nil || c.Connections != nil {
		c.compareSeen(t, service.seen(t))
	}
	log.compare(t, c.Logs, apiKey)
}

func (s *step) run(t *testing.T, way way, client *Client) {
	time.Sleep(millisecondsOf(s.BeginsAfterMillis))
	switch {
	case s.Sleep != nil:
		time.Sleep(millisecondsOf(*s.Sleep))
	case s.Close != nil:
		ctx, cancel := context.WithTimeout(context.Background(), millisecondsOf(*s.Close))
		defer cancel()
		client.Shutdown(ctx)
	default:
		began, report := time.Now(), &Report{}
		variants, err := s.fetch(way, client, report)
		took, within := time.Since(began), cmp.Or(s.WithinMillis, 5000)
		s.Gets.compare(t, variants, report, err)
		if took < millisecondsOf(s.NotBeforeMillis) || took > millisecondsOf(within) {
			t.Errorf("came back after %v; expected after %d to %d ms", took, s.NotBeforeMillis, within)
		}
	}
}

func (s *step) fetch(way way, client *Client, report *Report) (map[string]Variant, error) {
	if s.Fetch == "deployed" {
		return client.Fetch(s.User.user())
	}
	options := s.Options.options(report)
	if s.Options.DeadlineMillis == nil && s.CancelAfterMillis == nil {
		return way.simple(client, s.User.user(), options)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if s.CancelAfterMillis != nil {
		time.AfterFunc(millisecondsOf(*s.CancelAfterMillis), cancel)
	}
	if s.Options.DeadlineMillis != nil {
		ctx, cancel = context.WithTimeout(ctx, millisecondsOf(*s.Options.DeadlineMillis))
	}
	defer cancel()
	return client.FetchV2WithContextAndOptions(s.User.user(), ctx, options)
}

func (e *expected) compare(t *testing.T, variants map[string]Variant, report *Report, err error) {
	var got *FetchError
	if err != nil && !errors.As(err, &got) {
		t.Fatalf("%v is no FetchError", err)
	} else if err == nil {
		got = &FetchError{Phase: PhaseNone}
		if e.Error == "" && !sameJSON(asJSON(variants), e.Variants) {
			t.Errorf("got %s; expected %s", asJSON(variants), e.Variants)
		}
	}
	differs := got.Status.String() != cmp.Or(e.Error, "EXP_OK") || got.Retryable != e.Retryable ||
		e.HTTPStatus != nil && got.HTTPStatus != *e.HTTPStatus || got.Phase.String() != cmp.Or(e.Phase, got.Phase.String()) ||
		e.RetryAfterMillis != nil && got.RetryAfter != millisecondsOf(*e.RetryAfterMillis) ||
		e.Attempts != nil && report != nil && report.Attempts != *e.Attempts || !containsAll(got.Message, e.Message)
	if differs || strings.Contains(got.Message, "conformance-key") {
		t.Errorf("got %+v after %+v; expected %s", got, report, must(json.Marshal(e)))
	}
}

func (c *conformanceCase) compareSeen(t *testing.T, got seen) {
	if c.Connections != nil && got.ConnectionsAccepted != *c.Connections {
		t.Errorf("%d connections were accepted; expected %d", got.ConnectionsAccepted, *c.Connections)
	}
	if c.Requests != nil && len(got.Requests) != len(c.Requests) {
		t.Fatalf("%d requests were seen; expected %d", len(got.Requests), len(c.Requests))
	}
	for i, want := range c.Requests {
		if !want.isLike(got.Requests[i]) {
			t.Errorf("request %d was %+v; expected %s", i, got.Requests[i], must(json.Marshal(want)))
		}
	}
}
