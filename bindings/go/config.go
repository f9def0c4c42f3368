package experiment

import (
	"cmp"
	"math"
	"time"

	"github.com/amplitude/libexperiment/bindings/go/logger"
)

// Durations with a meaning of their own. Zero stands for the default, as everywhere in Config.
const (
	// NoLimit is "for ever", where a setting may be that.
	NoLimit time.Duration = math.MaxInt64
	// NoTime is a zero that was chosen: not to wait, not to keep.
	NoTime time.Duration = -1
)

// ServerZone is one of the service's data centres.
type ServerZone int

const (
	// USServerZone is in the United States.
	USServerZone ServerZone = iota
	// EUServerZone is in the European Union.
	EUServerZone
)

// Config holds the settings of a client. The zero value of each field, and a nil Config, stand for the
// default. Times count in whole milliseconds, fractions as one more, and go up to 24 hours. A client
// copies what it is given.
type Config struct {
	// Debug lets the LoggerProvider have everything, unless LogLevel says otherwise.
	Debug bool
	// LogLevel is the quietest line that LoggerProvider gets; Error by default.
	LogLevel logger.LogLevel
	// LoggerProvider takes log lines. Nothing is written anywhere without one.
	LoggerProvider logger.LoggerProvider

	// ServerUrl is where the service is, http(s)://host[:port][/base/path]. It wins over ServerZone.
	ServerUrl string
	// ServerZone is whose data centre is asked; USServerZone by default.
	ServerZone ServerZone

	// FetchTimeout is what the first attempt may take from its connection to the last byte of the
	// answer; 500 ms by default.
	FetchTimeout time.Duration
	// FetchPoolAcquireTimeout is what each attempt may wait for a connection: NoTime, or up to NoLimit;
	// by default the attempt's own timeout.
	FetchPoolAcquireTimeout time.Duration
	// FetchDeadline bounds every whole fetch, whatever its context says; NoLimit by default.
	FetchDeadline time.Duration
	// RetryBackoff says whether and when a fetch is tried again; DefaultRetryBackoff by default.
	RetryBackoff *RetryBackoff

	// ConnectionPoolMaxSize is how many connections, and so exchanges, there are at once: 1 to 1024; 8
	// by default.
	ConnectionPoolMaxSize int
	// ConnectionIdleTimeout is how long an unused connection may be used again: NoTime, or up to
	// 24 hours; 30 s by default.
	ConnectionIdleTimeout time.Duration
	// ConnectionMaxLifetime is how long a connection is used at all, so that a busy client follows the
	// service to a new address: NoTime, or up to NoLimit; 5 minutes by default.
	ConnectionMaxLifetime time.Duration
	// MaxPendingFetches is how many fetches may be under way or in line at once: 1 to 1000000, which is
	// the default, since who starts goroutines bounds them.
	MaxPendingFetches int
	// MaxResponseBytes is the largest answer that is read, decompressed: 1 to 1 GiB; 8 MiB by default.
	MaxResponseBytes int64

	// CAFile is a PEM file with the authorities to trust in place of the built-in ones.
	CAFile string
	// ProxyURL is the proxy to go through, http(s)://[user:password@]host[:port]. It wins over the
	// environment.
	ProxyURL string
	// IgnoreEnvironmentProxy ignores HTTPS_PROXY and its kin, which are read when a client is created.
	IgnoreEnvironmentProxy bool
}

// RetryBackoff says whether and when a fetch is tried again. Its zero value does not retry.
type RetryBackoff struct {
	// FetchRetries is how many attempts there are after the first: 0 to 100.
	FetchRetries int
	// FetchRetryBackoffMin is the wait before the second attempt; none by default.
	FetchRetryBackoffMin time.Duration
	// FetchRetryBackoffMax is the longest wait between two attempts; 10 s by default. A service that
	// asks for more ends the fetch.
	FetchRetryBackoffMax time.Duration
	// FetchRetryBackoffScalar is what each wait is multiplied by for the next: 1, the default, to 100.
	FetchRetryBackoffScalar float64
	// FetchRetryTimeout is what each attempt after the first may take; 500 ms by default.
	FetchRetryTimeout time.Duration
	// FetchRetryJitter draws each wait evenly between zero and the back-off.
	FetchRetryJitter bool
	// FetchRetryBudgetPercent is how many retries there may be for each hundred fetches of the client,
	// beyond which the last error is reported at once: 1 to 100; 0, the default, is no such budget.
	FetchRetryBudgetPercent int
}

// DefaultConfig is what zero values stand for in this package; the library has defaults for the rest.
var DefaultConfig = &Config{
	LogLevel:          logger.Error,
	FetchTimeout:      500 * time.Millisecond,
	RetryBackoff:      DefaultRetryBackoff,
	MaxPendingFetches: 1_000_000,
}

// DefaultRetryBackoff is one retry, at once.
var DefaultRetryBackoff = &RetryBackoff{
	FetchRetries:            1,
	FetchRetryBackoffMax:    10 * time.Second,
	FetchRetryBackoffScalar: 1,
	FetchRetryTimeout:       500 * time.Millisecond,
}

// withDefaults is a copy, in which what this package has defaults for is written out.
func (c *Config) withDefaults() *Config {
	config := *cmp.Or(c, DefaultConfig)
	config.FetchTimeout = cmp.Or(config.FetchTimeout, DefaultConfig.FetchTimeout)
	config.MaxPendingFetches = cmp.Or(config.MaxPendingFetches, DefaultConfig.MaxPendingFetches)
	backoff := *cmp.Or(config.RetryBackoff, DefaultRetryBackoff)
	backoff.FetchRetryBackoffMax = cmp.Or(backoff.FetchRetryBackoffMax, DefaultRetryBackoff.FetchRetryBackoffMax)
	backoff.FetchRetryBackoffScalar = cmp.Or(backoff.FetchRetryBackoffScalar, DefaultRetryBackoff.FetchRetryBackoffScalar)
	backoff.FetchRetryTimeout = cmp.Or(backoff.FetchRetryTimeout, DefaultRetryBackoff.FetchRetryTimeout)
	config.RetryBackoff = &backoff
	return &config
}
