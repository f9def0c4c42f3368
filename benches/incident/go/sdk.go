//go:build sdk

package main

import (
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

// The SDK's defaults are what its vendor advises, and it has no settings for the rest.
func open(url string, settings map[string]int) func() (int, error) {
	if len(settings) > 0 {
		panic("only the default settings")
	}
	client := remote.Initialize("key", &remote.Config{ServerUrl: url, LoggerProvider: silent{}})
	return func() (int, error) {
		variants, err := client.FetchV2(&experiment.User{UserId: "user"})
		return len(variants), err
	}
}
