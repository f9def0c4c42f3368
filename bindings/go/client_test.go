package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/amplitude/libexperiment/bindings/go/logger"
)

// late is how much later than promised a fetch may be back on a busy machine.
const late = 300 * time.Millisecond

const stalled = `{"answers": [{"steps": ["hold"]}]}`

// open makes a client that is closed after the test. It fetches once, for as long as it takes.
func open(t testing.TB, service played, settings Config) *Client {
	t.Helper()
	settings.ServerUrl = service.Url
	if settings.FetchTimeout == 0 {
		settings.FetchTimeout = time.Minute
	}
	if settings.RetryBackoff == nil {
		settings.RetryBackoff = &RetryBackoff{}
	}
	client, err := NewClient("key", &settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// failure is the error of a fetch, which must have come back within that time.
func failure(t *testing.T, within time.Duration, fetch func() (map[string]Variant, error)) *FetchError {
	t.Helper()
	began := time.Now()
	variants, err := fetch()
	if took := time.Since(began); took > within+late {
		t.Errorf("came back after %v, not %v", took, within)
	}
	var failure *FetchError
	if !errors.As(err, &failure) || variants != nil {
		t.Fatalf("got %v and %v; expected a FetchError", variants, err)
	}
	return failure
}

func isAll(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("%v is not %v", err, target)
		}
	}
}

func TestTheContextsDeadlineIsTheFetchs(t *testing.T) {
	client := open(t, play(t, stalled), Config{})
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	err := failure(t, 100*time.Millisecond, func() (map[string]Variant, error) { return client.FetchV2WithContext(nil, ctx) })
	isAll(t, err, context.DeadlineExceeded, os.ErrDeadlineExceeded)
	if err.Status != StatusTimeout || err.Phase != PhaseFirstByte || !err.Timeout() || !err.Retryable || err.Attempts != 1 {
		t.Errorf("%+v does not say what the fetch was waiting for", err)
	}
	if err.Phases[PhaseFirstByte] < 50*time.Millisecond {
		t.Errorf("%v was spent waiting for the answer", err.Phases[PhaseFirstByte])
	}
}

func TestADeadlineThatIsOverSendsNothing(t *testing.T) {
	service := play(t, "{}")
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	client := open(t, service, Config{})
	err := failure(t, 0, func() (map[string]Variant, error) { return client.FetchV2WithContext(nil, ctx) })
	isAll(t, err, context.DeadlineExceeded)
	if requests := service.seen(t).RequestsTotal; requests != 0 {
		t.Errorf("%d requests were sent", requests)
	}
}

func TestCancelingTheContextEndsTheFetchWithItsCause(t *testing.T) {
	client := open(t, play(t, stalled), Config{})
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("the user went away")
	time.AfterFunc(100*time.Millisecond, func() { cancel(cause) })
	err := failure(t, 100*time.Millisecond, func() (map[string]Variant, error) { return client.FetchV2WithContext(nil, ctx) })
	isAll(t, err, context.Canceled, cause)
	if err.Status != StatusCanceled || err.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v is no cancellation", err)
	}
}

