//! What a client can be told: each setting with its unit, range and default, checked when set.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::uri::Authority;

use crate::machine::logger::{Level, Logger, Sink};
use crate::machine::sys::{self, Lookup};
use crate::rules::deadline::Limit;
use crate::rules::error::Error;
use crate::rules::schedule::Schedule;

/// Stands for "no limit" where a setting in milliseconds allows that.
pub const NO_LIMIT: u64 = u64::MAX;

/// The longest key or URL: more than any real one, and far below what servers take in one line.
const MAX_LINE_BYTES: usize = 4 << 10;

/// The longest time that can be set, a day.
pub const MAX_MILLIS: u64 = 86_400_000;

/// Which of the service's data centres is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    Us,
    Eu,
}

impl Zone {
    fn server_url(self) -> &'static str {
        match self {
            Zone::Us => "https://api.lab.amplitude.com",
            Zone::Eu => "https://api.lab.eu.amplitude.com",
        }
    }
}

/// The settings of a client. A refused value leaves the object as it was.
#[derive(Clone)]
pub struct Config {
    server_url: Option<String>,
    zone: Zone,
    pub(crate) schedule: Schedule,
    pub(crate) retry_budget_percent: u32,
    pub(crate) pool_size: u32,
    pub(crate) idle_timeout: Duration,
    pub(crate) max_lifetime: Limit,
    pub(crate) max_pending: u32,
    pub(crate) max_response_bytes: u64,
    pub(crate) ca_file: Option<String>,
    pub(crate) proxy_url: Option<String>,
    pub(crate) use_environment_proxy: bool,
    pub(crate) library: String,
    pub(crate) lookup: Arc<Lookup>,
    debug: bool,
    log: Option<(Level, Arc<Sink>)>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            server_url: None,
            zone: Zone::Us,
            schedule: Schedule {
                fetch_timeout: Duration::from_millis(10_000),
                retry_timeout: Duration::from_millis(10_000),
                acquire_timeout: None,
                retries: 0,
                backoff_min: Duration::from_millis(500),
                backoff_max: Duration::from_millis(10_000),
                backoff_scalar: 1.5,
                jitter: false,
                deadline: Limit::None,
            },
            retry_budget_percent: 0,
            pool_size: 8,
            idle_timeout: Duration::from_millis(30_000),
            max_lifetime: Limit::millis(300_000),
            max_pending: 1024,
            max_response_bytes: 8 << 20,
            ca_file: None,
            proxy_url: None,
            use_environment_proxy: true,
            library: concat!("libexperiment/", env!("CARGO_PKG_VERSION")).to_owned(),
            lookup: Arc::new(sys::look_up),
            debug: false,
            log: None,
        }
    }
}

/// What a setter answers: nothing, or why the value was refused.
pub type Checked = Result<(), Error>;

impl Config {
    /// Where the service is: `http(s)://host[:port][/base/path]`. Wins over the zone.
    pub fn set_server_url(&mut self, url: &str) -> Checked {
        parse_base_url("server_url", url)?;
        self.server_url = Some(url.to_owned());
        Ok(())
    }

    pub fn set_server_zone(&mut self, zone: Zone) {
        self.zone = zone;
    }

    /// Milliseconds an attempt may take from its connection to the last byte: 1 to a day.
    pub fn set_fetch_timeout(&mut self, millis: u64) -> Checked {
        self.schedule.fetch_timeout = timeout("fetch_timeout_millis", millis)?;
        Ok(())
    }

    /// The same for the attempts after the first.
    pub fn set_fetch_retry_timeout(&mut self, millis: u64) -> Checked {
        self.schedule.retry_timeout = timeout("fetch_retry_timeout_millis", millis)?;
        Ok(())
    }

    /// Milliseconds an attempt may wait for a connection: 0 (not at all) to a day, or `NO_LIMIT`.
    /// Unset, it is the attempt's own timeout.
    pub fn set_fetch_pool_acquire_timeout(&mut self, millis: u64) -> Checked {
        self.schedule.acquire_timeout = Some(limit("fetch_pool_acquire_timeout_millis", millis)?);
        Ok(())
    }

