// Fetches one user's variants and prints them as a table.
//
//	go build -o fetch .
//	EXPERIMENT_API_KEY=… ./fetch USER_ID [TIMEOUT_MILLIS]
//
// EXPERIMENT_SERVER_URL is another service than Amplitude's, if there is one.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	experiment "github.com/amplitude/libexperiment/bindings/go"
)

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fail(fmt.Errorf("usage: %s USER_ID [TIMEOUT_MILLIS]", os.Args[0]))
	}
	config, err := configure(os.Args[2:])
	if err != nil {
		fail(err)
	}
	// One client for the whole program: every goroutine may fetch with it.
	client, err := experiment.NewClient(os.Getenv("EXPERIMENT_API_KEY"), config)
	if err != nil {
		fail(fmt.Errorf("no client: %w", err))
	}
	defer client.Close()

	user := os.Args[1]
	began := time.Now()
	variants, err := client.FetchV2(&experiment.User{UserId: user})
	elapsed := time.Since(began)

	printVariants(variants)
	fmt.Printf("came back after %.1f ms\n", elapsed.Seconds()*1e3)
	if err != nil {
		fail(fmt.Errorf("%s: %w", user, err))
	}
}

// configure makes one attempt of a fetch, so that the timeout is what it can take.
func configure(timeoutMillis []string) (*experiment.Config, error) {
	config := &experiment.Config{
		ServerUrl:    os.Getenv("EXPERIMENT_SERVER_URL"),
		FetchTimeout: 10 * time.Second,
		RetryBackoff: &experiment.RetryBackoff{},
	}
	if len(timeoutMillis) == 0 {
		return config, nil
	}
	millis, err := strconv.Atoi(timeoutMillis[0])
	if err != nil {
		return nil, fmt.Errorf("no client: TIMEOUT_MILLIS: %w", err)
	}
	config.FetchTimeout = time.Duration(millis) * time.Millisecond
	if millis == 0 {
		config.FetchTimeout = experiment.NoTime // which is refused; 0 stands for the default
	}
	return config, nil
}

func printVariants(variants map[string]experiment.Variant) {
	if len(variants) == 0 {
		return
	}
	fmt.Printf("%-16s %-8s %-8s %s\n", "FLAG", "KEY", "VALUE", "PAYLOAD")
	for _, flag := range slices.Sorted(maps.Keys(variants)) {
		variant := variants[flag]
		fmt.Printf("%-16s %-8s %-8s %s\n", flag, orDash(variant.Key), orDash(variant.Value), payloadOf(variant))
	}
}

func payloadOf(variant experiment.Variant) string {
	var payload json.RawMessage
	if err := variant.DecodePayload(&payload); err != nil {
		fail(err)
	}
	return orDash(string(payload))
}

// orDash shows what is absent.
func orDash(text string) string { return cmp.Or(text, "-") }

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
