//! Going through a proxy: by setting and by environment, with its refusals and its failures.

mod support;

use std::io::Write;
use std::process::Command;

use experiment::client::Client;
use experiment::config::Config;
use experiment::machine::logger::Level;
use experiment::model::User;
use experiment::remote::options::FetchOptions;
use experiment::rules::error::{Error, Status};
use experiment::rules::metrics::CloseReason;
use mock_service::{Answer, MockService, Script, Step};
use support::proxy::{Conduct, Proxy};
use support::tls::{Authority, NAMES, TlsServer, read_request};
use support::{PATIENCE, client, config, fetch};

fn through(proxy_url: &str, service: &MockService) -> Config {
    let mut config = config(&service.url());
    config.set_proxy_url(proxy_url).unwrap();
    config
}

fn failure(client: &Client) -> Error {
    client.fetch(&User::new(), &FetchOptions::default()).result.expect_err("it must fail")
}

/// A server of TLS, and settings to reach it through a proxy.
fn tunneled(proxy_url: &str) -> (Authority, TlsServer, Config) {
    let authority = Authority::new();
    let server = TlsServer::start(authority.certify(&NAMES).server_config(rustls::ALL_VERSIONS));
    let mut config = config(&server.url());
    config.set_ca_file(authority.file()).unwrap();
    config.set_proxy_url(proxy_url).unwrap();
    (authority, server, config)
}

#[test]
fn a_request_for_http_is_forwarded_by_the_proxy_over_one_connection() {
    let service = MockService::start(Script::service());
    let proxy = Proxy::start(Conduct::Tunnel);
    let client = client(&through(&proxy.url(), &service));
    for _ in 0..5 {
        fetch(&client).unwrap();
    }
    let heads = proxy.heads();
    assert_eq!(heads.len(), 5);
    let address = service.address();
    let opening =
        format!("POST http://{address}/sdk/v2/vardata?v=0 HTTP/1.1\r\nhost: {address}\r\n");
    assert!(heads.iter().all(|head| head.starts_with(&opening)), "{heads:?}");
    assert!(!heads[0].contains("proxy-authorization"));
    assert_eq!(service.connections_accepted(), 1);
    assert_eq!(client.metrics().connections_opened.value(), 1);
    assert_eq!(client.metrics().connections_reused.value(), 4);
}

#[test]
fn a_tunnel_is_made_once_and_kept_and_its_proxy_never_sees_the_key() {
    let proxy = Proxy::start(Conduct::Tunnel);
    let (_authority, server, settings) = tunneled(&proxy.url());
    let client = client(&settings);
    for _ in 0..5 {
        fetch(&client).unwrap();
    }
    let heads = proxy.heads();
    assert_eq!(heads.len(), 1);
    let address = server.address;
    assert!(heads[0].starts_with(&format!("CONNECT {address} HTTP/1.1\r\nhost: {address}\r\n")));
    assert!(!heads[0].contains("proxy-authorization"));
    assert!(!heads[0].contains("Api-Key"), "the key is the service's alone");
    assert_eq!(client.metrics().connections_opened.value(), 1);
    assert_eq!(client.metrics().connections_reused.value(), 4);
}

#[test]
fn any_2xx_makes_a_tunnel_whatever_its_head_says_of_a_body() {
    let many = "x-name: value\r\n".repeat(25);
    for answer in [
        "HTTP/1.1 200 OK\r\n\r\n".to_owned(),
        "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
        "HTTP/1.0 299 Fine\r\nContent-Length: 7\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nContent-Length: 8\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
        "HTTP/1.1 100 Continue\r\na: b\r\n\r\nHTTP/1.1 200 OK\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\n{many}\r\n"),
    ] {
        let proxy = Proxy::start(Conduct::TunnelAfter(answer.clone().leak()));
        let (_authority, _server, settings) = tunneled(&proxy.url());
        fetch(&client(&settings)).unwrap_or_else(|error| panic!("{answer}: {error}"));
    }
}

