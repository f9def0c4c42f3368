package experiment

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/amplitude/libexperiment/bindings/go/logger"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// decodeStrictly fails for a field that is unknown, so that nothing is passed over in silence.
func decodeStrictly(t *testing.T, text []byte, into any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		t.Fatal(err)
	}
}

// UnmarshalJSON takes one step for a list of one.
func (s *steps) UnmarshalJSON(text []byte) error {
	if text[0] != '[' {
		text = fmt.Appendf(nil, "[%s]", text)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode((*[]step)(s))
}

// caseUser is a user by the service's names, those too that User has no field for.
type caseUser User

func (u *caseUser) UnmarshalJSON(text []byte) error {
	var known map[string]any
	if err := json.Unmarshal(text, (*User)(u)); err != nil {
		return err
	}
	if err := json.Unmarshal(must(json.Marshal((*User)(u))), &known); err != nil {
		return err
	}
	var other map[string]any
	if err := json.Unmarshal(text, &other); err != nil {
		return err
	}
	maps.DeleteFunc(other, func(name string, value any) bool { return known[name] != nil || value == nil })
	u.Other = other
	return nil
}

func (u *caseUser) user() *User { return (*User)(u) }

// refusal is what the client's fetches fail with, if its settings were refused.
func (c *Client) refusal() error {
	if c.refused == nil {
		return nil
	}
	_, err := c.FetchV2(nil)
	return err
}

func millisecondsOf(n int) time.Duration { return time.Duration(n) * time.Millisecond }

type caseOptions struct {
	TracksAssignment *bool    `json:"tracks_assignment"`
	TracksExposure   *bool    `json:"tracks_exposure"`
	FlagKeys         []string `json:"flag_keys"`
	DeadlineMillis   *int     `json:"deadline_millis"`
}

func (o *caseOptions) options(report *Report) *FetchOptions {
	tracking := func(choice *bool) Tracking {
		switch {
		case choice == nil:
			return ServiceDecides
		case *choice:
			return Track
		}
		return NoTrack
	}
	return &FetchOptions{
		TracksAssignment: tracking(o.TracksAssignment), TracksExposure: tracking(o.TracksExposure),
		FlagKeys: o.FlagKeys, Report: report,
	}
}

// settings are those of a case, beside the defaults of C, which are not this package's.
func settings(t *testing.T, client map[string]any, url string, log logger.LoggerProvider) (apiKey string, config *Config) {
	apiKey = "conformance-key"
	config = &Config{
		Debug: true, LoggerProvider: log, ServerUrl: url, IgnoreEnvironmentProxy: true, FetchTimeout: 10 * time.Second, MaxPendingFetches: 1024,
		RetryBackoff: &RetryBackoff{FetchRetryBackoffMin: 500 * time.Millisecond, FetchRetryBackoffScalar: 1.5, FetchRetryTimeout: 10 * time.Second},
	}
	host := strings.TrimPrefix(url, "http://")
	port := host[strings.LastIndexByte(host, ':')+1:]
	for name, value := range client {
		if text, isText := value.(string); isText {
			value = strings.NewReplacer("{url}", url, "{host}", host, "{port}", port).Replace(text)
		}
		switch name {
		case "api_key":
			apiKey = value.(string)
		case "server_url":
			config.ServerUrl, _ = value.(string)
		case "server_zone":
			config.ServerZone = map[any]ServerZone{"US": USServerZone, "EU": EUServerZone}[value]
		case "use_environment_proxy":
			config.IgnoreEnvironmentProxy = !value.(bool)
		default:
			set(t, config, name, value)
		}
	}
	return apiKey, config
}

// set sets the field that is called like a setter of the header, in either of the two structs.
func set(t *testing.T, config *Config, name string, value any) {
	t.Helper()
	field := strings.ReplaceAll(strings.TrimSuffix(name, "_millis"), "_", "")
	same := func(candidate string) bool { return strings.EqualFold(candidate, field) }
	target := reflect.ValueOf(config).Elem().FieldByNameFunc(same)
	isCount := target.IsValid()
	if !isCount {
		target = reflect.ValueOf(config.RetryBackoff).Elem().FieldByNameFunc(same)
	}
	switch target.Interface().(type) {
	case time.Duration:
		target.Set(reflect.ValueOf(duration(value)))
	case int, int64:
		number := int64(value.(float64))
		if number == 0 && isCount {
			number = -1 // 0 is the default; this is as wrong
		}
		target.SetInt(number)
	default:
		target.Set(reflect.ValueOf(value))
	}
}

func duration(value any) time.Duration {
	switch value {
	case "EXP_NO_LIMIT":
		return NoLimit
	case 0.0:
		return NoTime
	}
	return time.Duration(value.(float64)) * time.Millisecond
}

// asJSON is what the variants are, without what they do not have, and numbers as they were sent.
func asJSON(variants map[string]Variant) []byte {
	all := map[string]map[string]any{}
	for flag, variant := range variants {
		one := map[string]any{}
		for name, text := range map[string]string{"key": variant.Key, "value": variant.Value} {
			if text != "" {
				one[name] = text
			}
		}
		if variant.Payload != nil {
			one["payload"] = json.RawMessage(variant.payload)
		}
		if variant.Metadata != nil {
			one["metadata"] = variant.Metadata
		}
		all[flag] = one
	}
	return must(json.Marshal(all))
}

// sameJSON compares numbers by how they are written, which no float64 could tell apart.
func sameJSON(a, b []byte) bool {
	return reflect.DeepEqual(exactly(a), exactly(b))
}

func exactly(text []byte) (value any) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return err
	}
	return value
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// expected is what a fetch must come to; nil is not looked at.
type expected struct {
	Variants         json.RawMessage
	Error, Phase     string
	Retryable        bool
	Attempts         *int
	HTTPStatus       *int `json:"http_status"`
	RetryAfterMillis *int `json:"retry_after_millis"`
	Message          []string
}

