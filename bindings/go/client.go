//go:build cgo

package experiment

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"sync"
)

// Version is that of this package. It works with every library of the same major and minor version.
const Version = "0.1.0"

// Client fetches variants over a bounded pool of connections. It is used by any number of goroutines
// at once, and there should be one for each API key.
type Client struct {
	// session is nil for a client whose settings were refused.
	session *session
	refused *FetchError
}

var (
	clients   = map[string]*Client{}
	clientsMu sync.Mutex
)

// Initialize returns the client for an API key. It is made by the first call; later ones get the same,
// whatever their config, until it is closed. Settings that NewClient would refuse are the error of every
// fetch.
func Initialize(apiKey string, config *Config) *Client {
	clientsMu.Lock()
	defer clientsMu.Unlock()
	if client := clients[apiKey]; client != nil {
		return client
	}
	client, failure := newClient(apiKey, config)
	if failure != nil {
		return &Client{refused: failure}
	}
	clients[apiKey] = client
	return client
}

// NewClient makes a client for a server deployment key, to be closed. A nil config is the default one.
// It connects to nothing yet.
func NewClient(apiKey string, config *Config) (*Client, error) {
	client, failure := newClient(apiKey, config)
	if failure != nil {
		return nil, failure
	}
	return client, nil
}

func newClient(apiKey string, config *Config) (*Client, *FetchError) {
	if failure := checkVersion(loadedVersion()); failure != nil {
		return nil, failure
	}
	s, failure := newSession(apiKey, config)
	if failure != nil {
		return nil, failure
	}
	client := &Client{session: s}
	// For who forgets to close: nothing but the caller holds the client, the session's goroutine neither.
	runtime.AddCleanup(client, (*session).abandon, s)
	return client, nil
}

// FetchV2 fetches all variants of a user, by flag, default ones included. A nil user is one of whom
// nothing is known.
func (c *Client) FetchV2(user *User) (map[string]Variant, error) {
	return c.FetchV2WithContextAndOptions(user, context.Background(), nil)
}

// FetchV2WithOptions is FetchV2 with options.
func (c *Client) FetchV2WithOptions(user *User, fetchOptions *FetchOptions) (map[string]Variant, error) {
	return c.FetchV2WithContextAndOptions(user, context.Background(), fetchOptions)
}

// FetchV2WithContext is FetchV2 with a context: its deadline and its cancellation end the fetch,
// wherever that is.
func (c *Client) FetchV2WithContext(user *User, ctx context.Context) (map[string]Variant, error) {
	return c.FetchV2WithContextAndOptions(user, ctx, nil)
}

// FetchV2WithContextAndOptions is FetchV2 with a context and options. An error is a *FetchError.
func (c *Client) FetchV2WithContextAndOptions(user *User, ctx context.Context, fetchOptions *FetchOptions) (map[string]Variant, error) {
	return c.fetchWanted(ctx, user, fetchOptions, nil)
}

func (c *Client) fetchWanted(ctx context.Context, user *User, fetchOptions *FetchOptions, wanted func(Variant) bool) (map[string]Variant, error) {
	if fetchOptions == nil {
		fetchOptions = &FetchOptions{}
	}
	variants, failure := c.fetch(ctx, user, fetchOptions, wanted)
	if failure == nil {
		return variants, nil
	}
	if fetchOptions.Report != nil {
		*fetchOptions.Report = failure.Report
	}
	return nil, failure
}

// Fetch is FetchV2 without the variants that are default or not deployed.
//
// Deprecated: Use FetchV2.
func (c *Client) Fetch(user *User) (map[string]Variant, error) {
	return c.fetchWanted(context.Background(), user, nil, isDeployed)
}

func (c *Client) fetch(ctx context.Context, user *User, options *FetchOptions, wanted func(Variant) bool) (map[string]Variant, *FetchError) {
	if c.refused != nil {
		return nil, c.refused
	}
	// One whose time is over goes to the library, which counts it and says so.
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, canceled(ctx)
	}
	request, failure := newRequest(user, options)
	if failure != nil {
		return nil, failure
	}
	if !c.session.enter() {
		return nil, closed()
	}
	defer c.session.leave()
	over, failure := c.session.fetch(ctx, request)
	if failure != nil {
		return nil, failure
	}
	variants, failure := over.take(ctx, options, wanted)
	return variants, failure.endedBy(ctx)
}

// Close cuts off the fetches that run, which fail, and waits for their return. Whatever is called
// afterwards fails with StatusClosed. It may be called twice; its error is always nil.
func (c *Client) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.Shutdown(ctx)
	return nil
}

// Shutdown refuses new fetches, ends those in line for a connection, and waits for those that run. When
// the context ends it cuts them off, and returns the context's error once they have returned.
func (c *Client) Shutdown(ctx context.Context) error {
	if c.refused != nil || !c.session.enter() {
		return nil
	}
	defer c.session.leave()
	c.forget()
	if !c.session.shutdown(ctx) {
		return ctx.Err()
	}
	return nil
}

// forget lets Initialize make another client.
func (c *Client) forget() {
	clientsMu.Lock()
	defer clientsMu.Unlock()
	maps.DeleteFunc(clients, func(_ string, client *Client) bool { return client == c })
}

// Metrics is what the client has counted so far, as a JSON object; times in seconds.
func (c *Client) Metrics() ([]byte, error) { return c.metrics(metricsJSON) }

// OpenMetrics is the same as OpenMetrics text, version 1.0.0.
func (c *Client) OpenMetrics() ([]byte, error) { return c.metrics(metricsOpenMetrics) }

func (c *Client) metrics(format metricsFormat) ([]byte, error) {
	if c.refused != nil {
		return nil, c.refused
	}
	if !c.session.enter() {
		return nil, closed()
	}
	defer c.session.leave()
	text, failure := readMetrics(c.session.client, format)
	if failure != nil {
		return nil, failure
	}
	return text, nil
}
