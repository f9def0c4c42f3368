//! Settings of clients.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

use super::abi::failure::exp_error;
use super::abi::guard;
use super::abi::handle::{Object, find, give};
use super::abi::settings::{Settings, rejection, set};
use super::abi::status::exp_status;
use super::abi::text::{Chars, Terminated};
use super::options::{UserData, required_bool};
use crate::config::{Config, NO_LIMIT, Zone};
use crate::machine::catch::outside;
use crate::machine::logger::{Level, Sink};
use crate::rules::deadline::Limit;
use crate::rules::error::Error;
use crate::tag::Tag;

/// Settings for clients. Creating a client copies them.
pub struct exp_config {
    _opaque: [u8; 0],
}

impl Object for exp_config {
    type Body = Settings<Config>;
    const TAG: Tag = Tag::CONFIG;
    const NAME: &'static str = "exp_config";
    const ARGUMENT: &'static str = "config";
}

/// The data centers of the service.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum exp_zone {
    EXP_ZONE_US = 0,
    EXP_ZONE_EU = 1,
}

/// The severity of a log line.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum exp_log_level {
    EXP_LOG_ERROR = 1,
    EXP_LOG_WARN = 2,
    EXP_LOG_INFO = 3,
    EXP_LOG_DEBUG = 4,
}

impl From<Level> for exp_log_level {
    fn from(level: Level) -> Self {
        match level {
            Level::Error => exp_log_level::EXP_LOG_ERROR,
            Level::Warn => exp_log_level::EXP_LOG_WARN,
            Level::Info => exp_log_level::EXP_LOG_INFO,
            Level::Debug => exp_log_level::EXP_LOG_DEBUG,
        }
    }
}

/// Receives a log line: NUL-terminated UTF-8, `length` bytes without the NUL, borrowed for the
/// call. May run on any thread, and on several at once.
pub type exp_log_callback = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        level: exp_log_level,
        message: *const c_char,
        length: usize,
    ),
>;

/// Runs when the library will not use user_data again.
pub type exp_finalizer = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// Creates settings with their default values; the caller owns them. NULL only after a defect.
/// Anytime.
#[unsafe(no_mangle)]
pub extern "C" fn exp_config_new() -> *mut exp_config {
    guard::value(ptr::null_mut(), || Ok(give(Config::default().into())))
}

/// Returns the first refusal of a value, borrowed; NULL if no value was refused. exp_client_new
/// fails with it. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_error(config: *const exp_config) -> *const exp_error {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { rejection(config) }
}

/// Returns the longest time that a fetch can take with these settings: for each attempt, the wait
/// for a connection plus the timeout; between attempts, the largest back-off; all of it limited by
/// the deadline. EXP_NO_LIMIT if nothing bounds it. NULL means the defaults. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_worst_case_millis(config: *const exp_config) -> u64 {
    guard::value(0, || {
        // SAFETY: the contract of the boundary (mod.rs).
        let config = unsafe { find(config) }?.map(|config| config.body.value()).unwrap_or_default();
        Ok(match config.schedule.worst_case() {
            Limit::After(time) => u64::try_from(time.as_millis()).unwrap_or(NO_LIMIT),
            Limit::None => NO_LIMIT,
        })
    })
}

/// Sets the URL of the service: http(s)://host[:port][/base/path]. Overrides the zone. Setter.
/// EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_server_url(
    config: *mut exp_config,
    server_url: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(config, Chars::terminated(server_url), "server_url", Config::set_server_url) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_server_url_n(
    config: *mut exp_config,
    server_url: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe {
        set_text(config, Chars::counted(server_url, length), "server_url", Config::set_server_url)
    }
}

/// Selects the data center: EXP_ZONE_US (the default) or EXP_ZONE_EU. Setter. EXP_OK,
/// EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_server_zone(
    config: *mut exp_config,
    zone: i32,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe {
        set(config, |config| {
            config.set_server_zone(zone_of(zone)?);
            Ok(())
        })
    }
}

/// Limits the first attempt, from when the pool grants a connection until the response is decoded:
/// 1 to 86400000; 10000 by default. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_fetch_timeout_millis(
    config: *mut exp_config,
    millis: u64,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set(config, |config| config.set_fetch_timeout(millis)) }
}

/// Limits how long each attempt waits for a connection from the pool: 0 (not at all) to 86400000,
/// or EXP_NO_LIMIT; the timeout of the attempt by default. Setter. EXP_OK,
/// EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_fetch_pool_acquire_timeout_millis(
    config: *mut exp_config,
    millis: u64,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set(config, |config| config.set_fetch_pool_acquire_timeout(millis)) }
}

