package experiment

// #include "bridge.h"
import "C"

import (
	"math"
	"runtime/cgo"
	"time"
)

// library is what the service is told to be asked by.
const library = "libexperiment-go/" + Version

// native is the same settings as an object of the library's. What it refuses it remembers, and no
// client comes of it.
func (c *Config) native() *C.exp_config {
	config := c.withDefaults()
	native := C.exp_config_new()
	C.exp_config_set_library_n(native, chars(library), length(library))
	config.setLogger(native)
	config.setService(native)
	config.setTimes(native)
	config.setConnections(native)
	config.RetryBackoff.set(native)
	return native
}

func (c *Config) setLogger(native *C.exp_config) {
	level := c.logThreshold()
	if level == 0 {
		return
	}
	sink := cgo.NewHandle(c.LoggerProvider)
	if C.go_set_log(native, C.uintptr_t(sink), C.int32_t(level)) != C.EXP_OK {
		sink.Delete()
	}
}

func (c *Config) setService(native *C.exp_config) {
	C.exp_config_set_server_zone(native, C.int32_t(c.ServerZone))
	if c.ServerUrl != "" {
		C.exp_config_set_server_url_n(native, chars(c.ServerUrl), length(c.ServerUrl))
	}
	if c.CAFile != "" {
		C.exp_config_set_ca_file_n(native, chars(c.CAFile), length(c.CAFile))
	}
	if c.ProxyURL != "" {
		C.exp_config_set_proxy_url_n(native, chars(c.ProxyURL), length(c.ProxyURL))
	}
	if c.IgnoreEnvironmentProxy {
		C.exp_config_set_use_environment_proxy(native, C.EXP_FALSE)
	}
}

func (c *Config) setTimes(native *C.exp_config) {
	C.exp_config_set_fetch_timeout_millis(native, millis(c.FetchTimeout))
	if c.FetchPoolAcquireTimeout != 0 {
		C.exp_config_set_fetch_pool_acquire_timeout_millis(native, millis(c.FetchPoolAcquireTimeout))
	}
	if c.FetchDeadline != 0 {
		C.exp_config_set_fetch_deadline_millis(native, millis(c.FetchDeadline))
	}
}

func (c *Config) setConnections(native *C.exp_config) {
	C.exp_config_set_max_pending_fetches(native, count(c.MaxPendingFetches))
	if c.ConnectionPoolMaxSize != 0 {
		C.exp_config_set_connection_pool_max_size(native, count(c.ConnectionPoolMaxSize))
	}
	if c.ConnectionIdleTimeout != 0 {
		C.exp_config_set_connection_idle_timeout_millis(native, millis(c.ConnectionIdleTimeout))
	}
	if c.ConnectionMaxLifetime != 0 {
		C.exp_config_set_connection_max_lifetime_millis(native, millis(c.ConnectionMaxLifetime))
	}
	if c.MaxResponseBytes != 0 {
		// Negative becomes more than is allowed, here as in count.
		C.exp_config_set_max_response_bytes(native, C.uint64_t(c.MaxResponseBytes))
	}
}

func (b *RetryBackoff) set(native *C.exp_config) {
	C.exp_config_set_fetch_retries(native, count(b.FetchRetries))
	C.exp_config_set_fetch_retry_timeout_millis(native, millis(b.FetchRetryTimeout))
	C.exp_config_set_fetch_retry_backoff_min_millis(native, millis(b.FetchRetryBackoffMin))
	C.exp_config_set_fetch_retry_backoff_max_millis(native, millis(b.FetchRetryBackoffMax))
	C.exp_config_set_fetch_retry_backoff_scalar(native, C.double(b.FetchRetryBackoffScalar))
	C.exp_config_set_fetch_retry_budget_percent(native, count(b.FetchRetryBudgetPercent))
	if b.FetchRetryJitter {
		C.exp_config_set_fetch_retry_jitter(native, C.EXP_TRUE)
	}
}

// millis is a time as the library takes it. One that makes no sense becomes one that the library
// refuses, with a message that names the setting.
func millis(d time.Duration) C.uint64_t {
	switch {
	case d == NoLimit:
		return C.EXP_NO_LIMIT
	case d == NoTime:
		return 0
	case d < 0:
		return C.EXP_NO_LIMIT - 1
	}
	return C.uint64_t((d + time.Millisecond - 1) / time.Millisecond)
}

// count is a number as the library takes it; likewise.
func count(n int) C.uint32_t {
	return C.uint32_t(min(uint64(n), math.MaxUint32))
}
