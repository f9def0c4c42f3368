//! The request on the wire: what is the same for every fetch of a client, made once, and what one
//! fetch adds.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, USER_AGENT,
};
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Method, Uri};

use zeroize::Zeroizing;

use crate::error::Error;
use crate::options::FetchOptions;

const TRACK: HeaderName = HeaderName::from_static("x-amp-exp-track");
const EXPOSURE_TRACK: HeaderName = HeaderName::from_static("x-amp-exp-exposure-track");
const FLAG_KEYS: HeaderName = HeaderName::from_static("x-amp-exp-flag-keys");

/// What every request of a client has in common.
#[derive(Debug)]
pub struct Head {
    uri: Uri,
    headers: HeaderMap,
}

impl Head {
    /// `server_url` has no slash at its end; both arguments have been checked when configured.
    pub fn new(server_url: &str, api_key: &str) -> Result<Self, Error> {
        let uri: Uri = format!("{server_url}/sdk/v2/vardata?v=0").parse().map_err(|_| {
            Error::invalid_argument("server_url gives no URL when the service's path is added")
        })?;
        // What is ours of the key is wiped; the header's own copy goes with the client.
        let text = Zeroizing::new(format!("Api-Key {api_key}"));
        let mut key = HeaderValue::from_str(&text)
            .map_err(|_| Error::invalid_argument("api_key cannot stand in a header"))?;
        key.set_sensitive(true);
        let mut headers = HeaderMap::with_capacity(8);
        // ureq would make it anew for each request.
        headers.insert(HOST, host(&uri)?);
        headers.insert(AUTHORIZATION, key);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json;charset=utf-8"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(USER_AGENT, HeaderValue::from_static(super::USER_AGENT));
        Ok(Head { uri, headers })
    }

    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// One request with `user` as its body.
    pub fn request<'a>(&self, user: &'a [u8], options: &FetchOptions) -> http::Request<&'a [u8]> {
        let mut request = http::Request::new(user);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let headers = request.headers_mut();
        if let Some(tracks) = options.tracks_assignment {
            headers.insert(TRACK, track(tracks));
        }
        if let Some(tracks) = options.tracks_exposure {
            headers.insert(EXPOSURE_TRACK, track(tracks));
        }
        if let keys @ [_, ..] = options.flag_keys.as_slice() {
            headers.insert(FLAG_KEYS, flag_keys(keys));
        }
        request
    }
}

/// Whom a request is for: the port too, unless it is the scheme's own (RFC 9110, section 7.2).
fn host(uri: &Uri) -> Result<HeaderValue, Error> {
    let host = uri.host().unwrap_or_default();
    let of_scheme = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    let value = match uri.port_u16().filter(|&port| port != of_scheme) {
        Some(port) => HeaderValue::try_from(format!("{host}:{port}")),
        None => HeaderValue::try_from(host),
    };
    value
        .map_err(|_| Error::invalid_argument("server_url has a host that cannot stand in a header"))
}

fn track(tracks: bool) -> HeaderValue {
    HeaderValue::from_static(if tracks { "track" } else { "no-track" })
}

/// URL-safe base64 without padding (RFC 4648, section 5) of a compact JSON array of strings.
fn flag_keys(keys: &[String]) -> HeaderValue {
    let json = serde_json::to_vec(keys).expect("strings always serialise");
    HeaderValue::try_from(URL_SAFE_NO_PAD.encode(json)).expect("base64 can stand in a header")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(options: &FetchOptions) -> Vec<(String, String)> {
        let head = Head::new("http://host/base", "key").unwrap();
        let request = head.request(b"{}", options);
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        request.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect()
    }

    fn header(options: &FetchOptions, name: &str) -> Option<String> {
        headers(options).into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    #[test]
    fn options_left_unset_send_no_header() {
        let names: Vec<String> =
            headers(&FetchOptions::default()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            ["host", "authorization", "content-type", "accept", "accept-encoding", "user-agent"]
        );
    }

    #[test]
    fn tracking_is_sent_as_told() {
        for (tracks, value) in [(true, "track"), (false, "no-track")] {
            let options =
                FetchOptions { tracks_assignment: Some(tracks), ..FetchOptions::default() };
            assert_eq!(header(&options, "x-amp-exp-track").as_deref(), Some(value));
            assert_eq!(header(&options, "x-amp-exp-exposure-track"), None);
            let options = FetchOptions { tracks_exposure: Some(tracks), ..FetchOptions::default() };
            assert_eq!(header(&options, "x-amp-exp-exposure-track").as_deref(), Some(value));
            assert_eq!(header(&options, "x-amp-exp-track"), None);
        }
    }

    #[test]
    fn flag_keys_are_url_safe_base64_of_a_compact_array_in_utf8() {
        for (keys, value) in [
            (&["flag-a", "flag-b"][..], "WyJmbGFnLWEiLCJmbGFnLWIiXQ"),
            (&["a", "é"][..], "WyJhIiwiw6kiXQ"),
        ] {
            let mut options = FetchOptions::default();
            keys.iter().for_each(|key| options.flag_keys.add(key).unwrap());
            assert_eq!(header(&options, "x-amp-exp-flag-keys").as_deref(), Some(value));
        }
    }

    #[test]
    fn the_host_is_named_with_its_port_unless_that_is_the_schemes_own() {
        for (url, host) in [
            ("http://host", "host"),
            ("http://host:80", "host"),
            ("https://host:443/base", "host"),
            ("https://host:80", "host:80"),
            ("http://host:443", "host:443"),
            ("http://[::1]:8080", "[::1]:8080"),
            ("https://[::1]:443", "[::1]"),
            ("HTTPS://Host:443", "Host"),
        ] {
            let head = Head::new(url, "key").unwrap();
            assert_eq!(head.headers[HOST], host, "{url}");
        }
    }

    #[test]
    fn the_key_does_not_show_in_debug_output() {
        let head = Head::new("http://host", "secret-key").unwrap();
        assert!(!format!("{head:?}").contains("secret-key"));
    }

    #[test]
    fn the_path_is_added_to_the_base() {
        let head = Head::new("http://host:1/base", "key").unwrap();
        assert_eq!(head.uri(), "http://host:1/base/sdk/v2/vardata?v=0");
    }
}
