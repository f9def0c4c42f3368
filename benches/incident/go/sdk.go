//go:build sdk

package main

import (
	"time"

	"github.com/amplitude/experiment-go-server/pkg/experiment"
	"github.com/amplitude/experiment-go-server/pkg/experiment/remote"
	"github.com/amplitude/experiment-go-server/pkg/logger"
)

type silent struct{}

func (silent) Verbose(string, ...interface{}) {}
func (silent) Debug(string, ...interface{})   {}
func (silent) Info(string, ...interface{})    {}
func (silent) Warn(string, ...interface{})    {}
func (silent) Error(string, ...interface{})   {}

var _ logger.LoggerProvider = silent{}

// The SDK's defaults are what its vendor advises, and it has no settings for pool and deadline.
func open(url string, settings map[string]int) func() (int, error) {
	config := &remote.Config{ServerUrl: url, LoggerProvider: silent{}}
	for name, value := range settings {
		switch name {
		case "fetch_timeout_millis":
			config.FetchTimeout = time.Duration(value) * time.Millisecond
		case "fetch_retries":
			config.RetryBackoff = &remote.RetryBackoff{FetchRetries: value}
		default:
			panic("no such setting: " + name)
		}
	}
	client := remote.Initialize("key", config)
	return func() (int, error) {
		variants, err := client.FetchV2(&experiment.User{UserId: "user"})
		return len(variants), err
	}
}
