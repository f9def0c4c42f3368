//! Settings: nothing panics, what is accepted is kept as it was given and makes a client, and what is
//! refused says why without repeating it. The input is six lines: server URL, proxy URL, NO_PROXY and
//! one more, numbers, library.
#![no_main]

use std::env;

use experiment::client::Client;
use experiment::config::{Checked, Config, NO_LIMIT};
use experiment::rules::error::Status;
use libfuzzer_sys::fuzz_target;

const DAY: u64 = 86_400_000;

fuzz_target!(|input: &[u8]| {
    let Ok(input) = std::str::from_utf8(input) else { return };
    let lines: Vec<&str> = input.splitn(6, '\n').collect();
    let [server, proxy, hosts, more_hosts, numbers, library] = lines[..] else { return };
    let mut config = Config::default();
    config.set_use_environment_proxy(false);
    if told(&config.set_server_url(server), "server_url must be", &[]) {
        assert_eq!(config.effective_server_url(), server.trim_end_matches('/'));
        assert!(!server.contains(['?', '#', '\r', ' ']));
    }
    if told(&config.set_library(library), "library must be", &[]) {
        assert!(!library.is_empty() && !library.contains(['\r', '\n', '\0']));
    }
    Client::new("key", &config).expect("what each setting accepts makes a client");
    check_proxy(config.clone(), proxy);
    check_key(&config, library);
    check_bypass(config.clone(), hosts, more_hosts);
    for number in numbers.split(' ').filter_map(|number| number.parse().ok()) {
        check_number(&mut config, number);
    }
    Client::new("key", &config).expect("and so do numbers");
});

/// Whether it was accepted. What is refused begins with these words, and keeps secrets.
fn told(checked: &Checked, words: &str, secrets: &[&str]) -> bool {
    let Err(error) = checked else { return true };
    assert_eq!(error.status, Status::InvalidArgument);
    assert!(error.message.starts_with(words), "{error}");
    assert!(!error.message.contains(['\n', '\r', '\0']), "one line");
    assert!(!secrets.iter().any(|secret| error.message.contains(secret)), "{error}");
    false
}

/// Longer than any word of a message.
fn is_no_word(secret: &str) -> bool {
    secret.len() > 32 && !secret.contains(' ')
}

fn check_proxy(mut config: Config, proxy: &str) {
    // Between the password and its host, where it has one.
    let secret = proxy.rsplit_once('@').and_then(|(front, _)| front.rsplit_once(':'));
    let secret = secret.map(|(_, password)| password).filter(|password| is_no_word(password));
    let secrets: Vec<&str> = secret.into_iter().collect();
    if told(&config.set_proxy_url(proxy), "proxy_url must be", &secrets) {
        let made = Client::new("key", &config).map(drop);
        told(&made, "proxy_url must be a proxy", &secrets);
    }
}

fn check_key(config: &Config, key: &str) {
    let fits = (1..=4096).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    let secrets: &[&str] = if is_no_word(key) { &[key] } else { &[] };
    assert_eq!(told(&Client::new(key, config).map(drop), "api_key ", secrets), fits);
}

/// `NO_PROXY` names the host: seen by the proxy, which cannot be used, not being minded.
fn check_bypass(mut config: Config, hosts: &str, more_hosts: &str) {
    if hosts.contains('\0') || more_hosts.contains('\0') {
        return;
    }
    config.set_use_environment_proxy(true);
    let bypasses = |hosts: &str| {
        // SAFETY: nothing else runs in this process.
        unsafe {
            for proxy in ["HTTP_PROXY", "HTTPS_PROXY"] {
                env::set_var(proxy, "none://");
            }
            env::set_var("NO_PROXY", hosts);
            env::remove_var("no_proxy");
        }
        told(&Client::new("key", &config).map(drop), "the environment variable HTTP", &[])
    };
    let each = [hosts, more_hosts].map(bypasses);
    assert_eq!(bypasses(&format!("{hosts},{more_hosts}")), each[0] || each[1]);
    assert_eq!(bypasses(&format!("{more_hosts} {hosts}")), each[0] || each[1]);
    assert_eq!(bypasses(&hosts.to_ascii_uppercase()), each[0]);
    assert!(bypasses(&format!("{hosts},*")));
    let url = config.effective_server_url();
    let authority = url.split("://").nth(1).unwrap_or_default().split('/').next();
    let authority = authority.unwrap_or_default();
    // Of what is no host's name the list's own signs mean something else.
    let is_name = authority.starts_with(|char: char| char.is_ascii_alphanumeric() || char == '[')
        && authority.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:[]".contains(&byte));
    assert!(!is_name || bypasses(&format!("{authority},{hosts}")), "{authority}");
    assert!(!bypasses(""));
}

fn check_number(config: &mut Config, number: u64) {
    type Set = fn(&mut Config, u64) -> Checked;
    let limits: [(&str, Set); 3] = [
        ("fetch_pool_acquire_timeout_millis", Config::set_fetch_pool_acquire_timeout),
        ("fetch_deadline_millis", Config::set_fetch_deadline),
        ("connection_max_lifetime_millis", Config::set_connection_max_lifetime),
    ];
    for (name, set) in limits {
        assert_eq!(told(&set(config, number), name, &[]), number <= DAY || number == NO_LIMIT);
    }
    let ranges: [(&str, Set, u64, u64); 6] = [
        ("fetch_timeout_millis", Config::set_fetch_timeout, 1, DAY),
        ("fetch_retry_timeout_millis", Config::set_fetch_retry_timeout, 1, DAY),
        ("fetch_retry_backoff_min_millis", Config::set_fetch_retry_backoff_min, 0, DAY),
        ("fetch_retry_backoff_max_millis", Config::set_fetch_retry_backoff_max, 0, DAY),
        ("connection_idle_timeout_millis", Config::set_connection_idle_timeout, 0, DAY),
        ("max_response_bytes", Config::set_max_response_bytes, 1, 1 << 30),
    ];
    for (name, set, least, most) in ranges {
        let accepted = told(&set(config, number), name, &[]);
        assert_eq!(accepted, (least..=most).contains(&number), "{name}: {number}");
    }
    type SetSmall = fn(&mut Config, u32) -> Checked;
    let small: [(&str, SetSmall, u32, u32); 4] = [
        ("fetch_retries", Config::set_fetch_retries, 0, 100),
        ("fetch_retry_budget_percent", Config::set_fetch_retry_budget, 0, 100),
        ("connection_pool_max_size", Config::set_connection_pool_max_size, 1, 1024),
        ("max_pending_fetches", Config::set_max_pending_fetches, 1, 1_000_000),
    ];
    for (name, set, least, most) in small {
        let number = number as u32;
        let accepted = told(&set(config, number), name, &[]);
        assert_eq!(accepted, (least..=most).contains(&number), "{name}: {number}");
    }
    let scalar = f64::from_bits(number);
    let accepted =
        told(&config.set_fetch_retry_backoff_scalar(scalar), "fetch_retry_backoff_scalar", &[]);
    assert_eq!(accepted, (1.0..=100.0).contains(&scalar));
}
