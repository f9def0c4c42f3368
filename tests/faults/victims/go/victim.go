// Fetches as it is told, in Go. Orders are read from standard input, JSON by the line, and each is
// answered by a line; see ../../README.md.
package main

import (
	"encoding/json"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	experiment "github.com/amplitude/libexperiment/bindings/go"
)

type order struct {
	Client *settings
	User   *experiment.User
	Users  []*experiment.User
	Close  bool
}

// settings are those that the faults need, by the names of the header.
type settings struct {
	ServerURL        string        `json:"server_url"`
	FetchTimeout     time.Duration `json:"fetch_timeout_millis"`
	FetchRetries     int           `json:"fetch_retries"`
	RetryTimeout     time.Duration `json:"fetch_retry_timeout_millis"`
	RetryBackoffMin  time.Duration `json:"fetch_retry_backoff_min_millis"`
	RetryBackoffMax  time.Duration `json:"fetch_retry_backoff_max_millis"`
	PoolMaxSize      int           `json:"connection_pool_max_size"`
	IdleTimeout      *int64        `json:"connection_idle_timeout_millis"`
	MaxResponseBytes int64         `json:"max_response_bytes"`
	CAFile           string        `json:"ca_file"`
	ProxyURL         string        `json:"proxy_url"`
	EnvironmentProxy bool          `json:"use_environment_proxy"`
}

type answer struct {
	Error      string                        `json:"error,omitempty"`
	HTTPStatus int                           `json:"http_status"`
	Phase      string                        `json:"phase"`
	Message    string                        `json:"message"`
	Millis     float64                       `json:"millis"`
	Variants   map[string]experiment.Variant `json:"variants,omitempty"` // the one that echoes the user
	Well       int                           `json:"well"`               // of several at once, those with variants
}

var client *experiment.Client

func (s *settings) open() (err error) {
	config := &experiment.Config{
		ServerUrl: s.ServerURL, FetchTimeout: s.FetchTimeout * time.Millisecond, MaxResponseBytes: s.MaxResponseBytes,
		ConnectionPoolMaxSize: s.PoolMaxSize, CAFile: s.CAFile, ProxyURL: s.ProxyURL,
		IgnoreEnvironmentProxy: !s.EnvironmentProxy,
		RetryBackoff: &experiment.RetryBackoff{
			FetchRetries: s.FetchRetries, FetchRetryTimeout: s.RetryTimeout * time.Millisecond,
			FetchRetryBackoffMin: s.RetryBackoffMin * time.Millisecond,
			FetchRetryBackoffMax: s.RetryBackoffMax * time.Millisecond,
		},
	}
	if s.IdleTimeout != nil {
		config.ConnectionIdleTimeout = time.Duration(*s.IdleTimeout) * time.Millisecond
		if *s.IdleTimeout == 0 {
			config.ConnectionIdleTimeout = experiment.NoTime
		}
	}
	client, err = experiment.NewClient("key", config)
	return err
}

func fetch(user *experiment.User) (came answer) {
	began := time.Now()
	variants, err := client.FetchV2(user)
	came.Millis = time.Since(began).Seconds() * 1e3
	if echo, found := variants["demo-nonce"]; found {
		came.Variants = map[string]experiment.Variant{"demo-nonce": echo}
	}
	var failure *experiment.FetchError
	if errors.As(err, &failure) {
		came.Error, came.HTTPStatus = failure.Status.String(), failure.HTTPStatus
		came.Phase, came.Message = failure.Phase.String(), failure.Message
	}
	return came
}

func fetchAtOnce(users []*experiment.User) (came answer) {
	all := make(chan answer)
	for _, user := range users {
		go func() { all <- fetch(user) }()
	}
	for range users {
		if one := <-all; one.Error == "" {
			came.Well++
		}
	}
	return came
}

func obey(o order) (came answer) {
	switch {
	case o.Client != nil:
		if err := o.Client.open(); err != nil {
			came.Error = err.Error()
		}
	case o.User != nil:
		return fetch(o.User)
	case o.Users != nil:
		return fetchAtOnce(o.Users)
	case o.Close:
		client.Close()
	}
	return came
}

func main() {
	if os.Getenv("FAULTS_ALARMS") != "" {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGALRM)
	}
	orders, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for orders.More() {
		var o order
		if err := orders.Decode(&o); err != nil {
			log.Fatal(err)
		}
		if err := answers.Encode(obey(o)); err != nil {
			log.Fatal(err)
		}
	}
}
