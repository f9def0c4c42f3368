//! What a fault is: where it happens, how it begins and ends, and what a fetch must come to in it.

use std::any::Any;
use std::rc::Rc;
use std::time::Duration;

use mock_service::{MockService, Script};
use serde_json::{Value, json};

use crate::victim::{Victim, Way};

/// What the fetch in the fault must come to.
#[derive(Clone, Copy)]
pub enum Gets {
    /// Variants; if they tell for whom they are, then for this very user.
    Variants,
    /// The variants of this very user, and no others.
    Own,
    /// This status, and with HTTP_STATUS that of the answer.
    Fails(&'static str, u16),
    /// A timeout in this phase, not before its time is over.
    TimesOut(&'static str),
    /// One of these: it depends on who is faster.
    Either(&'static [&'static str]),
}

pub const NETWORK: Gets = Gets::Fails("EXP_ERR_NETWORK", 0);
pub const TLS: Gets = Gets::Fails("EXP_ERR_TLS", 0);
/// Whatever status its head had.
pub const INVALID: Gets = Gets::Either(&["EXP_ERR_INVALID_RESPONSE"]);

pub const fn http(status: u16) -> Gets {
    Gets::Fails("EXP_ERR_HTTP_STATUS", status)
}

type Act = Box<dyn Fn(&Victim)>;

/// One run of a fault for one victim: a server of its own, and what is done to it.
pub struct Scene {
    pub url: String,
    pub settings: Value,
    /// Begins the fault.
    pub fail: Act,
    /// While the fetch runs.
    pub during: Act,
    /// Ends the fault, after which all must be well.
    pub lift: Act,
    /// What the message of the failure must name.
    pub names: Option<String>,
    /// Anything else that must be true afterwards.
    pub check: Box<dyn Fn() -> Result<(), String>>,
    /// What must be there as long as the scene is.
    kept: Vec<Box<dyn Any>>,
}

impl Scene {
    /// At this URL, where nothing is wrong.
    pub fn at(url: impl Into<String>) -> Scene {
        Scene {
            url: url.into(),
            settings: json!({}),
            fail: Box::new(|_| ()),
            during: Box::new(|_| ()),
            lift: Box::new(|_| ()),
            names: None,
            check: Box::new(|| Ok(())),
            kept: Vec::new(),
        }
    }

    pub fn keeping(mut self, what: impl Any) -> Scene {
        self.kept.push(Box::new(what));
        self
    }

    pub fn with(mut self, settings: Value) -> Scene {
        self.settings = settings;
        self
    }

    /// The message of the failure names this.
    pub fn names(mut self, what: impl Into<String>) -> Scene {
        self.names = Some(what.into());
        self
    }

    /// Begins the fault; what was to begin before begins before.
    pub fn fails(mut self, act: impl Fn(&Victim) + 'static) -> Scene {
        self.fail = both(self.fail, act);
        self
    }

    /// Time for what the server does after an answer.
    pub fn waits(self, millis: u64) -> Scene {
        self.fails(move |_| std::thread::sleep(Duration::from_millis(millis)))
    }

    pub fn meanwhile(mut self, act: impl Fn(&Victim) + 'static) -> Scene {
        self.during = Box::new(act);
        self
    }

    /// Ends the fault; it may have ended already, or never begun.
    pub fn lifts(mut self, act: impl Fn(&Victim) + 'static) -> Scene {
        self.lift = both(self.lift, act);
        self
    }

    pub fn checks(mut self, check: impl Fn() -> Result<(), String> + 'static) -> Scene {
        self.check = Box::new(check);
        self
    }
}

fn both(first: Act, then: impl Fn(&Victim) + 'static) -> Act {
    Box::new(move |victim| {
        first(victim);
        then(victim);
    })
}

/// One row of the matrix.
pub struct Fault {
    pub kind: &'static str,
    pub name: String,
    pub gets: Gets,
    pub scene: Box<dyn Fn(&mut Dice) -> Scene + Send + Sync>,
    /// Within this a fetch must be back; the timeout of an attempt unless the settings say another.
    pub bound: Duration,
    pub settings: Value,
    /// Beyond the name.
    pub user_bytes: usize,
    /// Whether a fetch goes well before, so that the fault meets a connection that is kept.
    pub is_kept: bool,
    /// How many fetches that is, at once, each over a connection of its own.
    pub kept: usize,
    /// Whether something of it is drawn, so that its seed is worth telling.
    pub is_drawn: bool,
    /// Environment of a victim of its own; most share one.
    pub environment: Option<Vec<(String, String)>>,
    pub except: Vec<(Way, &'static str)>,
}

impl Fault {
    pub fn new(
        kind: &'static str,
        name: impl Into<String>,
        gets: Gets,
        scene: impl Fn(&mut Dice) -> Scene + Send + Sync + 'static,
    ) -> Fault {
        Fault {
            kind,
            name: name.into(),
            gets,
            scene: Box::new(scene),
            bound: Duration::from_millis(if let Gets::TimesOut(_) = gets { 300 } else { 1000 }),
            settings: json!({}),
            user_bytes: 0,
            is_kept: true,
            kept: 1,
            is_drawn: false,
            environment: None,
            except: Vec::new(),
        }
    }

    pub fn bound_millis(mut self, millis: u64) -> Fault {
        self.bound = Duration::from_millis(millis);
        self
    }

    pub fn settings(mut self, settings: Value) -> Fault {
        self.settings = settings;
        self
    }

    pub fn user_bytes(mut self, bytes: usize) -> Fault {
        self.user_bytes = bytes;
        self
    }

    /// The fault meets a connection that is new.
    pub fn on_a_new_connection(mut self) -> Fault {
        self.is_kept = false;
        self
    }

    /// The fault meets so many connections that are kept.
    pub fn kept(mut self, connections: usize) -> Fault {
        self.kept = connections;
        self
    }

    pub fn drawn(mut self) -> Fault {
        self.is_drawn = true;
        self
    }

    pub fn in_an_own_process(mut self, environment: &[(&str, &str)]) -> Fault {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        self.environment = Some(environment.iter().map(owned).collect());
        self
    }

    pub fn except(mut self, ways: &[Way], reason: &'static str) -> Fault {
        self.except.extend(ways.iter().map(|&way| (way, reason)));
        self
    }

    pub fn is_excepted(&self, way: Way) -> bool {
        self.except.iter().any(|(excepted, _)| *excepted == way)
    }

    /// The dice of this fault, the same for every way.
    pub fn seed(&self, run: u64) -> u64 {
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        self.name.bytes().fold(run ^ 0xcbf2_9ce4_8422_2325, hash) >> 32
    }
}

/// A server that plays this script once the fault begins, and before and afterwards is the service.
pub fn scripted(script: Script) -> Scene {
    scripted_after(Script::service(), script)
}

/// The same, playing the first script until the fault begins.
pub fn scripted_after(before: Script, script: Script) -> Scene {
    let service = Rc::new(MockService::start(before));
    let lifted = service.clone();
    Scene::at(service.url())
        .fails(move |_| service.set_script(script.clone()))
        .lifts(move |_| lifted.set_script(Script::service()))
}

/// Numbers that a seed decides (splitmix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}
