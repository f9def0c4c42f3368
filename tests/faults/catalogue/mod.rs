//! All faults, by what they befall.

mod answers;
mod bodies;
mod connections;
mod network;
mod process;
mod statuses;
mod tls;

use mock_service::{Answer, Script, Step};

use crate::fault::{Dice, Fault, Gets, scripted};
use crate::world::World;

pub use network::KEPT;
pub use process::file;

pub fn all(world: &World) -> Vec<Fault> {
    [
        network::resolver(world),
        network::connect(),
        tls::handshakes(),
        tls::proxies(world),
        connections::requests(),
        answers::heads(),
        bodies::bodies(),
        bodies::json(),
        statuses::statuses(),
        connections::kept(),
        process::process(world),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The server answers every request in these steps.
fn steps(kind: &'static str, name: &str, gets: Gets, steps: impl Into<Vec<Step>>) -> Fault {
    answers(kind, name, gets, vec![Answer::steps(steps.into())])
}

/// The server gives these answers, and the last one to all that follow.
fn answers(kind: &'static str, name: &str, gets: Gets, answers: Vec<Answer>) -> Fault {
    Fault::new(kind, name, gets, move |_| scripted(Script::answers(answers.clone())))
}

/// The server answers in steps that are drawn.
fn drawn(
    kind: &'static str,
    name: &str,
    gets: Gets,
    steps: impl Fn(&mut Dice) -> Vec<Step> + Send + Sync + 'static,
) -> Fault {
    let scene = move |dice: &mut Dice| scripted(Script::answers([Answer::steps(steps(dice))]));
    Fault::new(kind, name, gets, scene).drawn()
}

fn send(bytes: impl Into<mock_service::Bytes>) -> Step {
    Step::send(bytes)
}

/// A whole answer of nobody's variants.
const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{\"flag\":{\"key\":\"on\"}}";
const GOOD_BODY: &str = "{\"flag\":{\"key\":\"on\"}}";
const GOOD_HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 21\r\n\r\n";
const EVER: u64 = u64::MAX;