func TestACanceledContextSendsNothing(t *testing.T) {
	service := play(t, "{}")
	client := open(t, service, Config{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	isAll(t, failure(t, 0, func() (map[string]Variant, error) { return client.FetchV2WithContext(nil, ctx) }), context.Canceled)
	if requests := service.seen(t).RequestsTotal; requests != 0 {
		t.Errorf("%d requests were sent", requests)
	}
}

// lateContext says that it ends in an hour, and ends when it likes.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }

func TestAContextThatEndsBeforeItsDeadlineEndsTheFetch(t *testing.T) {
	client := open(t, play(t, stalled), Config{})
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	err := failure(t, 100*time.Millisecond, func() (map[string]Variant, error) { return client.FetchV2WithContext(nil, lateContext{ctx}) })
	isAll(t, err, context.DeadlineExceeded)
}

// tardyContext ends later than it says, as every context does whose timer comes late.
type tardyContext struct {
	context.Context
	deadline time.Time
}

func (c tardyContext) Deadline() (time.Time, bool) { return c.deadline, true }

func TestATimeoutOfAContextHasItsCauseHoweverLateTheContextEnds(t *testing.T) {
	client := open(t, play(t, stalled), Config{})
	cause := errors.New("no time left")
	const said = 100 * time.Millisecond
	ctx, cancel := context.WithTimeoutCause(context.Background(), said+5*time.Millisecond, cause)
	defer cancel()
	tardy := tardyContext{ctx, time.Now().Add(said)}
	err := failure(t, said, func() (map[string]Variant, error) { return client.FetchV2WithContext(nil, tardy) })
	isAll(t, err, context.DeadlineExceeded, cause)

	never := tardyContext{context.Background(), time.Now().Add(said)}
	isAll(t, failure(t, said, func() (map[string]Variant, error) { return client.FetchV2WithContext(nil, never) }), context.DeadlineExceeded)
}

func TestATimeoutOfTheClientIsNoCancellationThoughTheContextIsCanceledMeanwhile(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := (&FetchError{Status: StatusTimeout}).endedBy(ctx); errors.Is(err, context.Canceled) {
		t.Errorf("%v is a cancellation", err)
	}
}

func TestTheLibrarysTimeoutsAreGosTimeouts(t *testing.T) {
	client := open(t, play(t, stalled), Config{FetchTimeout: 500 * time.Millisecond, ConnectionPoolMaxSize: 1, FetchPoolAcquireTimeout: 50 * time.Millisecond})
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := failure(t, 500*time.Millisecond, func() (map[string]Variant, error) { return client.FetchV2(nil) })
		isAll(t, err, context.DeadlineExceeded, os.ErrDeadlineExceeded)
	}()
	waitFor(t, "the only connection to be busy", func() bool { return strings.Contains(metricsOf(t, client), `"connections_leased":1`) })
	err := failure(t, 50*time.Millisecond, func() (map[string]Variant, error) { return client.FetchV2(nil) })
	isAll(t, err, context.DeadlineExceeded)
	if err.Phase != PhasePool {
		t.Errorf("%+v did not wait for a connection", err)
	}
	<-done
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%v is no timeout of package net", err)
	}
}

func TestAnHTTPStatusIsToldWithAllThatIsKnown(t *testing.T) {
	client := open(t, play(t, `{"answers": [{"status": 429, "headers": [["Retry-After", "7"]]}]}`), Config{})
	err := failure(t, 0, func() (map[string]Variant, error) { return client.FetchV2(nil) })
	want := FetchError{Status: StatusHTTP, HTTPStatus: 429, Retryable: true, RetryAfter: 7 * time.Second, Phase: PhaseNone, Message: err.Message, Report: err.Report}
	if *err != want || err.Timeout() || !err.Temporary() || !strings.HasPrefix(err.Error(), "EXP_ERR_HTTP_STATUS: ") {
		t.Errorf("got %+v; expected %+v", *err, want)
	}
}

func TestAReportSaysHowTheFetchWent(t *testing.T) {
	client := open(t, play(t, `{"answers": [{}, {"status": 503}, {}]}`), Config{RetryBackoff: &RetryBackoff{FetchRetries: 1}})
	var report Report
	for fetch, want := range []Report{{Attempts: 1}, {Attempts: 2, ConnectionReused: true}} {
		if _, err := client.FetchV2WithOptions(nil, &FetchOptions{Report: &report}); err != nil {
			t.Fatal(err)
		}
		if report.Attempts != want.Attempts || report.Phases[PhaseFirstByte] == 0 {
			t.Errorf("fetch %d went %+v; expected %+v", fetch, report, want)
		}
	}
	if !report.ConnectionReused {
		t.Errorf("%+v does not tell that the connection had served before", report)
	}
}