    /// Attempts after the first: 0 to 100.
    pub fn set_fetch_retries(&mut self, retries: u32) -> Checked {
        self.schedule.retries = within("fetch_retries", retries, 0, 100)?;
        Ok(())
    }

    /// Milliseconds before the second attempt: 0 to a day.
    pub fn set_fetch_retry_backoff_min(&mut self, millis: u64) -> Checked {
        self.schedule.backoff_min = duration("fetch_retry_backoff_min_millis", millis)?;
        Ok(())
    }

    /// The largest wait between two attempts, in milliseconds: 0 to a day.
    pub fn set_fetch_retry_backoff_max(&mut self, millis: u64) -> Checked {
        self.schedule.backoff_max = duration("fetch_retry_backoff_max_millis", millis)?;
        Ok(())
    }

    /// What each wait is multiplied by for the next: 1 to 100.
    pub fn set_fetch_retry_backoff_scalar(&mut self, scalar: f64) -> Checked {
        if !(1.0..=100.0).contains(&scalar) {
            return Err(refused("fetch_retry_backoff_scalar", "1 to 100", scalar));
        }
        self.schedule.backoff_scalar = scalar;
        Ok(())
    }

    /// Whether each wait is drawn evenly from zero to the back-off.
    pub fn set_fetch_retry_jitter(&mut self, jitter: bool) {
        self.schedule.jitter = jitter;
    }

    /// Retries allowed for each hundred fetches: 1 to 100, or 0 for no such budget.
    pub fn set_fetch_retry_budget(&mut self, percent: u32) -> Checked {
        self.retry_budget_percent = within("fetch_retry_budget_percent", percent, 0, 100)?;
        Ok(())
    }

    /// Milliseconds over everything, from the call to its return: 0 to a day, or `NO_LIMIT`.
    pub fn set_fetch_deadline(&mut self, millis: u64) -> Checked {
        self.schedule.deadline = limit("fetch_deadline_millis", millis)?;
        Ok(())
    }

    /// Connections, and so exchanges at the same time: 1 to 1024.
    pub fn set_connection_pool_max_size(&mut self, size: u32) -> Checked {
        self.pool_size = within("connection_pool_max_size", size, 1, 1024)?;
        Ok(())
    }

    /// Milliseconds an unused connection is kept: 0 (never reused) to a day.
    pub fn set_connection_idle_timeout(&mut self, millis: u64) -> Checked {
        self.idle_timeout = duration("connection_idle_timeout_millis", millis)?;
        Ok(())
    }

    /// Milliseconds a connection is used for, so that a busy client follows its service's name to
    /// a new address: 0 to a day, or `NO_LIMIT`.
    pub fn set_connection_max_lifetime(&mut self, millis: u64) -> Checked {
        self.max_lifetime = limit("connection_max_lifetime_millis", millis)?;
        Ok(())
    }

    /// Asynchronous fetches that may be pending at once: 1 to 1 000 000.
    pub fn set_max_pending_fetches(&mut self, count: u32) -> Checked {
        self.max_pending = within("max_pending_fetches", count, 1, 1_000_000)?;
        Ok(())
    }

    /// The largest body that is read, after decompression: 1 byte to 1 GiB.
    pub fn set_max_response_bytes(&mut self, bytes: u64) -> Checked {
        self.max_response_bytes = within("max_response_bytes", bytes, 1, 1 << 30)?;
        Ok(())
    }

    /// A PEM file of the authorities to trust *in place of* the built-in ones. Read by the client
    /// when it is created.
    pub fn set_ca_file(&mut self, path: &str) -> Checked {
        self.ca_file = Some(nonempty("ca_file", path)?);
        Ok(())
    }

    /// The proxy to go through: `http://[user:password@]host[:port]`. Wins over the environment.
    pub fn set_proxy_url(&mut self, url: &str) -> Checked {
        // The value stays out of the message: it may hold a password.
        let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        if !matches!(scheme.as_deref(), Some("http" | "https"))
            || url.len() > MAX_LINE_BYTES
            || url.parse::<Uri>().is_err()
        {
            return Err(Error::invalid_argument(
                "proxy_url must be a URL like http://user:password@host:port",
            ));
        }
        self.proxy_url = Some(url.to_owned());
        Ok(())
    }

