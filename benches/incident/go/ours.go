//go:build !sdk

package main

import (
	"time"

	experiment "github.com/amplitude/libexperiment/bindings/go"
)

func open(url string, settings map[string]int) func() (int, error) {
	config := &experiment.Config{ServerUrl: url}
	for name, value := range settings {
		switch name {
		case "fetch_deadline_millis":
			config.FetchDeadline = time.Duration(value) * time.Millisecond
		case "fetch_timeout_millis":
			config.FetchTimeout = time.Duration(value) * time.Millisecond
		case "fetch_retries":
			config.RetryBackoff = &experiment.RetryBackoff{FetchRetries: value}
		case "connection_pool_max_size":
			config.ConnectionPoolMaxSize = value
		default:
			panic("no such setting: " + name)
		}
	}
	client, err := experiment.NewClient("key", config)
	if err != nil {
		panic(err)
	}
	return func() (int, error) {
		variants, err := client.FetchV2(&experiment.User{UserId: "user"})
		return len(variants), err
	}
}