func TestOptionsThatAreNotChosenAreNotSent(t *testing.T) {
	service := play(t, `{"answers": [{"json": {}}]}`)
	client := open(t, service, Config{})
	for _, options := range []FetchOptions{{TracksExposure: Track}, {TracksAssignment: NoTrack, FlagKeys: []string{"a", "b\x00ü"}}} {
		if _, err := client.FetchV2WithOptions(nil, &options); err != nil {
			t.Fatal(err)
		}
	}
	requests := service.seen(t).Requests
	for i, want := range []map[string]any{
		{"X-Amp-Exp-Track": nil, "X-Amp-Exp-Exposure-Track": "track", "X-Amp-Exp-Flag-Keys": nil},
		{"X-Amp-Exp-Track": "no-track", "X-Amp-Exp-Exposure-Track": nil, "X-Amp-Exp-Flag-Keys": "WyJhIiwiYlx1MDAwMFx1MDBmYyJd"},
	} {
		if !(expectedRequest{Headers: want}).hasHeadersOf(requests[i]) {
			t.Errorf("sent %v; expected %v", requests[i].Headers, want)
		}
	}
	if failure(t, 0, func() (map[string]Variant, error) {
		return client.FetchV2WithOptions(nil, &FetchOptions{TracksExposure: 7})
	}).Status != StatusInvalidArgument {
		t.Error("a Tracking that is none was accepted")
	}
}

func TestLiteralsOfTheVendorsUserCompileAndSendLists(t *testing.T) {
	service := play(t, "{}")
	user := &User{
		UserId:         "u",
		CohortIds:      map[string]struct{}{"b": {}, "a": {}},
		GroupCohortIds: map[string]map[string]map[string]struct{}{"org": {"x": {"2": {}, "1": {}}}},
	}
	user.AddGroupCohortIds("org", "y", map[string]struct{}{"3": {}})
	if _, err := open(t, service, Config{}).FetchV2(user); err != nil {
		t.Fatal(err)
	}
	want := `{"user_id":"u","cohort_ids":["a","b"],"group_cohort_ids":{"org":{"x":["1","2"],"y":["3"]}},"library":"libexperiment-go/0.1.0"}`
	if got := service.seen(t).Requests[0].Body; !sameJSON([]byte(got), []byte(want)) {
		t.Errorf("sent %s; expected %s", got, want)
	}
	if user.Library != "" {
		t.Errorf("the user was changed: %+v", user)
	}
	var read User
	if err := json.Unmarshal([]byte(want), &read); err != nil || len(read.CohortIds) != 2 || len(read.GroupCohortIds["org"]["x"]) != 2 {
		t.Errorf("read %+v back: %v", read, err)
	}
}

func TestAUserThatIsNoJSONIsRefused(t *testing.T) {
	service := play(t, "{}")
	client := open(t, service, Config{})
	user := &User{UserProperties: map[string]interface{}{"f": func() {}}}
	err := failure(t, 0, func() (map[string]Variant, error) { return client.FetchV2(user) })
	var unsupported *json.UnsupportedTypeError
	if err.Status != StatusInvalidArgument || !errors.As(err, &unsupported) {
		t.Errorf("got %v", err)
	}
}

func TestPayloadsAreAsTheVendorsAndExactIfAskedFor(t *testing.T) {
	client := open(t, play(t, `{"answers": [{"body": "{\"f\":{\"key\":\"on\",\"value\":12345678901234567890,\"payload\":{\"n\":9007199254740993}},\"g\":{\"payload\":1e999}}"}]}`), Config{})
	variants, err := client.FetchV2(nil)
	if err != nil {
		t.Fatal(err)
	}
	f := variants["f"]
	if number, isFloat := f.Payload.(map[string]interface{})["n"].(float64); !isFloat || number != 9007199254740992 || f.Value != "12345678901234567890" {
		t.Errorf("got %+v", f)
	}
	var exact struct{ N int64 }
	if err := f.DecodePayload(&exact); err != nil || exact.N != 9007199254740993 {
		t.Errorf("got %+v: %v", exact, err)
	}
	if variants["g"].Payload != json.Number("1e999") {
		t.Errorf("got %v for what no float64 can hold", variants["g"].Payload)
	}
	if err := (Variant{}).DecodePayload(&exact); err != nil {
		t.Error(err)
	}
}

