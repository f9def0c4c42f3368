//! What the service is told to play. The format is described, with examples, in the README.

use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::bytes::Bytes;
use crate::response::well_formed;

/// What to play to the connections and the requests that come in. The empty script is the service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// The steps to play to the first, second, … connection accepted, before anything is read of
    /// it; the last list repeats. Without any, and after the steps, a connection is served.
    pub connections: Vec<Vec<Step>>,
    /// The answers to the first, second, … request to arrive, over all connections; the last one
    /// repeats. Without any, the service answers.
    pub answers: Vec<Answer>,
    /// How much of the requests is kept in the record.
    pub keep: Keep,
}

/// How much of the requests is kept. The counters always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Every request, whole.
    #[default]
    Everything,
    /// Every request without its body.
    Heads,
    /// No request: for load tests, which would fill the memory.
    Nothing,
}

/// What one request is answered with.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "AnswerForm")]
pub struct Answer {
    /// How much of the request is read before the steps are played.
    pub after: After,
    /// What is done, in this order. The next request is read afterwards.
    pub steps: Vec<Step>,
}

/// How much of a request is read before it is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum After {
    /// All of it.
    #[default]
    Body,
    /// Its head; the body is read after the answer.
    Head,
}

/// One thing to do to a connection.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Sends the bytes in one write.
    Send(Bytes),
    /// Sends the bytes so many times, as fast as the peer takes them.
    Repeat {
        /// What is sent.
        bytes: Bytes,
        /// How often.
        times: u64,
    },
    /// Sends the bytes one by one, so many milliseconds apart.
    Drip {
        /// What is sent.
        bytes: Bytes,
        /// The time from one byte to the next.
        every_millis: u64,
    },
    /// Does nothing for so many milliseconds.
    WaitMillis(u64),
    /// Answers as the service does.
    Service,
    /// Stays open and silent, reading nothing, until the peer leaves.
    Hold,
    /// Closes the connection in order, with a FIN.
    Close,
    /// Closes the connection with a reset.
    Reset,
}

impl Script {
    /// Answers as the service does.
    pub fn service() -> Script {
        Script::default()
    }

    /// Plays these answers, one to a request; the last one repeats.
    pub fn answers(answers: impl IntoIterator<Item = Answer>) -> Script {
        Script { answers: answers.into_iter().collect(), ..Script::default() }
    }

    /// Plays these steps, one list to a connection, before anything is read; the last list repeats.
    pub fn connections(mut self, openings: impl IntoIterator<Item = Vec<Step>>) -> Script {
        self.connections = openings.into_iter().collect();
        self
    }

    /// Keeps so much of the requests in the record.
    pub fn keep(mut self, keep: Keep) -> Script {
        self.keep = keep;
        self
    }
}

impl Answer {
    /// The answer of the service.
    pub fn service() -> Answer {
        Answer::steps([Step::Service])
    }

    /// A well-formed response.
    pub fn reply(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
        let response = well_formed(status, headers, &body.into());
        Answer::steps([Step::Send(response.into())])
    }

    /// A well-formed response of JSON: a `serde_json::Value`, or its text.
    pub fn json(status: u16, json: impl Display) -> Answer {
        Answer::reply(status, &[JSON], json.to_string())
    }

    /// Any steps.
    pub fn steps(steps: impl IntoIterator<Item = Step>) -> Answer {
        Answer { after: After::Body, steps: steps.into_iter().collect() }
    }

    /// The same so many milliseconds later.
    pub fn delayed(mut self, millis: u64) -> Answer {
        self.steps.insert(0, Step::WaitMillis(millis));
        self
    }

    /// The same without waiting for the request's body.
    pub fn after_head(mut self) -> Answer {
        self.after = After::Head;
        self
    }

    /// The same with one more step at the end.
    pub fn then(mut self, step: Step) -> Answer {
        self.steps.push(step);
        self
    }
}

impl Step {
    /// Sends the bytes in one write.
    pub fn send(bytes: impl Into<Bytes>) -> Step {
        Step::Send(bytes.into())
    }