    /// Whether `HTTPS_PROXY` and its kin are obeyed, as found when the client is created.
    pub fn set_use_environment_proxy(&mut self, on: bool) {
        self.use_environment_proxy = on;
    }

    /// What the service is told about the caller's library: `name/version`.
    pub fn set_library(&mut self, library: &str) -> Checked {
        self.library = nonempty("library", library)?;
        Ok(())
    }

    /// Raises the log callback's level to debug.
    pub fn set_debug(&mut self, on: bool) {
        self.debug = on;
    }

    /// For tests: who knows the addresses of names, in place of the operating system.
    #[doc(hidden)]
    pub fn set_lookup(&mut self, lookup: Arc<Lookup>) {
        self.lookup = lookup;
    }

    pub fn set_log(&mut self, max_level: Level, sink: Arc<Sink>) {
        self.log = Some((max_level, sink));
    }

    /// Takes the log sink out, so that whoever replaces it chooses where the old one is dropped.
    pub fn take_log(&mut self) -> Option<(Level, Arc<Sink>)> {
        self.log.take()
    }

    /// Where requests go, without a slash at the end.
    pub fn effective_server_url(&self) -> &str {
        let url = self.server_url.as_deref().unwrap_or(self.zone.server_url());
        url.trim_end_matches('/')
    }

    /// The logger these settings ask for.
    pub fn logger(&self) -> Logger {
        match &self.log {
            Some((_, sink)) if self.debug => Logger::new(Level::Debug, Arc::clone(sink)),
            Some((level, sink)) => Logger::new(*level, Arc::clone(sink)),
            None => Logger::default(),
        }
    }
}

/// Checks a URL that paths are appended to.
fn parse_base_url(name: &str, url: &str) -> Result<Uri, Error> {
    let refuse = |why: &str| {
        Error::invalid_argument(format!(
            "{name} must be a URL like https://host[:port][/path], but {why}"
        ))
    };
    if url.len() > MAX_LINE_BYTES {
        return Err(refuse("it is longer than 4096 bytes"));
    }
    let uri: Uri = url.parse().map_err(|_| refuse("the value is not a URL"))?;
    let scheme = uri.scheme_str().ok_or_else(|| refuse("it has no scheme"))?;
    if !matches!(scheme, "http" | "https") {
        return Err(refuse("its scheme is not http or https"));
    }
    let authority = uri.authority().ok_or_else(|| refuse("it has no host"))?;
    if authority.as_str().contains('@') {
        return Err(refuse("it contains a user name"));
    }
    host_and_port(authority).map_err(refuse)?;
    if uri.query().is_some() || url.contains('#') {
        return Err(refuse("it has a query or fragment"));
    }
    Ok(uri)
}

/// What an authority names, behind a user if there is one; or why it names nothing. The parser of URLs
/// lets a host without a sense pass, and a port that is none, in whose place it tells of no port.
pub(crate) fn host_and_port(authority: &Authority) -> Result<(&str, Option<u16>), &'static str> {
    let host = authority.host();
    if host.is_empty() || host.contains(['[', ']']) && !is_bracketed_address(host) {
        return Err("it has no host");
    }
    let text = authority.as_str();
    let text = text.rsplit_once('@').map_or(text, |(_, behind)| behind);
    match text[host.len()..].strip_prefix(':') {
        // Nothing behind the colon is the scheme's own port (RFC 3986, section 3.2.3).
        Some("") => Ok((host, None)),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            let port = digits.parse().ok().filter(|&port| port > 0);
            port.map(|port| (host, Some(port))).ok_or("its port is not 1 to 65535")
        }
        None if text.len() == host.len() => Ok((host, None)),
        _ => Err("its port is not 1 to 65535"),
    }
}