func TestTheDeprecatedFetchLeavesDefaultsOut(t *testing.T) {
	client := open(t, play(t, `{"answers": [{"json": {"on": {"key": "on"}, "off": {"key": "off", "metadata": {"default": true}}, "not": {"metadata": {"deployed": false}}}}]}`), Config{})
	variants, err := client.Fetch(&User{})
	if _, on := variants["on"]; err != nil || !on || len(variants) != 1 {
		t.Errorf("got %v: %v", variants, err)
	}
}

func TestInitializeGivesOneClientForAKeyUntilItIsClosed(t *testing.T) {
	config := &Config{ServerUrl: play(t, "{}").Url}
	first := Initialize("shared", config)
	if Initialize("shared", nil) != first || Initialize("other", config) == first {
		t.Error("one key must have one client, and two keys two")
	}
	first.Close()
	Initialize("other", nil).Close()
	second := Initialize("shared", config)
	defer second.Close()
	if _, err := second.FetchV2(nil); second == first || err != nil {
		t.Errorf("a closed client was handed out again: %v", err)
	}
}

func TestSettingsThatAreRefusedFailNewClientAndEveryFetchAfterInitialize(t *testing.T) {
	for setting, config := range map[string]*Config{
		"fetch_timeout_millis":              {FetchTimeout: NoTime},
		"fetch_pool_acquire_timeout_millis": {FetchPoolAcquireTimeout: -2},
		"connection_pool_max_size":          {ConnectionPoolMaxSize: -1},
		"max_response_bytes":                {MaxResponseBytes: -1},
		"fetch_retry_backoff_scalar":        {RetryBackoff: &RetryBackoff{FetchRetryBackoffScalar: 0.5}},
		"server_url":                        {ServerUrl: "ftp://somewhere"},
		"server_zone":                       {ServerZone: 9},
		"proxy_url":                         {ProxyURL: "socks5://somewhere"},
		"ca_file":                           {CAFile: "/nowhere/at/all"},
		"fetch_deadline_millis":             {FetchDeadline: 25 * time.Hour},
		"connection_idle_timeout_millis":    {ConnectionIdleTimeout: NoLimit},
		"connection_max_lifetime_millis":    {ConnectionMaxLifetime: 25 * time.Hour},
	} {
		_, err := NewClient("key", config)
		_, fetchErr := Initialize("key", config).FetchV2(nil)
		for _, err := range []error{err, fetchErr} {
			if statusOf(err) != StatusInvalidArgument || !strings.Contains(err.Error(), setting) {
				t.Errorf("%s: got %v", setting, err)
			}
		}
	}
	refused := Initialize("", nil)
	if _, err := refused.Metrics(); statusOf(err) != StatusInvalidArgument || refused.Close() != nil {
		t.Errorf("no API key: got %v", err)
	}
}

func statusOf(err error) Status {
	var failure *FetchError
	errors.As(err, &failure)
	if failure == nil {
		return StatusOK
	}
	return failure.Status
}

func TestZeroValuesAreTheVendorsDefaultsAndConfigsAreNotChanged(t *testing.T) {
	given := Config{ServerZone: EUServerZone, RetryBackoff: &RetryBackoff{FetchRetries: 3}}
	filled := given.withDefaults()
	want := RetryBackoff{FetchRetries: 3, FetchRetryBackoffMax: 10 * time.Second, FetchRetryBackoffScalar: 1, FetchRetryTimeout: 500 * time.Millisecond}
	if *filled.RetryBackoff != want || filled.FetchTimeout != 500*time.Millisecond || filled.ServerZone != EUServerZone {
		t.Errorf("got %+v, %+v", filled, filled.RetryBackoff)
	}
	if given.FetchTimeout != 0 || *given.RetryBackoff != (RetryBackoff{FetchRetries: 3}) {
		t.Errorf("the caller's settings were changed: %+v", given)
	}
	var none *Config
	if *none.withDefaults().RetryBackoff != *DefaultRetryBackoff {
		t.Error("a nil Config is not the default one")
	}
}

