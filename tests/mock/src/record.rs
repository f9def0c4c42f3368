//! What was seen.

use serde::Serialize;

use crate::bytes::Bytes;
use crate::request::Request;
use crate::script::Keep;

/// What a service has seen since it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Record {
    /// How many connections were accepted.
    pub connections_accepted: usize,
    /// How many of them are open: neither side has ended them.
    pub connections_open: usize,
    /// How many were open at once, at most.
    pub connections_open_max: usize,
    /// How many requests arrived, malformed ones among them.
    pub requests_total: usize,
    /// The requests, by number, as far as the script keeps them. One is here when it has arrived as
    /// far as its answer waits for.
    pub requests: Vec<Request>,
}

impl Record {
    pub(crate) fn add(&mut self, request: &Request, keep: Keep) {
        self.requests_total += 1;
        let kept = match keep {
            Keep::Everything => request.clone(),
            Keep::Heads => Request { body: Bytes::default(), ..request.clone() },
            Keep::Nothing => return,
        };
        // A request whose body is slow is overtaken by those that arrive later.
        let place = self.requests.partition_point(|other| other.number < kept.number);
        self.requests.insert(place, kept);
    }

    /// Adds what was read of the request after it was answered.
    pub(crate) fn complete(&mut self, request: &Request, keep: Keep) {
        let find = |other: &Request| other.number.cmp(&request.number);
        if let (Ok(place), Keep::Everything) = (self.requests.binary_search_by(find), keep) {
            self.requests[place].clone_from(request);
        }
    }
}
