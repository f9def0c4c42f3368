//! Whether requests go through a proxy, decided once, when the client is created.

use std::ffi::OsString;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use percent_encoding::percent_decode_str;
use zeroize::Zeroizing;

use crate::config::{Config, host_and_port};
use crate::rules::error::Error;

/// A proxy that speaks HTTP, over TLS if it asks for that.
pub struct Proxy {
    pub is_tls: bool,
    /// As in its URL: an address of IPv6 is in brackets.
    pub host: String,
    pub port: u16,
    /// What the field Proxy-Authorization holds.
    pub authorization: Option<Zeroizing<String>>,
}

impl Proxy {
    /// `[http[s]://][user[:password]@]host[:port]`, user and password percent-encoded. `None` for
    /// everything else.
    fn parse(url: &str) -> Option<Self> {
        let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let uri: Uri = url.parse().ok()?;
        let is_tls = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let (host, port) = host_and_port(uri.authority()?).ok()?;
        let port = port.unwrap_or(if is_tls { 443 } else { 80 });
        let authorization = match uri.authority()?.as_str().rsplit_once('@') {
            Some((userinfo, _)) => Some(basic(userinfo)?),
            None => None,
        };
        Some(Proxy { is_tls, host: host.to_owned(), port, authorization })
    }

    /// What messages call it: nothing of its credentials.
    pub fn name(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// As messages say it. They never repeat the value, which may hold a password.
const PROXY_FORM: &str = "a proxy like http://user:password@host:port";

/// RFC 7617: the credentials of the scheme Basic.
fn basic(userinfo: &str) -> Option<Zeroizing<String>> {
    let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().ok().map(String::from);
    let (user, password) = (decoded(user)?, Zeroizing::new(decoded(password)?));
    let both = Zeroizing::new(format!("{user}:{}", password.as_str()));
    Some(Zeroizing::new(format!("Basic {}", STANDARD.encode(both.as_bytes()))))
}

/// The proxy to use for `target`: the configured one, else the environment's unless that is off.
pub fn choose(config: &Config, target: &Uri) -> Result<Option<Proxy>, Error> {
    choose_from(config, target, |name| std::env::var_os(name))
}

fn choose_from(
    config: &Config,
    target: &Uri,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<Proxy>, Error> {
    if let Some(url) = &config.proxy_url {
        return Proxy::parse(url)
            .map(Some)
            .ok_or_else(|| Error::invalid_argument(format!("proxy_url must be {PROXY_FORM}")));
    }
    if !config.use_environment_proxy {
        return Ok(None);
    }
    let set = |names: &[&'static str]| {
        names.iter().find_map(|&name| {
            variable(name).filter(|value| !value.is_empty()).map(|value| (name, value))
        })
    };
    // Of a list that is not UTF-8, the names that are can still be found.
    let exceptions = set(&["NO_PROXY", "no_proxy"]);
    if exceptions.is_some_and(|(_, list)| bypasses(&list.to_string_lossy(), target)) {
        return Ok(None);
    }
    let url = if is_https(target) {
        set(&["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
    } else if variable("REQUEST_METHOD").is_some() {
        // Under CGI, HTTP_PROXY is the client's `Proxy` header (CVE-2016-5385).
        set(&["http_proxy", "ALL_PROXY", "all_proxy"])
    } else {
        set(&["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
    };
    let Some((name, url)) = url else { return Ok(None) };
    url.to_str().and_then(Proxy::parse).map(Some).ok_or_else(|| {
        Error::invalid_argument(format!(
            "the environment variable {name} must be {PROXY_FORM}; fix it, or set \
             use_environment_proxy to 0"
        ))
    })
}

pub fn is_https(uri: &Uri) -> bool {
    uri.scheme_str().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
}

/// Whether a `NO_PROXY` list names the host of `target`. Entries are separated by commas, semicolons or
/// whitespace:
/// `*` for every host; a host or domain, with or without a leading dot or `*.`, for it and all
/// below it; either with a port for that port alone; an address in any of its spellings; a block of
/// addresses (`10.0.0.0/8`). A dot at the end of a name, which makes it absolute, makes no difference.
fn bypasses(list: &str, target: &Uri) -> bool {
    let host = target.host().unwrap_or_default().to_ascii_lowercase();
    let host = relative(unbracketed(&host));
    let address = canonical(host);
    let port = target.port_u16().unwrap_or(if is_https(target) { 443 } else { 80 });
    let separates = |at: char| matches!(at, ',' | ';') || at.is_whitespace();
    list.split(separates).filter(|entry| !entry.is_empty()).any(|entry| {
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
        let name = unbracketed(name.trim_start_matches('*').trim_start_matches('.'));
        if address.is_some() && canonical(name) == address {
            return true;
        }
        let name = relative(name);
        name.is_empty() && entry.starts_with('*')
            || host == name
            || !name.is_empty() && host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'))
    })
}

fn unbracketed(host: &str) -> &str {
    host.trim_matches(['[', ']'])
}

fn relative(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// An address of IPv4 that is written as one of IPv6 is the same.
fn canonical(host: &str) -> Option<IpAddr> {
    host.parse().ok().map(|address: IpAddr| address.to_canonical())
}

/// Whether a host is an address in a block of them; `None` if one of the three is none.
fn is_within(host: &str, network: &str, bits: &str) -> Option<bool> {
    let (host, network) =
        (host.parse::<IpAddr>().ok()?, unbracketed(network).parse::<IpAddr>().ok()?);
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
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        };
        let proxy = choose_from(config, &target.parse().unwrap(), find).unwrap();
        proxy.map(|proxy| proxy.host)
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
    fn a_proxy_that_cannot_be_used_is_refused_and_never_gone_past() {
        use std::os::unix::ffi::OsStringExt;
        for value in [
            &b"http://p\xff"[..],
            b"\xff",
            b"socks5://p",
            b"http://",
            b"http://u:%ff@p",
            b"ftp://p",
            b"http://p:99999",
            b"http://p:0",
            b"http://p:+80",
            b"http://p:80:81",
            b"http://[fe80::1%25lo]:80",
            b"http://[::1].p:80",
            b"http://[::1]80",
        ] {
            let find =
                |name: &str| (name == "HTTPS_PROXY").then(|| OsString::from_vec(value.to_vec()));
            let chosen = choose_from(&Config::default(), &"https://host".parse().unwrap(), find);
            assert!(chosen.is_err(), "{value:?}");
        }
    }

    #[test]
    fn a_proxys_credentials_are_decoded_once_and_its_name_has_none() {
        for (url, name, authorization) in [
            ("http://p", "p:80", None),
            ("p:3128", "p:3128", None),
            ("https://p", "p:443", None),
            ("http://[::1]:8", "[::1]:8", None),
            ("http://user:pass@p:1", "p:1", Some("user:pass")),
            ("user@p:1", "p:1", Some("user:")),
            ("http://u%40x:p%25%3a+@p:1", "p:1", Some("u@x:p%:+")),
            ("http://u:a:b@p:1", "p:1", Some("u:a:b")),
        ] {
            let proxy = Proxy::parse(url).expect(url);
            assert_eq!(proxy.name(), name, "{url}");
            let expected = authorization.map(|it| format!("Basic {}", STANDARD.encode(it)));
            assert_eq!(proxy.authorization.as_ref().map(|it| it.as_str().to_owned()), expected);
        }
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
            ("example.com;amplitude.com", "https://api.lab.amplitude.com", true),
            ("example.com\namplitude.com\n", "https://api.lab.amplitude.com", true),
            ("example.com\t amplitude.com", "https://api.lab.amplitude.com", true),
            ("example.com\r\n;, amplitude.com", "https://api.lab.amplitude.com", true),
            ("example.com;tude.com", "https://api.lab.amplitude.com", false),
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
            ("[fd00::]/8", "http://[fd12::1]", true),
            ("FD00::/8", "http://[fd12::1]", true),
            ("::1", "http://[0:0:0:0:0:0:0:1]:8080", true),
            ("0:0::0:1", "http://[::1]", true),
            ("[0::1]:8080", "http://[::1]:8080", true),
            ("[0::1]:80", "http://[::1]:8080", false),
            ("[::1]", "http://[::1]", true),
            ("::7f00:1", "http://[::127.0.0.1]", true),
            ("2001:DB8::A", "http://[2001:db8::a]", true),
            ("::1", "http://[::2]", false),
            ("127.0.0.1", "http://[::ffff:127.0.0.1]", true),
            ("::ffff:127.0.0.1", "http://127.0.0.1", true),
            ("127.0.0.1", "http://127.0.0.2", false),
            ("amplitude.com.", "https://api.lab.amplitude.com", true),
            ("amplitude.com", "https://api.lab.amplitude.com.", true),
            (".amplitude.com.", "https://api.lab.amplitude.com.", true),
            (".", "https://api.lab.amplitude.com.", false),
            ("AMPLITUDE.com:443", "https://api.lab.amplitude.com", true),
            ("fd00::/8", "http://10.0.0.1", false),
            ("10.0.0.0/8", "http://name", false),
        ] {
            assert_eq!(bypasses(list, &target.parse().unwrap()), bypass, "{list} {target}");
        }
    }
}