func TestALibraryOfAnotherSeriesIsRefusedWithBothVersions(t *testing.T) {
	if failure := checkVersion(loadedVersion()); failure != nil {
		t.Fatal(failure)
	}
	for loaded, fits := range map[string]bool{"0.1.9": true, "0.2.0": false, "1.1.0": false, "": false} {
		failure := checkVersion(loaded)
		if fits != (failure == nil) || !fits && !(strings.Contains(failure.Message, loaded) && strings.Contains(failure.Message, Version)) {
			t.Errorf("%q: %v", loaded, failure)
		}
	}
}

func TestStatusesAndPhasesHaveNames(t *testing.T) {
	for status := StatusOK; status <= StatusInternal; status++ {
		if name := status.String(); !strings.HasPrefix(name, "EXP_") || name == "EXP_ERR_UNKNOWN" {
			t.Errorf("status %d is called %q", int(status), name)
		}
	}
	if names := fmt.Sprint(Status(99), PhaseNone, PhaseBackoff, Phase(99)); names != "EXP_ERR_UNKNOWN none backoff Phase(99)" {
		t.Error(names)
	}
}

func TestMetricsComeInBothForms(t *testing.T) {
	client := open(t, play(t, "{}"), Config{})
	if _, err := client.FetchV2(nil); err != nil {
		t.Fatal(err)
	}
	if text := metricsOf(t, client); !json.Valid([]byte(text)) {
		t.Errorf("no JSON: %s", text)
	}
	text, err := client.OpenMetrics()
	if err != nil || !strings.HasSuffix(string(text), "# EOF\n") {
		t.Errorf("no OpenMetrics: %s: %v", text, err)
	}
}

func metricsOf(t *testing.T, client *Client) string {
	t.Helper()
	text, err := client.Metrics()
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func TestLinesReachTheLoggerAtTheirLevelAndAreNoFormats(t *testing.T) {
	log := &recorder{}
	service := play(t, `{"answers": [{"json": {"100%d": 1}}]}`)
	for level, wanted := range map[logger.LogLevel]bool{logger.Warn: true, logger.Unknown: false, logger.Disable: false} {
		log.lines = nil
		if _, err := open(t, service, Config{LoggerProvider: log, LogLevel: level}).FetchV2(nil); err != nil {
			t.Fatal(err)
		}
		if warned := len(log.lines) > 0 && log.lines[0].level == "warn"; warned != wanted || strings.Contains(fmt.Sprint(log.lines), "%!") {
			t.Errorf("at level %d: %q", level, log.lines)
		}
	}
}

// disturber does something whenever it is to warn.
type disturber struct {
	recorder
	disturb func()
}

func (d *disturber) Warn(string, ...interface{}) { d.disturb() }

// largeUser is one that the library warns of on the thread that fetches.
var largeUser = &User{UserProperties: map[string]interface{}{"large": strings.Repeat("x", 20_000)}}

func TestLoggersMayFetchThemselvesHoweverManyAtOnce(t *testing.T) {
	service := play(t, "{}")
	helper := open(t, service, Config{})
	var logging sync.WaitGroup
	logging.Add(cap(calls))
	log := &disturber{disturb: func() {
		logging.Done()
		logging.Wait() // until each place in the library is one of a fetch that logs
		if _, err := helper.FetchV2(nil); err != nil {
			t.Error(err)
		}
	}}
	done := make(chan error)
	for range cap(calls) {
		client := open(t, service, Config{LoggerProvider: log, LogLevel: logger.Warn})
		go func() { _, err := client.FetchV2(largeUser); done <- err }()
	}
	for range cap(calls) {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			panic("the loggers wait for one another") // closing the clients would wait too
		}
	}
}

