//! Between the words of the cases and the types of the library.

use std::sync::{Arc, Mutex};

use experiment::client::Fetched;
use experiment::config::{Config, NO_LIMIT, Zone};
use experiment::machine::logger::Level;
use experiment::model::{Text, User, Variants};
use experiment::remote::options::FetchOptions;
use experiment::rules::deadline::Limit;
use experiment::rules::error::Error;
use experiment::rules::timings::Phase;
use mock_service::Request;
use serde_json::{Value, json};

use crate::cases::{Kind, Object};

/// Lines that were logged, each as its level and its message.
pub type Log = Arc<Mutex<Vec<Value>>>;

/// Settings for a server at `url`, with everything logged.
pub fn config(settings: &Object, url: &str, log: &Log) -> Result<Config, Error> {
    let log = Arc::clone(log);
    let sink = move |level: Level, message: &str| {
        let level = format!("{level:?}").to_lowercase();
        log.lock().unwrap().push(json!({"level": level, "message": message}));
    };
    let mut config = Config::default();
    config.set_use_environment_proxy(false);
    config.set_log(Level::Debug, Arc::new(sink));
    if !settings.contains_key("server_url") {
        config.set_server_url(url)?;
    }
    for (name, value) in settings.iter().filter(|(name, _)| *name != "api_key") {
        match value {
            Value::String(text) => set_text(&mut config, name, &in_place(text, url))?,
            Value::Number(_) => set_number(&mut config, name, value)?,
            Value::Bool(on) if name == "fetch_retry_jitter" => config.set_fetch_retry_jitter(*on),
            Value::Null if name == "server_url" => {}
            _ => panic!("an unknown setting: {name}: {value}"),
        }
    }
    Ok(config)
}

fn in_place(text: &str, url: &str) -> String {
    let host = url.trim_start_matches("http://");
    let port = host.rsplit(':').next().unwrap();
    text.replace("{url}", url).replace("{host}", host).replace("{port}", port)
}

fn set_text(config: &mut Config, name: &str, text: &str) -> Result<(), Error> {
    match (name, text) {
        ("server_url", url) => config.set_server_url(url)?,
        ("server_zone", "US") => config.set_server_zone(Zone::Us),
        ("server_zone", "EU") => config.set_server_zone(Zone::Eu),
        ("ca_file", path) => config.set_ca_file(path)?,
        ("proxy_url", url) => config.set_proxy_url(url)?,
        ("library", library) => config.set_library(library)?,
        (name, "EXP_NO_LIMIT") => set_number(config, name, &json!(NO_LIMIT))?,
        _ => panic!("an unknown setting: {name}: {text}"),
    }
    Ok(())
}

fn set_number(config: &mut Config, name: &str, value: &Value) -> Result<(), Error> {
    let number = value.as_u64().unwrap_or_default();
    let count = number.try_into().unwrap_or(u32::MAX);
    match name {
        "fetch_timeout_millis" => config.set_fetch_timeout(number),
        "fetch_pool_acquire_timeout_millis" => config.set_fetch_pool_acquire_timeout(number),
        "fetch_retries" => config.set_fetch_retries(count),
        "fetch_retry_timeout_millis" => config.set_fetch_retry_timeout(number),
        "fetch_retry_backoff_min_millis" => config.set_fetch_retry_backoff_min(number),
        "fetch_retry_backoff_max_millis" => config.set_fetch_retry_backoff_max(number),
        "fetch_retry_backoff_scalar" => {
            config.set_fetch_retry_backoff_scalar(value.as_f64().unwrap())
        }
        "fetch_retry_budget_percent" => config.set_fetch_retry_budget(count),
        "fetch_deadline_millis" => config.set_fetch_deadline(number),
        "connection_pool_max_size" => config.set_connection_pool_max_size(count),
        "connection_idle_timeout_millis" => config.set_connection_idle_timeout(number),
        "connection_max_lifetime_millis" => config.set_connection_max_lifetime(number),
        "max_pending_fetches" => config.set_max_pending_fetches(count),
        "max_response_bytes" => config.set_max_response_bytes(number),
        _ => panic!("an unknown setting: {name}: {value}"),
    }
}

/// The user with these fields; without any, one of whom nothing is known.
pub fn user(fields: Option<&Object>) -> User {
    fields.map_or(User::new(), |fields| User::from_json(&json!(fields).to_string()).unwrap())
}

pub fn options(chosen: &Object) -> FetchOptions {
    let mut options = FetchOptions::default();
    for (name, value) in chosen {
        match (name.as_str(), value) {
            ("tracks_assignment", Value::Bool(on)) => options.tracks_assignment = Some(*on),
            ("tracks_exposure", Value::Bool(on)) => options.tracks_exposure = Some(*on),
            ("flag_keys", Value::Array(keys)) => {
                keys.iter().for_each(|key| options.flag_keys.add(key.as_str().unwrap()).unwrap())
            }
            ("deadline_millis", Value::Number(millis)) => {
                options.deadline = Limit::millis(millis.as_u64().unwrap());
            }
            _ => panic!("an unknown option: {name}: {value}"),
        }
    }
    options
}

pub fn of_fetched(fetched: &Fetched, kind: Kind) -> Value {
    match (&fetched.result, kind) {
        (Ok(variants), Kind::V2) => of_variants(variants, fetched.attempts),
        (Ok(variants), Kind::Deployed) => {
            of_variants(&variants.filter_deployed(), fetched.attempts)
        }
        (Err(error), _) => of_error(error, fetched.attempts),
    }
}

fn of_variants(variants: &Variants, attempts: u32) -> Value {
    let text = |text: Option<Text>| text.map(|text| json!(text.as_str()));
    let parsed = |json: Option<Text>| json.map(|json| serde_json::from_str(&json).unwrap());
    let variants = variants.iter().map(|variant| {
        let fields = [
            ("key", text(variant.key())),
            ("value", text(variant.value())),
            ("payload", parsed(variant.payload_json())),
            ("metadata", parsed(variant.metadata_json())),
        ];
        let there = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        (variant.flag_key().as_str().to_owned(), Value::Object(there.collect()))
    });
    json!({"variants": Object::from_iter(variants), "attempts": attempts})
}

pub fn of_error(error: &Error, attempts: u32) -> Value {
    json!({
        "error": format!("EXP_ERR_{}", error.status.name().to_uppercase()),
        "retryable": error.retryable,
        "attempts": attempts,
        "http_status": error.http_status.unwrap_or(0),
        "retry_after_millis": error.retry_after.map_or(0, |time| time.as_millis() as u64),
        "phase": error.phase.map_or("none", Phase::name),
        "message": error.message,
    })
}

pub fn of_request(request: &Request) -> Value {
    let headers = request.headers.iter().map(|(name, value)| (name.to_lowercase(), json!(value)));
    json!({
        "method": request.method,
        "path": request.path,
        "headers": Object::from_iter(headers),
        "body": serde_json::from_slice::<Value>(&request.body).unwrap_or_default(),
    })
}

/// Whether every field is as expected; one that nobody knows never is.
pub fn is_as_expected(expected: &Object, came: &Value) -> bool {
    expected.iter().all(|(field, expected)| match (expected, &came[field.to_lowercase()]) {
        (Value::Array(parts), Value::String(text)) => {
            parts.iter().all(|part| text.contains(part.as_str().unwrap()))
        }
        (Value::Object(headers), came) if field == "headers" => is_as_expected(headers, came),
        (expected, came) => expected == came,
    })
}