/// Sets the number of attempts after the first: 0 (the default) to 100. Setter. EXP_OK,
/// EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_fetch_retries(
    config: *mut exp_config,
    retries: u32,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set(config, |config| config.set_fetch_retries(retries)) }
}

/// Limits each attempt after the first, as fetch_timeout_millis does the first: 1 to 86400000;
/// 10000 by default. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_fetch_retry_timeout_millis(
    config: *mut exp_config,
    millis: u64,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set(config, |config| config.set_fetch_retry_timeout(millis)) }
}

/// Sets the wait before the second attempt: 0 to 86400000; 500 by default. Setter. EXP_OK,
/// EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_fetch_retry_backoff_min_millis(
    config: *mut exp_config,
    millis: u64,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set(config, |config| config.set_fetch_retry_backoff_min(millis)) }
}

/// Sets the longest wait between two attempts: 0 to 86400000; 10000 by default. If the service asks
/// for a longer one (Retry-After), the fetch ends. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_fetch_retry_backoff_max_millis(
    config: *mut exp_config,
    millis: u64,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set(config, |config| config.set_fetch_retry_backoff_max(millis)) }
}

/// Sets the factor from each wait to the next: 1 to 100; 1.5 by default. Setter. EXP_OK,
/// EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_fetch_retry_backoff_scalar(
    config: *mut exp_config,
    scalar: f64,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set(config, |config| config.set_fetch_retry_backoff_scalar(scalar)) }
}

/// Draws each wait uniformly between zero and the back-off: EXP_TRUE or EXP_FALSE (the default).
/// Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_fetch_retry_jitter(
    config: *mut exp_config,
    on: i32,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_bool(config, on, "fetch_retry_jitter", Config::set_fetch_retry_jitter) }
}

/// Limits the retries of a client to so many for every hundred fetches; beyond them a failed
/// attempt ends its fetch: 1 to 100, or 0 for no limit (the default). Setter. EXP_OK,
/// EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_fetch_retry_budget_percent(
    config: *mut exp_config,
    percent: u32,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set(config, |config| config.set_fetch_retry_budget(percent)) }
}

/// Limits every fetch as a whole, from the call to its return: 0 to 86400000, or EXP_NO_LIMIT (the
/// default). Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_fetch_deadline_millis(
    config: *mut exp_config,
    millis: u64,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set(config, |config| config.set_fetch_deadline(millis)) }
}

/// Sets the number of connections, and so of concurrent requests: 1 to 1024; 8 by default. Setter.
/// EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_connection_pool_max_size(
    config: *mut exp_config,
    size: u32,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set(config, |config| config.set_connection_pool_max_size(size)) }
}

/// Limits how long an idle connection may be reused: 0 (never) to 86400000; 30000 by default. One
/// that is idle for longer is closed when the client is next used. Setter. EXP_OK,
/// EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_connection_idle_timeout_millis(
    config: *mut exp_config,
    millis: u64,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set(config, |config| config.set_connection_idle_timeout(millis)) }
}

/// Limits the age up to which a connection is reused, so that a busy client follows the service to
/// a new address: 0 to 86400000, or EXP_NO_LIMIT; 300000 by default. Setter. EXP_OK,
/// EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_connection_max_lifetime_millis(
    config: *mut exp_config,
    millis: u64,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set(config, |config| config.set_connection_max_lifetime(millis)) }
}

/// Limits the asynchronous fetches that are pending at once: 1 to 1000000; 1024 by default. Setter.
/// EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_max_pending_fetches(
    config: *mut exp_config,
    count: u32,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set(config, |config| config.set_max_pending_fetches(count)) }
}

/// Limits the size of a response body, after decompression: 1 to 1073741824 bytes; 8388608 by
/// default. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_max_response_bytes(
    config: *mut exp_config,
    bytes: u64,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set(config, |config| config.set_max_response_bytes(bytes)) }
}

/// Sets a PEM file of certificates to trust in place of the built-in authorities. It is read when a
/// client is created. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_ca_file(
    config: *mut exp_config,
    ca_file: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(config, Chars::terminated(ca_file), "ca_file", Config::set_ca_file) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_ca_file_n(
    config: *mut exp_config,
    ca_file: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(config, Chars::counted(ca_file, length), "ca_file", Config::set_ca_file) }
}

/// Sets the proxy: http(s)://[user:password@]host[:port]. Overrides the environment. Setter.
/// EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_proxy_url(
    config: *mut exp_config,
    proxy_url: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(config, Chars::terminated(proxy_url), "proxy_url", Config::set_proxy_url) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_proxy_url_n(
    config: *mut exp_config,
    proxy_url: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe {
        set_text(config, Chars::counted(proxy_url, length), "proxy_url", Config::set_proxy_url)
    }
}