fn is_bracketed_address(host: &str) -> bool {
    let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inside.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

/// Checks the key that authorises fetches. It must fit into a header; its text is never repeated.
pub fn check_api_key(key: &str) -> Checked {
    if key.is_empty() {
        return Err(Error::invalid_argument("api_key is empty"));
    }
    if key.len() > MAX_LINE_BYTES {
        return Err(Error::invalid_argument(format!(
            "api_key must have at most {MAX_LINE_BYTES} characters"
        )));
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::invalid_argument(
            "api_key must consist of visible ASCII characters, without spaces or line breaks",
        ));
    }
    Ok(())
}

fn timeout(name: &str, millis: u64) -> Result<Duration, Error> {
    within(name, millis, 1, MAX_MILLIS).map(Duration::from_millis)
}

fn duration(name: &str, millis: u64) -> Result<Duration, Error> {
    within(name, millis, 0, MAX_MILLIS).map(Duration::from_millis)
}

pub(crate) fn limit(name: &str, millis: u64) -> Result<Limit, Error> {
    match millis {
        NO_LIMIT => Ok(Limit::None),
        0..=MAX_MILLIS => Ok(Limit::millis(millis)),
        _ => Err(refused(name, "0 to 86400000, or EXP_NO_LIMIT", millis)),
    }
}

fn within<T: PartialOrd + std::fmt::Display + Copy>(
    name: &str,
    value: T,
    least: T,
    most: T,
) -> Result<T, Error> {
    if value < least || value > most {
        return Err(refused(name, &format!("{least} to {most}"), value));
    }
    Ok(value)
}

fn nonempty(name: &str, value: &str) -> Result<String, Error> {
    if value.is_empty() || value.chars().any(char::is_control) {
        return Err(Error::invalid_argument(format!(
            "{name} must be text without control characters, and not empty"
        )));
    }
    Ok(value.to_owned())
}

