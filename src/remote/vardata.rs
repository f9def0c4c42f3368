//! The request for variants on the wire: what is the same for every fetch of a client, written once, and
//! what one fetch adds.

use std::fmt::Write as _;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Uri;
use http::uri::Scheme;
use zeroize::Zeroizing;

use crate::remote::options::FetchOptions;
use crate::rules::error::Error;
use crate::transport::{Forwarding, Request, USER_AGENT};

/// A body up to this size leaves in one piece with its head.
const JOINED_BYTES: usize = 16 << 10;

/// What every request of a client has in common.
pub struct Template {
    uri: Uri,
    /// The request line and the fields that are always the same. Wiped when dropped, for the key's sake.
    opening: Zeroizing<Vec<u8>>,
}

impl Template {
    /// `server_url` has no slash at its end; both arguments have been checked when configured.
    pub fn new(server_url: &str, api_key: &str) -> Result<Self, Error> {
        let uri: Uri = format!("{server_url}/sdk/v2/vardata?v=0").parse().map_err(|_| {
            Error::invalid_argument("server_url gives no URL when the service's path is added")
        })?;
        if !api_key.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(Error::invalid_argument("api_key cannot stand in a header"));
        }
        let mut template = Template { uri, opening: Zeroizing::default() };
        template.write(api_key, None);
        Ok(template)
    }

    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Writes the request for a proxy that forwards it, with the whole URL (RFC 9112, section 3.2.2).
    pub fn forward_by(&mut self, api_key: &str, proxy: Forwarding<'_>) {
        self.write(api_key, Some(proxy));
    }

    fn write(&mut self, api_key: &str, forwarded_by: Option<Forwarding<'_>>) {
        let uri = &self.uri;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let host = host(uri);
        // As large as it gets at once: what is moved on growing would not be wiped.
        let mut out = Vec::with_capacity(512 + 2 * host.len() + path.len() + api_key.len() * 2);
        let mut text = Zeroizing::new(String::with_capacity(out.capacity()));
        let origin = if forwarded_by.is_some() { format!("http://{host}") } else { String::new() };
        let _ = write!(
            text,
            "POST {origin}{path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Api-Key {api_key}\r\n\
             content-type: application/json;charset=utf-8\r\naccept: application/json\r\n\
             accept-encoding: gzip\r\nuser-agent: {}\r\n",
            USER_AGENT
        );
        out.extend_from_slice(text.as_bytes());
        if let Some(authorization) = forwarded_by.and_then(|proxy| proxy.authorization) {
            out.reserve_exact(authorization.len() + 32);
            let _ = write!(out, "proxy-authorization: {authorization}\r\n");
        }
        self.opening = Zeroizing::new(out);
    }

    /// Writes one request with `user` as its body into `out`; returns what of the body is to be sent
    /// after that, because it is large.
    pub fn request<'a>(
        &self,
        user: &'a [u8],
        options: &FetchOptions,
        out: &mut Zeroizing<Vec<u8>>,
    ) -> &'a [u8] {
        let keys = match options.flag_keys.as_slice() {
            [] => None,
            keys => Some(flag_keys(keys)),
        };
        let (joined, rest) =
            if user.len() <= JOINED_BYTES { (user, &[][..]) } else { (&[][..], user) };
        let most = self.opening.len() + keys.as_ref().map_or(0, String::len) + joined.len() + 160;
        if out.capacity() < most {
            *out = Zeroizing::new(Vec::with_capacity(most)); // the old one is wiped
        }
        out.clear();
        out.extend_from_slice(&self.opening);
        for (name, tracks) in [
            ("x-amp-exp-track", options.tracks_assignment),
            ("x-amp-exp-exposure-track", options.tracks_exposure),
        ] {
            if let Some(tracks) = tracks {
                let _ = write!(out, "{name}: {}\r\n", if tracks { "track" } else { "no-track" });
            }
        }
        if let Some(keys) = keys {
            let _ = write!(out, "x-amp-exp-flag-keys: {keys}\r\n");
        }
        let _ = write!(out, "content-length: {}\r\n\r\n", user.len());
        out.extend_from_slice(joined);
        rest
    }
}

/// One fetch's request.
pub struct Vardata<'a> {
    pub template: &'a Template,
    pub user: &'a [u8],
    pub options: &'a FetchOptions,
}

impl Request for Vardata<'_> {
    fn write(&self, out: &mut Zeroizing<Vec<u8>>) -> &[u8] {
        self.template.request(self.user, self.options, out)
    }

    /// Not where an exposure would count twice.
    fn may_repeat_what_was_sent(&self) -> bool {
        self.options.tracks_exposure != Some(true)
    }
}