/// Obeys HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, as they are when a client is created:
/// EXP_TRUE (the default) or EXP_FALSE. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_use_environment_proxy(
    config: *mut exp_config,
    on: i32,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_bool(config, on, "use_environment_proxy", Config::set_use_environment_proxy) }
}

/// Sets the library name and version reported to the service, as name/version; libexperiment and
/// its version by default. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_library(
    config: *mut exp_config,
    library: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(config, Chars::terminated(library), "library", Config::set_library) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_library_n(
    config: *mut exp_config,
    library: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(config, Chars::counted(library, length), "library", Config::set_library) }
}

/// Passes every line to the log callback, whatever its max_level: EXP_TRUE or EXP_FALSE (the
/// default). Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_debug(config: *mut exp_config, on: i32) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_bool(config, on, "debug", Config::set_debug) }
}

/// Sets the callback for log lines up to max_level (EXP_LOG_...), replacing any earlier one; NULL,
/// with any level, removes it. Without a callback nothing is written anywhere.
/// On EXP_OK user_data belongs to the library, which calls `finalizer`, unless NULL, exactly once:
/// when no settings, no client and no call in progress use the callback any more, on the thread
/// where that happens; before this returns if `callback` is NULL. On any other status user_data
/// remains the caller's.
/// Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_config_set_log_callback(
    config: *mut exp_config,
    callback: exp_log_callback,
    user_data: *mut c_void,
    finalizer: exp_finalizer,
    max_level: i32,
) -> exp_status {
    let user_data = UserData(user_data);
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe {
        set(config, |config| {
            let level = callback.map(|_| level_of(max_level)).transpose()?;
            let host = Host { callback, finalizer, user_data };
            let old = config.take_log();
            // What the step returns is dropped after it: its finalizer may call us.
            Ok(match level {
                Some(level) => {
                    config.set_log(level, sink(host));
                    (old, None)
                }
                None => (old, Some(host)),
            })
        })
    }
}

fn sink(host: Host) -> Arc<Sink> {
    Arc::new(move |level, message: &str| host.log(level, message))
}

/// The host's side of a log callback.
struct Host {
    callback: exp_log_callback,
    finalizer: exp_finalizer,
    user_data: UserData,
}

impl Host {
    fn log(&self, level: Level, message: &str) {
        let Some(callback) = self.callback else { return };
        let message = Terminated::from(message.to_owned());
        // SAFETY: the host promised that its callback can be called with its user_data, which it
        // gave up until the finalizer; the message is alive.
        outside(|| unsafe {
            callback(self.user_data.get(), level.into(), message.as_ptr(), message.len());
        });
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(finalizer) = self.finalizer {
            // SAFETY: the host promised that its finalizer can be called with its user_data. This
            // is the one time, and nobody can call the callback any more.
            outside(|| unsafe { finalizer(self.user_data.get()) });
        }
    }
}

/// # Safety
///
/// The contract of the boundary.
unsafe fn set_text(
    config: *mut exp_config,
    text: Chars,
    name: &str,
    set_to: impl FnOnce(&mut Config, &str) -> Result<(), Error>,
) -> exp_status {
    // SAFETY: by this function's contract.
    unsafe { set(config, |config| set_to(config, text.required(name)?)) }
}

/// # Safety
///
/// The contract of the boundary.
unsafe fn set_bool(
    config: *mut exp_config,
    on: i32,
    name: &str,
    set_to: impl FnOnce(&mut Config, bool),
) -> exp_status {
    // SAFETY: by this function's contract.
    unsafe {
        set(config, |config| {
            set_to(config, required_bool(name, on)?);
            Ok(())
        })
    }
}

fn zone_of(zone: i32) -> Result<Zone, Error> {
    match zone {
        zone if zone == exp_zone::EXP_ZONE_US as i32 => Ok(Zone::Us),
        zone if zone == exp_zone::EXP_ZONE_EU as i32 => Ok(Zone::Eu),
        _ => Err(Error::invalid_argument(format!(
            "server_zone must be EXP_ZONE_US (0) or EXP_ZONE_EU (1), but is {zone}"
        ))),
    }
}

fn level_of(level: i32) -> Result<Level, Error> {
    [Level::Error, Level::Warn, Level::Info, Level::Debug]
        .into_iter()
        .find(|&known| exp_log_level::from(known) as i32 == level)
        .ok_or_else(|| {
            Error::invalid_argument(format!(
                "max_level must be EXP_LOG_ERROR (1) to EXP_LOG_DEBUG (4), but is {level}"
            ))
        })
}