#[test]
fn a_407_with_many_fields_is_final() {
    let many = "x-name: value\r\n".repeat(25);
    let answer = format!("HTTP/1.1 407 Proxy Authentication Required\r\n{many}\r\n");
    let proxy = Proxy::start(Conduct::Answer(answer.leak()));
    let (_authority, _server, mut settings) = tunneled(&proxy.url());
    settings.set_fetch_retries(2).unwrap();
    let error = failure(&client(&settings));
    assert_eq!((error.status, error.retryable), (Status::Network, false), "{error}");
    assert_eq!(proxy.heads().len(), 1);
}

#[test]
fn a_407_out_of_a_tunnel_is_the_services() {
    let authority = Authority::new();
    let config = authority.certify(&NAMES).server_config(rustls::ALL_VERSIONS);
    let server = TlsServer::start_with(config, |_, mut stream| {
        read_request(&mut stream);
        stream.write_all(b"HTTP/1.1 407 X\r\nContent-Length: 0\r\n\r\n").unwrap();
    });
    let mut settings = support::config(&server.url());
    settings.set_ca_file(authority.file()).unwrap();
    settings.set_proxy_url(&Proxy::start(Conduct::Tunnel).url()).unwrap();
    let error = failure(&client(&settings));
    assert_eq!((error.status, error.http_status), (Status::HttpStatus, Some(407)), "{error}");
}

#[test]
fn a_message_names_the_proxy_where_it_is_the_proxy_that_fails() {
    let silent = Proxy::start(Conduct::Silence);
    let refusing = MockService::refused_url();
    for (proxy_url, words) in [
        (silent.url(), "within 100 ms"),
        (refusing, "could not connect to the proxy"),
        ("http://proxy.test:3128".to_owned(), "host of the proxy proxy.test:3128"),
    ] {
        let (_authority, _server, mut tunnel) = tunneled(&proxy_url);
        let service = MockService::start(Script::service());
        let mut forward = through(&proxy_url, &service);
        for settings in [&mut tunnel, &mut forward] {
            settings.set_fetch_timeout(100).unwrap();
            settings.set_lookup(std::sync::Arc::new(|_| Err(std::io::ErrorKind::NotFound.into())));
            let error = failure(&client(settings));
            let name = proxy_url.strip_prefix("http://").unwrap();
            assert!(error.message.contains(&format!("the proxy {name}")), "{error}");
            assert!(error.message.contains(words), "{error}");
        }
    }
}

#[test]
fn https_goes_end_to_end_through_the_tunnel_by_name() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.certify(&NAMES).server_config(rustls::ALL_VERSIONS));
    let proxy = Proxy::start(Conduct::Tunnel);
    let mut settings = config(&server.named_url());
    settings.set_ca_file(authority.file()).unwrap();
    settings.set_proxy_url(&proxy.url()).unwrap();
    settings.set_lookup(std::sync::Arc::new(|name| panic!("{name} is the proxy's to look up")));
    let client = client(&settings);
    for _ in 0..3 {
        fetch(&client).unwrap();
    }
    assert!(
        proxy.heads()[0].starts_with(&format!("CONNECT service.test:{} ", server.address.port()))
    );
    assert_eq!(proxy.heads().len(), 1);
    assert_eq!(server.seen.names.lock().unwrap()[..], [Some("service.test".to_owned())]);
}

#[test]
fn the_service_is_looked_up_by_the_proxy_and_the_proxy_by_us() {
    let service = MockService::start(Script::service());
    let proxy = Proxy::start(Conduct::Tunnel);
    let mut settings = config(&support::named_url("http", "service.test", service.address()));
    let proxy_port = proxy.url().rsplit(':').next().unwrap().to_owned();
    settings.set_proxy_url(&format!("http://proxy.test:{proxy_port}")).unwrap();
    settings.set_lookup(std::sync::Arc::new(|name| {
        assert_eq!(name, "proxy.test");
        Ok(vec![support::LOCALHOST])
    }));
    fetch(&client(&settings)).unwrap();
}