/// Whom a request is for: the port too, unless it is the scheme's own (RFC 9110, section 7.2).
fn host(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    let of_scheme = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    match uri.port_u16().filter(|&port| port != of_scheme) {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// Base64 without padding of a compact JSON array of strings.
///
/// The service reads the URL-safe alphabet, the vendor's Evaluation Proxy the standard one (RFC 4648,
/// sections 4 and 5). They differ in two characters, which no ASCII text gives but `>`, `?`, `~` and
/// DEL; written as escapes, these and what is not ASCII give the same in both.
fn flag_keys(keys: &[String]) -> String {
    let json = serde_json::to_string(keys).expect("strings always serialise");
    let mut ascii = String::with_capacity(json.len());
    for char in json.chars() {
        if char.is_ascii() && !matches!(char, '>' | '?' | '~' | '\x7f') {
            ascii.push(char);
        } else {
            for unit in char.encode_utf16(&mut [0; 2]) {
                let _ = write!(ascii, "\\u{unit:04x}");
            }
        }
    }
    URL_SAFE_NO_PAD.encode(ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(template: &Template, body: &[u8], options: &FetchOptions) -> String {
        let mut out = Zeroizing::default();
        let rest = template.request(body, options, &mut out);
        String::from_utf8([&out[..], rest].concat()).unwrap()
    }

    fn request(options: &FetchOptions) -> String {
        written(&Template::new("http://host/base", "key").unwrap(), b"{}", options)
    }

    fn header(options: &FetchOptions, name: &str) -> Option<String> {
        let text = request(options);
        let mut lines = text.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    }

    fn with_keys(keys: &[&str]) -> FetchOptions {
        let mut options = FetchOptions::default();
        keys.iter().for_each(|key| options.flag_keys.add(key).unwrap());
        options
    }

    #[test]
    fn options_left_unset_send_no_header() {
        let expected = format!(
            "POST /base/sdk/v2/vardata?v=0 HTTP/1.1\r\nhost: host\r\nauthorization: Api-Key key\r\n\
             content-type: application/json;charset=utf-8\r\naccept: application/json\r\n\
             accept-encoding: gzip\r\nuser-agent: {}\r\ncontent-length: 2\r\n\r\n{{}}",
            crate::transport::USER_AGENT
        );
        assert_eq!(request(&FetchOptions::default()), expected);
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
    fn flag_keys_are_base64_without_padding_of_a_compact_array_in_ascii() {
        for (keys, value) in [
            (&["flag-a", "flag-b"][..], "WyJmbGFnLWEiLCJmbGFnLWIiXQ"),
            (&["a", "é"][..], "WyJhIiwiXHUwMGU5Il0"),
        ] {
            assert_eq!(header(&with_keys(keys), "x-amp-exp-flag-keys").as_deref(), Some(value));
        }
    }

    #[test]
    fn flag_keys_read_the_same_in_both_alphabets_of_base64() {
        use base64::engine::general_purpose::STANDARD_NO_PAD;
        // Each character at each of the three places of a group, among all of ASCII and some beyond.
        let all = (1u32..0x80).chain([0xe9, 0x7ff, 0x20ac, 0xfffd, 0x1f600, 0x10ffff]);
        for char in all.filter_map(char::from_u32) {
            for before in ["", "a", "aa"] {
                let key = format!("{before}{char}{char}{char}");
                let sent = header(&with_keys(&[&key]), "x-amp-exp-flag-keys").unwrap();
                for alphabet in [&URL_SAFE_NO_PAD, &STANDARD_NO_PAD] {
                    let json = alphabet.decode(&sent).expect(&key);
                    assert_eq!(serde_json::from_slice::<Vec<String>>(&json).unwrap(), [&*key]);
                }
            }
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
            let template = Template::new(url, "key").unwrap();
            let text = written(&template, b"{}", &FetchOptions::default());
            assert!(text.contains(&format!("\r\nhost: {host}\r\n")), "{url}: {text}");
        }
    }

    #[test]
    fn a_large_body_follows_its_head_and_a_small_one_is_in_one_piece_with_it() {
        let template = Template::new("http://host", "key").unwrap();
        let mut out = Zeroizing::default();
        for (bytes, joined) in [(JOINED_BYTES, true), (JOINED_BYTES + 1, false)] {
            let body = vec![b'x'; bytes];
            let rest = template.request(&body, &FetchOptions::default(), &mut out);
            assert_eq!(rest.is_empty(), joined, "{bytes}");
            let whole = [&out[..], rest].concat();
            assert!(whole.ends_with(&[b"\r\n\r\n", &body[..]].concat()), "{bytes}");
        }
    }

    #[test]
    fn a_request_is_written_into_room_that_is_there_so_that_no_copy_of_the_key_is_left() {
        let options = with_keys(&[&"k".repeat(8000)]);
        let template = Template::new("http://host", &"key".repeat(1000)).unwrap();
        let mut out = Zeroizing::default();
        template.request(&vec![b'x'; JOINED_BYTES], &options, &mut out);
        let room = out.capacity();
        template.request(&vec![b'x'; JOINED_BYTES], &options, &mut out);
        assert_eq!(out.capacity(), room);
        assert!(out.len() <= room - 32, "the room is counted with some to spare");
    }

    #[test]
    fn the_path_is_added_to_the_base() {
        let template = Template::new("http://host:1/base", "key").unwrap();
        assert_eq!(template.uri(), "http://host:1/base/sdk/v2/vardata?v=0");
    }
}