// expectedRequest is what a request must be like; {} is any.
type expectedRequest struct {
	Method, Path string
	Headers      map[string]any
	Body         json.RawMessage
}

func (want expectedRequest) isLike(got receivedRequest) bool {
	body := strings.ReplaceAll(string(want.Body), "{library}", library)
	return got.Method == cmp.Or(want.Method, got.Method) && got.Path == cmp.Or(want.Path, got.Path) &&
		(body == "" || sameJSON([]byte(got.Body), []byte(body))) && want.hasHeadersOf(got)
}

// hasHeadersOf looks for each header: nil must not be there, a text is exact, of a list each part.
func (want expectedRequest) hasHeadersOf(got receivedRequest) bool {
	for name, value := range want.Headers {
		text, found := got.header(name)
		switch value := value.(type) {
		case nil:
			if found {
				return false
			}
		case string:
			if !found || text != value {
				return false
			}
		case []any:
			for _, part := range value {
				if !strings.Contains(text, part.(string)) {
					return false
				}
			}
		}
	}
	return true
}

// recorder remembers what was logged.
type recorder struct {
	mu    sync.Mutex
	lines []logged
}

type logged struct{ level, message string }

func (r *recorder) Verbose(message string, args ...interface{}) { r.add("verbose", message, args) }
func (r *recorder) Debug(message string, args ...interface{})   { r.add("debug", message, args) }
func (r *recorder) Info(message string, args ...interface{})    { r.add("info", message, args) }
func (r *recorder) Warn(message string, args ...interface{})    { r.add("warn", message, args) }
func (r *recorder) Error(message string, args ...interface{})   { r.add("error", message, args) }

func (r *recorder) add(level, message string, args []interface{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, logged{level, fmt.Sprintf(message, args...)})
}

// expectedLine is what one of the lines must be like.
type expectedLine struct {
	Level   string
	Message []string
}

func (r *recorder) compare(t *testing.T, expected []expectedLine, apiKey string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, want := range expected {
		isLike := func(got logged) bool { return got.level == want.Level && containsAll(got.message, want.Message) }
		if !slices.ContainsFunc(r.lines, isLike) {
			t.Errorf("no line at %s with %q in %q", want.Level, want.Message, r.lines)
		}
	}
	if apiKey != "" && strings.Contains(fmt.Sprint(r.lines), apiKey) {
		t.Errorf("the API key is logged: %q", r.lines)
	}
}
