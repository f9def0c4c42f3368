package experiment_test

//lint:file-ignore ST1019 Who comes from experiment-go-server has the same package by both of its names.

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	experiment "github.com/amplitude/libexperiment/bindings/go"
	remote "github.com/amplitude/libexperiment/bindings/go"
	"github.com/amplitude/libexperiment/bindings/go/logger"
)

func Example_vendor() {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"new-checkout": {"key": "on", "value": "on", "metadata": {"segmentName": "all"}}}`)
	}))
	defer service.Close()

	client := remote.Initialize("example", &remote.Config{
		Debug:          true,
		LogLevel:       logger.Error,
		LoggerProvider: logger.NewDefault(),
		ServerUrl:      service.URL,
		FetchTimeout:   5 * time.Second,
		RetryBackoff: &remote.RetryBackoff{
			FetchRetries:            2,
			FetchRetryBackoffMin:    10 * time.Millisecond,
			FetchRetryBackoffMax:    time.Second,
			FetchRetryBackoffScalar: 1.5,
			FetchRetryTimeout:       time.Second,
		},
	})
	user := &experiment.User{
		UserId:         "user@company.com",
		UserProperties: map[string]interface{}{"premium": true},
		Groups:         map[string][]string{"org name": {"Amplitude"}},
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	variants, err := client.FetchV2WithContextAndOptions(user, ctx, &remote.FetchOptions{TracksExposure: remote.Track})
	var variant experiment.Variant = variants["new-checkout"]
	fmt.Println(variant.Key, variant.Value, variant.Payload, variant.Metadata["segmentName"], err)
	client.Close()
	// Output: on on <nil> all <nil>
}
