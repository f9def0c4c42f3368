//! Putting an answer in HTTP.

/// A well-formed response in one piece. Its length is computed, unless a header says otherwise.
pub(crate) fn well_formed<N, V>(status: u16, headers: &[(N, V)], body: &[u8]) -> Vec<u8>
where
    N: AsRef<str>,
    V: AsRef<str>,
{
    let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
    for (name, value) in headers {
        head += &format!("{}: {}\r\n", name.as_ref(), value.as_ref());
    }
    let names = || headers.iter().map(|(name, _)| name.as_ref());
    if !(is_bodiless(status) || names().any(says_length)) {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    head += "\r\n";
    [head.as_bytes(), body].concat()
}

fn is_bodiless(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}

fn says_length(name: &str) -> bool {
    name.eq_ignore_ascii_case("Content-Length") || name.eq_ignore_ascii_case("Transfer-Encoding")
}

fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        103 => "Early Hints",
        200 => "OK",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Unnamed",
    }
}