#[test]
fn credentials_are_sent_as_the_url_spells_them() {
    let service = MockService::start(Script::service());
    // base64 of "user:pa:ss@1"
    let proxy = Proxy::start(Conduct::TunnelFor("Basic dXNlcjpwYTpzc0Ax"));
    let url = proxy.url_for("user:pa%3Ass%401");
    fetch(&client(&through(&url, &service))).unwrap();
    let (_authority, _server, settings) = tunneled(&url);
    fetch(&client(&settings)).unwrap();
}

#[test]
fn wrong_credentials_are_final_and_never_repeated_in_a_message_or_log() {
    let service = MockService::start(Script::service());
    let (_authority, server, _) = tunneled("http://proxy.test");
    for server_url in [service.url(), server.url()] {
        refuse_wrong_credentials(&server_url);
    }
    assert_eq!(service.connections_accepted(), 0);
}

fn refuse_wrong_credentials(server_url: &str) {
    let proxy = Proxy::start(Conduct::TunnelFor("Basic dXNlcjpyaWdodA=="));
    let lines = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    for credentials in ["user:hunter2", ""] {
        let url = match credentials {
            "" => proxy.url(),
            credentials => proxy.url_for(credentials),
        };
        let mut settings = config(server_url);
        settings.set_proxy_url(&url).unwrap();
        let sink = std::sync::Arc::clone(&lines);
        settings.set_log(
            Level::Debug,
            std::sync::Arc::new(move |_, line: &str| sink.lock().unwrap().push(line.to_owned())),
        );
        settings.set_fetch_retries(3).unwrap();
        let client = client(&settings);
        let error = failure(&client);
        assert_eq!(error.status, Status::Network, "{error}");
        assert!(!error.retryable, "the same credentials will not do later");
        assert!(
            error.message.contains("proxy") && error.message.contains("credentials"),
            "{error}"
        );
        assert_eq!(client.metrics().attempts.value(), 1);
        assert_eq!(error.http_status, None, "it is not the service's answer");
        let shown = format!("{error} {error:?} {client:?} {:?}", lines.lock().unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    assert!(!lines.lock().unwrap().is_empty());
}

#[test]
fn a_proxy_that_makes_no_tunnel_is_a_network_failure_that_is_tried_again() {
    for answer in [
        "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nbad",
        "HTTP/1.1 503 Service Unavailable\r\n\r\n",
        "HTTP/1.1 403 Forbidden\r\n\r\n",
    ] {
        let proxy = Proxy::start(Conduct::Answer(answer));
        let (_authority, _server, mut settings) = tunneled(&proxy.url());
        settings.set_fetch_retries(1).unwrap();
        settings.set_fetch_retry_backoff_min(0).unwrap();
        let client = client(&settings);
        let error = failure(&client);
        assert_eq!(error.status, Status::Network, "{error}");
        assert!(error.retryable);
        assert!(error.message.contains("proxy"), "{error}");
        assert!(error.message.contains(&answer[9..12]), "{error}");
        assert_eq!(proxy.heads().len(), 2);
        assert_eq!(client.metrics().connections_closed(CloseReason::Failed), 2);
        proxy.behave(Conduct::Tunnel);
        fetch(&client).unwrap();
    }
}

#[test]
fn a_proxy_that_talks_nonsense_or_leaves_is_a_failure_of_its_own() {
    let service = MockService::start(Script::service());
    for answer in ["", "HTTP/1.1 200 OK\r\n", "SSH-2.0-OpenSSH_9.6\r\n\r\n", "\u{0}\u{1}\r\n\r\n"] {
        let proxy = Proxy::start(Conduct::Answer(answer));
        let client = client(&through(&proxy.url(), &service));
        let error = failure(&client);
        println!("{answer:?}: {error}");
        assert!(matches!(error.status, Status::Network | Status::InvalidResponse), "{error}");
        assert!(error.retryable, "{error}");
        assert_eq!(client.metrics().stale_repeats.value(), 0);
    }
}

#[test]
fn what_a_proxy_sends_behind_its_answer_is_not_the_services() {
    let proxy = Proxy::start(Conduct::TunnelAfter(
        "HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    ));
    let (_authority, _server, settings) = tunneled(&proxy.url());
    let error = failure(&client(&settings));
    assert_eq!(error.status, Status::Network, "{error}");
    assert!(error.message.contains("proxy"), "{error}");
}

#[test]
fn a_connection_through_a_proxy_that_was_cut_while_idle_is_nobodys_error() {
    let service = MockService::start(Script::service());
    let proxy = Proxy::start(Conduct::Tunnel);
    let client = client(&through(&proxy.url(), &service));
    for round in 1..=5 {
        fetch(&client).unwrap();
        proxy.cut();
        assert!(service.wait_until(PATIENCE, |seen| seen.connections_open == 0));
        fetch(&client).unwrap();
        assert_eq!(client.metrics().attempts.value(), 2 * round);
        proxy.cut();
    }
    assert_eq!(client.metrics().fetches_ok.value(), 10);
}

#[test]
fn a_service_that_ends_a_kept_connection_through_a_proxy_is_asked_again_within_the_attempt() {
    let service = MockService::start(Script::service());
    let proxy = Proxy::start(Conduct::Tunnel);
    let client = client(&through(&proxy.url(), &service));
    for end in [Step::Close, Step::Reset] {
        fetch(&client).unwrap();
        let repeats = client.metrics().stale_repeats.value();
        service.set_script(Script::answers([Answer::steps([end]), Answer::service()]));
        let fetched = fetch(&client).unwrap();
        assert_eq!((fetched.attempts, fetched.timings.reused), (1, false));
        assert_eq!(client.metrics().stale_repeats.value(), repeats + 1);
    }
}

#[test]
fn a_proxy_where_nothing_listens_is_a_network_failure() {
    let service = MockService::start(Script::service());
    let error = failure(&client(&through(&MockService::refused_url(), &service)));
    assert_eq!(error.status, Status::Network, "{error}");
    assert_eq!(service.connections_accepted(), 0, "there is no way around the proxy");
}

#[test]
fn a_proxy_of_another_kind_is_refused_when_the_client_is_created() {
    for url in ["socks5://127.0.0.1:1", "socks4://u:hunter2@127.0.0.1", "ftp://127.0.0.1"] {
        let report = in_child("http://127.0.0.1:1", &[("ALL_PROXY", url)], &[]);
        assert!(report.starts_with("refused InvalidArgument"), "{url}: {report}");
        assert!(!report.contains("hunter2"), "{report}");
    }
}

/// Which way a child process with these variables goes to the service.
fn in_child(url: &str, variables: &[(&str, &str)], options: &[&str]) -> String {
    let test = std::env::current_exe().unwrap();
    let mut child = Command::new(test);
    child.args(["--exact", "a_child_process_reports_which_way_it_went", "--nocapture"]);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUEST_METHOD"] {
        child.env_remove(name).env_remove(name.to_lowercase());
    }
    child.env("EXP_TEST_URL", url).env("EXP_TEST_OPTIONS", options.join(" "));
    let output = child.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.split_once("child: "));
    line.unwrap_or_else(|| panic!("no report in {text}")).1.to_owned()
}

/// What [`in_child`] runs, with an environment of its own. Without one, there is nothing to report.
#[test]
fn a_child_process_reports_which_way_it_went() {
    let Ok(url) = std::env::var("EXP_TEST_URL") else { return };
    let mut settings = Config::default();
    settings.set_server_url(&url).unwrap();
    settings.set_fetch_timeout(PATIENCE.as_millis() as u64).unwrap();
    settings.set_lookup(std::sync::Arc::new(|_| Ok(vec![support::LOCALHOST])));
    let options = std::env::var("EXP_TEST_OPTIONS").unwrap();
    if options.contains("ignore") {
        settings.set_use_environment_proxy(false);
    }
    let client = match Client::new("key", &settings) {
        Ok(client) => client,
        Err(error) => return println!("\nchild: refused {:?}: {error}", error.status),
    };
    match fetch(&client) {
        Ok(_) => println!("\nchild: fetched"),
        Err(error) => println!("\nchild: failed {:?}: {error}", error.status),
    }
}

/// Whether a child with these variables goes through the proxy, for a service that it names so.
fn goes_through(host: &str, variables: &[(&str, &str)], options: &[&str]) -> bool {
    let service = MockService::start(Script::service());
    let proxy = Proxy::start(Conduct::Tunnel);
    let url = support::named_url("http", host, service.address());
    let port = service.address().port().to_string();
    let variables: Vec<(&str, String)> = variables
        .iter()
        .map(|(name, value)| (*name, value.replace("PROXY", &proxy.url()).replace("PORT", &port)))
        .collect();
    let borrowed: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(in_child(&url, &borrowed, options), "fetched");
    assert_eq!(service.requests_total(), 1);
    !proxy.heads().is_empty()
}

#[test]
fn the_environments_proxy_is_used() {
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        assert!(goes_through("service.test", &[(name, "PROXY")], &[]), "{name}");
    }
    assert!(!goes_through("service.test", &[], &[]));
    assert!(!goes_through("service.test", &[("HTTPS_PROXY", "PROXY")], &[]), "it is for https");
}

#[test]
fn the_environment_is_ignored_when_told_so() {
    assert!(!goes_through("service.test", &[("HTTP_PROXY", "PROXY")], &["ignore"]));
    let nonsense = in_child(&MockService::refused_url(), &[("HTTP_PROXY", "::")], &["ignore"]);
    assert!(nonsense.starts_with("failed Network"), "{nonsense}");
}

#[test]
fn http_proxy_is_ignored_where_a_request_may_have_set_it() {
    let cgi = ("REQUEST_METHOD", "GET");
    assert!(!goes_through("service.test", &[("HTTP_PROXY", "PROXY"), cgi], &[]));
    assert!(goes_through("service.test", &[("http_proxy", "PROXY"), cgi], &[]));
}

#[test]
fn no_proxy_names_what_goes_directly_in_each_of_its_forms() {
    let proxy = ("HTTP_PROXY", "PROXY");
    for (list, host, through) in [
        ("*", "service.test", false),
        ("service.test", "service.test", false),
        ("SERVICE.test", "service.TEST", false),
        (".test", "service.test", false),
        ("*.test", "service.test", false),
        ("test", "service.test", false),
        ("other.test,service.test", "service.test", false),
        ("other.test, service.test", "service.test", false),
        ("service.test:PORT", "service.test", false),
        ("127.0.0.1", "127.0.0.1", false),
        ("127.0.0.0/8", "127.0.0.1", false),
        ("10.0.0.0/8", "127.0.0.1", true),
        ("service.test:1", "service.test", true),
        ("ice.test", "service.test", true),
        ("other.test", "service.test", true),
        ("", "service.test", true),
    ] {
        let went = goes_through(host, &[proxy, ("NO_PROXY", list)], &[]);
        assert_eq!(went, through, "NO_PROXY={list} for {host}");
    }
}

#[test]
fn an_environment_that_cannot_be_used_is_refused_without_its_password() {
    for value in ["http://user:hunter2@", "http://u:hunter2@ho st:1", "://user:hunter2@x"] {
        let report = in_child("http://127.0.0.1:1", &[("HTTP_PROXY", value)], &[]);
        assert!(report.starts_with("refused InvalidArgument"), "{value}: {report}");
        assert!(!report.contains("hunter2"), "{report}");
    }
}
