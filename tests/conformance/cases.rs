//! The cases, read as strictly as their README describes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// What Rust gives itself as its library.
const LIBRARY: &str = concat!("libexperiment/", env!("CARGO_PKG_VERSION"));

pub type Object = Map<String, Value>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    #[serde(default, rename = "why")]
    _why: String,
    #[serde(default)]
    pub client: Object,
    pub server: Option<Box<RawValue>>,
    pub creation: Option<Object>,
    #[serde(default)]
    pub steps: Vec<Step>,
    pub requests: Option<Vec<Object>>,
    pub connections: Option<usize>,
    #[serde(default)]
    pub logs: Vec<Object>,
    #[serde(default)]
    pub except: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub enum Step {
    One(Act),
    AtOnce(Vec<Act>),
}

impl Step {
    pub fn acts(&self) -> &[Act] {
        match self {
            Step::One(act) => std::slice::from_ref(act),
            Step::AtOnce(acts) => acts,
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
pub enum Act {
    Fetch(Fetch),
    Close(Close),
    Sleep(Sleep),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fetch {
    pub user: Option<Object>,
    #[serde(default)]
    pub options: Object,
    #[serde(default)]
    pub fetch: Kind,
    #[serde(default)]
    pub begins_after_millis: u64,
    pub cancel_after_millis: Option<u64>,
    pub gets: Object,
    #[serde(default = "soon")]
    pub within_millis: u64,
    #[serde(default)]
    pub not_before_millis: u64,
}

fn soon() -> u64 {
    5000
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    #[default]
    V2,
    Deployed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Close {
    pub close: u64,
    #[serde(default)]
    pub begins_after_millis: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sleep {
    pub sleep: u64,
}

/// All cases of all files.
pub fn read() -> Vec<Case> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|kind| kind == "json")).collect();
    files.sort();
    let cases = files.into_iter().flat_map(|file| {
        let text = fs::read_to_string(&file).unwrap().replace("{library}", LIBRARY);
        serde_json::from_str::<Vec<Case>>(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    });
    cases.collect()
}

#[test]
fn there_are_at_least_90_cases_whose_names_are_unique() {
    let cases = read();
    let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), cases.len());
    assert!(cases.len() >= 90, "{}", cases.len());
}

#[test]
fn no_language_is_excepted_from_more_than_a_twentieth_of_the_cases() {
    let cases = read();
    for language in cases.iter().flat_map(|case| case.except.keys()) {
        let excepted = cases.iter().filter(|case| case.except.contains_key(language)).count();
        assert!(["c", "cpp", "go", "python", "ruby", "rust"].contains(&language.as_str()));
        assert!(excepted * 20 <= cases.len(), "{language} cannot express {excepted}");
    }
}

#[test]
fn every_outcome_is_variants_or_an_error_that_says_whether_it_may_pass() {
    for case in &read() {
        assert!(case.creation.is_some() == case.steps.is_empty(), "{}", case.name);
        let acts = case.steps.iter().flat_map(Step::acts);
        let gets = acts.filter_map(|act| match act {
            Act::Fetch(fetch) => Some(&fetch.gets),
            _ => None,
        });
        for gets in gets.chain(&case.creation) {
            let is_error = gets.contains_key("error") && gets.contains_key("retryable");
            assert!(gets.contains_key("variants") != is_error, "{}: {gets:?}", case.name);
        }
    }
}
