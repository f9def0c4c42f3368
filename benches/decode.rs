//! What it costs to take a body in, beside what serde_json takes to parse it into a structure that
//! borrows from it: `decode ours|serde COUNT FILE` prints `DRIVER ns_per_body`.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use experiment::model::{Checkpoint, Variants};
use serde::Deserialize;
use serde_json::value::RawValue;

/// As a program would have it that wants the texts of a variant and no more.
#[derive(Deserialize)]
struct Borrowed<'a> {
    key: Option<&'a str>,
    value: Option<&'a str>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

fn main() {
    // `cargo bench` adds an argument of its own.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let [driver, count, file] = &arguments[..] else {
        println!("usage: decode ours|serde COUNT FILE; `make bench` runs it");
        return;
    };
    let body = std::fs::read(file).expect("FILE can be read");
    let count: u32 = count.parse().expect("COUNT is a number");
    match driver.as_str() {
        "ours" => measure(driver, count, &body, ours),
        "serde" => measure(driver, count, &body, with_serde),
        _ => panic!("no such driver"),
    }
}

/// Each body is a copy, as one that was read: ours keeps it, serde_json's structure needs it kept.
fn measure(driver: &str, count: u32, body: &[u8], decode: fn(Vec<u8>) -> usize) {
    let began = Instant::now();
    for _ in 0..count {
        black_box(decode(body.to_vec()));
    }
    println!("{driver} {:.0}", began.elapsed().as_nanos() as f64 / f64::from(count));
}

fn ours(body: Vec<u8>) -> usize {
    let decoded = Variants::decode(body, Checkpoint::unhurried()).expect("the body is an answer");
    black_box(&decoded.variants).len()
}

fn with_serde(body: Vec<u8>) -> usize {
    let variants: HashMap<&str, Borrowed> =
        serde_json::from_slice(&body).expect("the body is an answer");
    let texts = |it: &Borrowed| {
        let json = [it.payload, it.metadata].into_iter().flatten().map(RawValue::get);
        [it.key, it.value].into_iter().flatten().chain(json).map(str::len).sum::<usize>()
    };
    variants.values().map(texts).sum()
}