    /// Sends the bytes so many times.
    pub fn repeat(bytes: impl Into<Bytes>, times: u64) -> Step {
        let bytes = bytes.into();
        Step::Repeat { bytes, times }
    }

    /// Sends the bytes one by one, so many milliseconds apart.
    pub fn drip(bytes: impl Into<Bytes>, every_millis: u64) -> Step {
        let bytes = bytes.into();
        Step::Drip { bytes, every_millis }
    }
}

pub(crate) const JSON: (&str, &str) = ("Content-Type", "application/json;charset=utf-8");

/// An answer as a script writes it: a response in short, or its steps.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerForm {
    #[serde(default)]
    after: After,
    #[serde(default)]
    delay_millis: u64,
    status: Option<u16>,
    #[serde(default)]
    headers: Vec<(String, String)>,
    /// Kept as it is written, so that a script can spell what no JSON library would.
    #[serde(default, deserialize_with = "present")]
    json: Option<Box<RawValue>>,
    body: Option<Bytes>,
    steps: Option<Vec<Step>>,
    #[serde(default)]
    then: Then,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Then {
    #[default]
    Keep,
    Close,
    Reset,
}

/// `null` is JSON to be sent, not an absent field.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

impl TryFrom<AnswerForm> for Answer {
    type Error = &'static str;

    fn try_from(mut form: AnswerForm) -> Result<Answer, &'static str> {
        let mut answer = match (form.steps.take(), form.is_response()) {
            (Some(_), true) => return Err("an answer is a response or steps, not both"),
            (Some(steps), false) => Answer::steps(steps),
            (None, true) => Answer::steps([Step::Send(form.response()?.into())]),
            (None, false) => Answer::service(),
        };
        answer.after = form.after;
        if form.delay_millis > 0 {
            answer = answer.delayed(form.delay_millis);
        }
        Ok(match form.then {
            Then::Keep => answer,
            Then::Close => answer.then(Step::Close),
            Then::Reset => answer.then(Step::Reset),
        })
    }
}

impl AnswerForm {
    fn is_response(&self) -> bool {
        self.status.is_some()
            || self.json.is_some()
            || self.body.is_some()
            || !self.headers.is_empty()
    }

    fn response(&mut self) -> Result<Vec<u8>, &'static str> {
        let status = self.status.unwrap_or(200);
        match (self.json.take(), self.body.take()) {
            (Some(_), Some(_)) => Err("a response has json or a body, not both"),
            (Some(json), None) => {
                if !self.names_header(JSON.0) {
                    self.headers.insert(0, (JSON.0.into(), JSON.1.into()));
                }
                Ok(well_formed(status, &self.headers, json.get().as_bytes()))
            }
            (None, body) => Ok(well_formed(status, &self.headers, &body.unwrap_or_default())),
        }
    }

    fn names_header(&self, wanted: &str) -> bool {
        self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted))
    }
}

/// A script being played: what comes next.
pub(crate) struct Playing {
    pub(crate) openings: Turns<Vec<Step>>,
    pub(crate) answers: Turns<Answer>,
    pub(crate) keep: Keep,
}

impl From<Script> for Playing {
    fn from(script: Script) -> Playing {
        Playing {
            openings: Turns::new(script.connections, Vec::new()),
            answers: Turns::new(script.answers, Answer::service()),
            keep: script.keep,
        }
    }
}

/// Takes one after the other; the last one repeats. Never empty.
pub(crate) struct Turns<T>(VecDeque<Arc<T>>);

impl<T> Turns<T> {
    fn new(list: Vec<T>, if_empty: T) -> Turns<T> {
        let mut turns: VecDeque<_> = list.into_iter().map(Arc::new).collect();
        if turns.is_empty() {
            turns.push_back(Arc::new(if_empty));
        }
        Turns(turns)
    }

    pub(crate) fn take(&mut self) -> Arc<T> {
        if self.0.len() > 1 {
            self.0.pop_front().expect("more than one is left")
        } else {
            self.0[0].clone()
        }
    }
}
