//! Whether requests go through a proxy, decided once, when the client is created.

use std::net::IpAddr;

use http::Uri;
use ureq::{Proxy, ProxyProtocol};

use crate::config::Config;
use crate::error::Error;

/// The proxy to use for `target`: the configured one, else the environment's unless that is off.
pub fn choose(config: &Config, target: &Uri) -> Result<Option<Proxy>, Error> {
    choose_from(config, target, |name| std::env::var(name).ok())
}

fn choose_from(
    config: &Config,
    target: &Uri,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Proxy>, Error> {
    if let Some(url) = &config.proxy_url {
        // The value stays out of the message: it may hold a password.
        return usable(url)
            .map(Some)
            .ok_or_else(|| Error::invalid_argument("proxy_url is no proxy that can be used"));
    }
    if !config.use_environment_proxy {
        return Ok(None);
    }
    let set = |names: &[&str]| {
        names.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()))
    };
    if set(&["NO_PROXY", "no_proxy"]).is_some_and(|list| bypasses(&list, target)) {
        return Ok(None);
    }
    let is_https = target.scheme_str().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    let url = if is_https {
        set(&["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
    } else if variable("REQUEST_METHOD").is_some() {
        // Under CGI, HTTP_PROXY is the client's `Proxy` header (CVE-2016-5385).
        set(&["http_proxy", "ALL_PROXY", "all_proxy"])
    } else {
        set(&["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
    };
    let Some(url) = url else { return Ok(None) };
    usable(&url).map(Some).ok_or_else(|| {
        Error::invalid_argument(
            "the proxy named by the environment cannot be used, it must be http://host[:port]; \
             mend the variable or set use_environment_proxy to 0",
        )
    })
}

/// A proxy that can be asked to CONNECT. ureq takes others too, and then goes past them.
fn usable(url: &str) -> Option<Proxy> {
    let proxy = Proxy::new(url).ok()?;
    let connects = matches!(proxy.protocol(), ProxyProtocol::Http | ProxyProtocol::Https);
    (connects && !proxy.host().is_empty()).then_some(proxy)
}

/// Whether a `NO_PROXY` list names the host of `target`. Entries are separated by commas or spaces:
/// `*` for every host; a host or domain, with or without a leading dot or `*.`, for it and all
/// below it; either with a port for that port alone; a block of addresses (`10.0.0.0/8`).
fn bypasses(list: &str, target: &Uri) -> bool {
    let host = target.host().unwrap_or_default().to_ascii_lowercase();
    let host = host.trim_matches(['[', ']']);
    let is_https = target.scheme_str().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    let port = target.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    list.split([',', ' ']).filter(|entry| !entry.is_empty()).any(|entry| {
        if let Some((network, bits)) = entry.split_once('/') {
            return is_within(host, network, bits).unwrap_or(false);
        }
        let entry = entry.to_ascii_lowercase();
        let (name, wanted_port) = match entry.rsplit_once(':') {
            Some((name, port)) if !name.contains(':') || name.ends_with(']') => {
                (name, port.parse().ok())
            }
            _ => (entry.as_str(), None),
        };
        if wanted_port.is_some_and(|wanted: u16| wanted != port) {
            return false;
        }
        let name = name.trim_start_matches('*').trim_start_matches('.').trim_matches(['[', ']']);
        name.is_empty() && entry.starts_with('*')
            || host == name
            || !name.is_empty() && host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'))
    })
}

/// Whether a host is an address in a block of them; `None` if one of the three is none.
fn is_within(host: &str, network: &str, bits: &str) -> Option<bool> {
    let (host, network) = (host.parse::<IpAddr>().ok()?, network.parse::<IpAddr>().ok()?);
    let bits: u32 = bits.parse().ok()?;
    match (host, network) {
        (IpAddr::V4(host), IpAddr::V4(network)) => Some(
            (host.to_bits() ^ network.to_bits())
                .checked_shr(32_u32.checked_sub(bits)?)
                .unwrap_or(0)
                == 0,
        ),
        (IpAddr::V6(host), IpAddr::V6(network)) => Some(
            (host.to_bits() ^ network.to_bits())
                .checked_shr(128_u32.checked_sub(bits)?)
                .unwrap_or(0)
                == 0,
        ),
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(config: &Config, target: &str, variables: &[(&str, &str)]) -> Option<String> {
        let find = |name: &str| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        let proxy = choose_from(config, &target.parse().unwrap(), find).unwrap();
        proxy.map(|proxy| proxy.host().to_owned())
    }

    #[test]
    fn the_environments_proxy_is_the_one_for_the_scheme() {
        let config = Config::default();
        let variables = [("HTTPS_PROXY", "http://s"), ("HTTP_PROXY", "http://h")];
        assert_eq!(chosen(&config, "https://host", &variables).as_deref(), Some("s"));
        assert_eq!(chosen(&config, "http://host", &variables).as_deref(), Some("h"));
        assert_eq!(
            chosen(&config, "https://host", &[("ALL_PROXY", "http://a")]).as_deref(),
            Some("a")
        );
        assert_eq!(chosen(&config, "https://host", &[("HTTP_PROXY", "http://h")]), None);
        assert_eq!(chosen(&config, "https://host", &[("HTTPS_PROXY", "")]), None);
    }

    #[test]
    fn http_proxy_is_ignored_where_a_request_may_have_set_it() {
        let variables = [("HTTP_PROXY", "http://evil"), ("REQUEST_METHOD", "GET")];
        assert_eq!(chosen(&Config::default(), "http://host", &variables), None);
    }

    #[test]
    fn the_setting_wins_over_the_environment_and_the_environment_can_be_switched_off() {
        let mut config = Config::default();
        config.set_use_environment_proxy(false);
        let variables = [("HTTPS_PROXY", "http://s")];
        assert_eq!(chosen(&config, "https://host", &variables), None);
        config.set_proxy_url("http://p").unwrap();
        assert_eq!(chosen(&config, "https://host", &variables).as_deref(), Some("p"));
    }

    #[test]
    fn no_proxy_names_hosts_domains_ports_and_everything() {
        for (list, target, bypass) in [
            ("*", "https://api.lab.amplitude.com", true),
            ("amplitude.com", "https://api.lab.amplitude.com", true),
            (".amplitude.com", "https://api.lab.amplitude.com", true),
            ("*.amplitude.com", "https://api.lab.amplitude.com", true),
            ("api.lab.amplitude.com", "https://API.lab.amplitude.com", true),
            ("example.com, amplitude.com", "https://api.lab.amplitude.com", true),
            ("tude.com", "https://api.lab.amplitude.com", false),
            ("lab", "https://api.lab.amplitude.com", false),
            ("", "https://api.lab.amplitude.com", false),
            ("127.0.0.1", "http://127.0.0.1:8080", true),
            ("127.0.0.1:8080", "http://127.0.0.1:8080", true),
            ("127.0.0.1:80", "http://127.0.0.1:8080", false),
            ("::1", "http://[::1]:8080", true),
            ("[::1]:8080", "http://[::1]:8080", true),
            ("localhost", "http://localhost", true),
            ("127.0.0.0/8", "http://127.1.2.3", true),
            ("127.0.0.0/8", "http://128.1.2.3", false),
            ("0.0.0.0/0", "http://128.1.2.3", true),
            ("10.1.2.3/32", "http://10.1.2.3", true),
            ("10.1.2.3/32", "http://10.1.2.2", false),
            ("10.0.0.0/33", "http://10.0.0.0", false),
            ("fd00::/8", "http://[fd12::1]", true),
            ("fd00::/8", "http://10.0.0.1", false),
            ("10.0.0.0/8", "http://name", false),
        ] {
            assert_eq!(bypasses(list, &target.parse().unwrap()), bypass, "{list} {target}");
        }
    }
}