fn refused(name: &str, range: &str, value: impl std::fmt::Display) -> Error {
    Error::invalid_argument(format!("{name} must be {range}, but is {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::error::Status;

    /// Tries values at, below and above a setting's range on a fresh object each.
    fn check<T: Copy>(
        set: impl Fn(&mut Config, T) -> Checked,
        name: &str,
        accepted: &[T],
        refused: &[T],
    ) {
        for &value in accepted {
            set(&mut Config::default(), value).expect(name);
        }
        for &value in refused {
            let mut config = Config::default();
            let error = set(&mut config, value).expect_err(name);
            assert_eq!(error.status, Status::InvalidArgument);
            assert!(error.message.starts_with(name), "{}", error.message);
            assert_eq!(config.schedule, Config::default().schedule, "{name} left a trace");
        }
    }

    #[test]
    fn every_setting_takes_its_range_and_refuses_what_lies_outside() {
        const DAY: u64 = MAX_MILLIS;
        let beyond = [DAY + 1, u64::MAX - 1];
        let timeouts = (&[1, 500, DAY][..], &[0, DAY + 1, u64::MAX][..]);
        check(Config::set_fetch_timeout, "fetch_timeout_millis", timeouts.0, timeouts.1);
        check(
            Config::set_fetch_retry_timeout,
            "fetch_retry_timeout_millis",
            timeouts.0,
            timeouts.1,
        );
        let limits = &[0, 1, DAY, NO_LIMIT];
        check(
            Config::set_fetch_pool_acquire_timeout,
            "fetch_pool_acquire_timeout_millis",
            limits,
            &beyond,
        );
        check(Config::set_fetch_deadline, "fetch_deadline_millis", limits, &beyond);
        check(
            Config::set_connection_max_lifetime,
            "connection_max_lifetime_millis",
            limits,
            &beyond,
        );
        let durations = (&[0, DAY][..], &[DAY + 1, u64::MAX][..]);
        check(
            Config::set_fetch_retry_backoff_min,
            "fetch_retry_backoff_min_millis",
            durations.0,
            durations.1,
        );
        check(
            Config::set_fetch_retry_backoff_max,
            "fetch_retry_backoff_max_millis",
            durations.0,
            durations.1,
        );
        check(
            Config::set_connection_idle_timeout,
            "connection_idle_timeout_millis",
            durations.0,
            durations.1,
        );
        check(Config::set_fetch_retries, "fetch_retries", &[0, 100], &[101, u32::MAX]);
        check(
            Config::set_fetch_retry_budget,
            "fetch_retry_budget_percent",
            &[0, 100],
            &[101, u32::MAX],
        );
        check(
            Config::set_connection_pool_max_size,
            "connection_pool_max_size",
            &[1, 1024],
            &[0, 1025, u32::MAX],
        );
        check(
            Config::set_max_pending_fetches,
            "max_pending_fetches",
            &[1, 1_000_000],
            &[0, 1_000_001],
        );
        check(
            Config::set_max_response_bytes,
            "max_response_bytes",
            &[1, 1 << 30],
            &[0, (1 << 30) + 1],
        );
        check(
            Config::set_fetch_retry_backoff_scalar,
            "fetch_retry_backoff_scalar",
            &[1.0, 1.5, 100.0],
            &[0.0, 0.999, 100.1, -1.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY],
        );
    }

    #[test]
    fn urls_of_every_wrong_kind_are_refused_with_a_reason() {
        for (url, why) in [
            ("", "not a URL"),
            ("localhost", "no scheme"),
            ("/sdk", "no scheme"),
            ("ftp://host", "scheme is not"),
            ("file:///etc/passwd", ""),
            ("https://", ""),
            ("https://host:0", "port"),
            ("https://host:65536", ""),
            ("https://host:port", ""),
            ("https://host:+8", ""),
            ("https://user:secret@host", "user name"),
            ("https://host/?v=0", "query"),
            ("https://host/#top", "fragment"),
            ("https://ho st", ""),
            ("https://host\r\nEvil: yes", ""),
            ("http://[::1", ""),
            ("http://host[::1]:80", "no host"),
            ("http://ho[st]", "no host"),
            ("http://[host]:80", "no host"),
            ("http://[::1].host:80", "port"),
            ("http://[::1]80", "port"),
        ] {
            let error = Config::default().set_server_url(url).expect_err(url);
            assert_eq!(error.status, Status::InvalidArgument, "{url}");
            assert!(error.message.starts_with("server_url must be"), "{url}: {}", error.message);
            assert!(error.message.contains(why), "{url}: {}", error.message);
            assert!(!error.message.contains("secret"), "{}", error.message);
        }
    }

    #[test]
    fn a_url_may_carry_a_port_a_base_path_and_a_slash_at_its_end() {
        for (url, effective) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("HTTPS://Host.example/", "HTTPS://Host.example"),
            ("https://host/base/path/", "https://host/base/path"),
            ("http://[::1]:80", "http://[::1]:80"),
        ] {
            let mut config = Config::default();
            config.set_server_url(url).unwrap();
            assert_eq!(config.effective_server_url(), effective);
        }
    }

    #[test]
    fn an_explicit_url_wins_over_the_zone() {
        let mut config = Config::default();
        assert_eq!(config.effective_server_url(), "https://api.lab.amplitude.com");
        config.set_server_zone(Zone::Eu);
        assert_eq!(config.effective_server_url(), "https://api.lab.eu.amplitude.com");
        config.set_server_url("http://localhost:1").unwrap();
        assert_eq!(config.effective_server_url(), "http://localhost:1");
    }

    #[test]
    fn a_key_with_control_characters_is_refused_and_never_repeated() {
        for key in ["", "key\r\nX-Evil: 1", "key\0", "two words", "schlüssel", "tab\t"] {
            let error = check_api_key(key).expect_err(key);
            assert_eq!(error.status, Status::InvalidArgument);
            assert!(!error.message.contains("Evil") && !error.message.contains("two words"));
        }
        check_api_key("server-AbC123_-").unwrap();
    }

    #[test]
    fn a_proxy_must_be_a_url_and_its_password_is_never_repeated() {
        for url in ["", "proxy:3128", "socks5://host", "http://u:hunter2@ho st", "http://"] {
            let error = Config::default().set_proxy_url(url).expect_err(url);
            assert!(!error.message.contains("hunter2"));
        }
        Config::default().set_proxy_url("http://user:pass@proxy:3128").unwrap();
    }
}
