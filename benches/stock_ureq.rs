//! The same fetch by ureq as it comes, with nothing of this library: what `make bench` compares
//! with. `stock_ureq COUNT URL [CA_FILE]` prints `ureq p50_us p99_us p99.9_us cpu_us`.

use std::time::{Duration, Instant};

const USER: &str = r#"{"user_id":"user-1234","device_id":"device-5678"}"#;

fn main() {
    // `cargo bench` adds an argument of its own.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let [count, url, ca_file @ ..] = &arguments[..] else {
        println!("usage: stock_ureq COUNT URL [CA_FILE]; `make bench` runs it");
        return;
    };
    let count: usize = count.parse().expect("COUNT is a number");
    let url = format!("{url}/sdk/v2/vardata?v=0");
    let agent = agent(ca_file.first());
    let fetch = || {
        let request = agent
            .post(&url)
            .header("Authorization", "Api-Key key")
            .header("Content-Type", "application/json;charset=utf-8");
        let mut answer = request.send(USER).expect("the fetch succeeds");
        let body = answer.body_mut().read_to_vec().expect("the body is there");
        serde_json::from_slice::<serde_json::Value>(&body).expect("the body is JSON")
    };
    fetch(); // connects
    let cpu = cpu_time();
    let mut took: Vec<Duration> = (0..count)
        .map(|_| {
            let began = Instant::now();
            fetch();
            began.elapsed()
        })
        .collect();
    let cpu = (cpu_time() - cpu).as_secs_f64() * 1e6 / count as f64;
    took.sort_unstable();
    let micros = |mille: usize| took[count * mille / 1000].as_secs_f64() * 1e6;
    println!("ureq {:.2} {:.2} {:.2} {cpu:.2}", micros(500), micros(990), micros(999));
}

fn agent(ca_file: Option<&String>) -> ureq::Agent {
    let mut config =
        ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(10))).proxy(None);
    if let Some(path) = ca_file {
        let pem = std::fs::read(path).expect("CA_FILE can be read");
        let authority = ureq::tls::Certificate::from_pem(&pem).expect("CA_FILE is a certificate");
        let roots = ureq::tls::RootCerts::new_with_certs(&[authority]);
        let tls = ureq::tls::TlsConfig::builder()
            .root_certs(roots)
            .unversioned_rustls_crypto_provider(rustls::crypto::ring::default_provider().into());
        config = config.tls_config(tls.build());
    }
    config.build().into()
}

/// Processor time of this process, from /proc/self/schedstat (proc(5)), in nanoseconds there.
fn cpu_time() -> Duration {
    let schedstat = std::fs::read_to_string("/proc/self/schedstat").expect("Linux has it");
    let nanos = schedstat.split_whitespace().next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanos.expect("it begins with the time on the processor"))
}