func TestWhatALoggerPanicsWithIsDroppedAndHarmsNoFetch(t *testing.T) {
	log := &disturber{disturb: func() { panic("at the logger") }}
	client := open(t, play(t, `{"answers": [{}, {"status": 404}, {}]}`), Config{LoggerProvider: log, LogLevel: logger.Warn})
	for range cap(calls) + 1 { // the first panics on this thread, the second on one of the library's
		if _, err := client.FetchV2(largeUser); err != nil && statusOf(err) != StatusHTTP {
			t.Error(err)
		}
	}
}

func TestALoggerIsLetGoWithItsClient(t *testing.T) {
	gone := make(chan struct{})
	func() {
		log := &recorder{}
		runtime.AddCleanup(log, func(gone chan struct{}) { close(gone) }, gone)
		client := open(t, play(t, "{}"), Config{LoggerProvider: log, Debug: true})
		client.FetchV2(nil)
		client.Close()
	}()
	waitFor(t, "the logger to be collected", func() bool {
		runtime.GC()
		select {
		case <-gone:
			return true
		default:
			return false
		}
	})
}

func TestCloseCutsOffWhatRunsAndRefusesTheRest(t *testing.T) {
	service := play(t, stalled)
	client := open(t, service, Config{})
	done := make(chan *FetchError)
	go func() {
		done <- failure(t, time.Minute, func() (map[string]Variant, error) { return client.FetchV2(nil) })
	}()
	waitFor(t, "the fetch to be sent", func() bool { return service.seen(t).RequestsTotal == 1 })
	began := time.Now()
	if err := client.Close(); err != nil || time.Since(began) > late {
		t.Errorf("closed after %v: %v", time.Since(began), err)
	}
	isAll(t, <-done, net.ErrClosed)
	isAll(t, failure(t, 0, func() (map[string]Variant, error) { return client.FetchV2(nil) }), net.ErrClosed)
	if _, err := client.Metrics(); !errors.Is(err, net.ErrClosed) || client.Close() != nil {
		t.Errorf("after the close: %v", err)
	}
}

func TestShutdownWaitsForWhatRunsAsLongAsItsContext(t *testing.T) {
	service := play(t, `{"answers": [{"delay_millis": 200, "json": {}}, {"steps": ["hold"]}]}`)
	for fetch, want := range []error{nil, context.DeadlineExceeded} {
		client := open(t, service, Config{})
		done := make(chan error, 1)
		go func() { _, err := client.FetchV2(nil); done <- err }()
		waitFor(t, "the fetch to be sent", func() bool { return service.seen(t).RequestsTotal == fetch+1 })
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond+late*time.Duration(1-fetch))
		defer cancel()
		began := time.Now()
		if err := client.Shutdown(ctx); err != want || time.Since(began) > 200*time.Millisecond+2*late {
			t.Errorf("shut down after %v with %v; expected %v", time.Since(began), err, want)
		}
		if err := <-done; (err == nil) != (want == nil) {
			t.Errorf("the fetch came to %v", err)
		}
	}
}

func TestClosingAtOnceFromManyGoroutinesIsSafe(t *testing.T) {
	client := open(t, play(t, `{"answers": [{"delay_millis": 20}]}`), Config{})
	var all sync.WaitGroup
	for i := range 64 {
		all.Add(1)
		go func() {
			defer all.Done()
			if i%2 == 0 {
				client.FetchV2(nil)
			} else {
				time.Sleep(time.Duration(i) * time.Millisecond)
				client.Close()
			}
		}()
	}
	all.Wait()
}

// waitFor waits, for as long as a very slow machine may need, until something has come about.
func waitFor(t testing.TB, what string, about func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !about(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
