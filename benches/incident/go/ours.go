//go:build !sdk

package main

import (
	"time"

	experiment "github.com/amplitude/libexperiment/bindings/go"
)

func open(url string, settings map[string]int) func() (int, error) {
	config := &experiment.Config{ServerUrl: url}
	for name, value := range settings {
		if name != "fetch_deadline_millis" {
			panic("no such setting: " + name)
		}
		config.FetchDeadline = time.Duration(value) * time.Millisecond
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
