//! One way through all faults: what is done in each, and what must be true of it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use mock_service::{Answer, MockService, Script};
use serde_json::{Value, json};

use crate::catalogue::KEPT;
use crate::fault::{Dice, Fault, Gets, Scene};
use crate::support::PROMISE;
use crate::victim::{Came, Holdings, Programs, Victim, Way};

/// How often a fetch may be late before it counts: the machine also does other things, and whatever
/// is not bounded is always late.
const TRIES: usize = 10;

/// How a fault went, this way.
pub enum Outcome {
    Passed { came: Came, next: Came },
    Failed(String),
    Excepted,
}

impl Outcome {
    pub fn has_passed(&self) -> bool {
        matches!(self, Outcome::Passed { .. })
    }

    pub fn has_failed(&self) -> bool {
        matches!(self, Outcome::Failed(_))
    }
}

/// What the fetch in the fault came to, and the next.
type Pair = (Came, Came);

/// Why one try of a fault is not good.
enum Trouble {
    Wrong(String),
    /// It took so many milliseconds; so did a timeout of what should have gone well.
    Late(f64),
}

impl From<String> for Trouble {
    fn from(why: String) -> Trouble {
        Trouble::Wrong(why)
    }
}

fn trouble(what: &str, came: &Came) -> Trouble {
    match came.status.as_str() {
        "EXP_ERR_TIMEOUT" => Trouble::Late(came.millis),
        _ => Trouble::Wrong(format!("{what}: {came:?}")),
    }
}

pub struct Lane<'a> {
    way: Way,
    programs: &'a Programs,
    seed: u64,
    victim: Option<Victim>,
    fetches: u64,
    #[cfg(feature = "count-gaps")]
    gaps: crate::support::gaps::Gaps,
}

impl<'a> Lane<'a> {
    pub fn new(way: Way, programs: &'a Programs, seed: u64) -> Lane<'a> {
        Lane {
            way,
            programs,
            seed,
            victim: None,
            fetches: 0,
            #[cfg(feature = "count-gaps")]
            gaps: Default::default(),
        }
    }

    /// From a place of its own, so that the lanes do not all meet the same flood at once.
    pub fn run_all(mut self, faults: &[Fault]) -> Vec<Outcome> {
        let begin = faults.len() * (self.way as usize) / Way::ALL.len();
        let (later, first) = faults.split_at(begin);
        let mut outcomes = self.run_some(first);
        let mut of_later = self.run_some(later);
        of_later.append(&mut outcomes);
        #[cfg(feature = "count-gaps")]
        print!("{}", self.gaps);
        of_later
    }

    fn run_some(&mut self, faults: &[Fault]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for fault in faults {
            #[cfg(not(feature = "count-gaps"))]
            let outcome = self.run(fault);
            #[cfg(feature = "count-gaps")]
            let outcome = self.run_counted(fault);
            if let Outcome::Failed(why) = &outcome {
                println!("FAILED: {}: {}: {why}", fault.name, self.way.name());
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    /// With a library that counts what it does between two looks at its bounds: too much is a failure.
    #[cfg(feature = "count-gaps")]
    fn run_counted(&mut self, fault: &Fault) -> Outcome {
        // What such a body costs when it is moved and freed in one go is not bounded yet.
        if fault.settings["max_response_bytes"].as_u64() > Some(8 << 20) {
            return self.run(fault);
        }
        let mut gaps = std::mem::take(&mut self.gaps);
        let mut outcome = Outcome::Excepted;
        let way = self.way;
        let name = format!("{}: {}", fault.name, way.name());
        let too_long = gaps.of(&name, || outcome = self.run(fault), || way.counted());
        self.gaps = gaps;
        match too_long.first() {
            Some(gap) if !outcome.has_failed() => Outcome::Failed(gap.to_string()),
            _ => outcome,
        }
    }

    fn run(&mut self, fault: &Fault) -> Outcome {
        if fault.is_excepted(self.way) {
            return Outcome::Excepted;
        }
        let outcome = match &fault.environment {
            Some(environment) => self.run_alone(fault, environment),
            None => self.run_together(fault),
        };
        outcome.map_or_else(Outcome::Failed, |(came, next)| Outcome::Passed { came, next })
    }

    fn run_alone(
        &mut self,
        fault: &Fault,
        environment: &[(String, String)],
    ) -> Result<Pair, String> {
        let mut victim = self.begin(environment)?;
        self.suffer(&mut victim, fault)
    }

    /// In a process that has served other faults, unless the last one failed.
    fn run_together(&mut self, fault: &Fault) -> Result<Pair, String> {
        let mut victim = match self.victim.take() {
            Some(victim) => victim,
            None => self.begin(&[])?,
        };
        let pair = self.suffer(&mut victim, fault)?;
        self.victim = Some(victim);
        Ok(pair)
    }

    /// A process that has fetched, and so has all that its language keeps for good.
    fn begin(&mut self, environment: &[(String, String)]) -> Result<Victim, String> {
        // So late that those at once are under way at once.
        let slow = Script::answers([Answer::service().delayed(100)]);
        let (service, size) = (MockService::start(slow), json!({"connection_pool_max_size": KEPT}));
        let mut victim = Victim::start(self.way, self.programs, environment);
        victim.open(&settings(&Scene::at(service.url()), &size, Duration::from_secs(10)))?;
        let first = self.fetch_well(&mut victim, "the first of the process");
        first.map_err(|_| "the first fetch of the process failed")?;
        let many = self.fetch_at_once(&mut victim, KEPT);
        many.map_err(|_| "the first fetches at once failed")?;
        victim.close()?;
        Ok(victim)
    }

    /// A try that is late is made again, with everything as it was.
    fn suffer(&mut self, victim: &mut Victim, fault: &Fault) -> Result<Pair, String> {
        let mut times = Vec::new();
        for _ in 0..TRIES {
            match self.suffer_one_scene(victim, fault) {
                Ok(pair) => return Ok(pair),
                Err(Trouble::Wrong(why)) => return Err(why),
                Err(Trouble::Late(millis)) => times.push(millis),
            }
            println!("late: {}: {}: {times:.1?} ms", fault.name, self.way.name());
        }
        Err(format!("always later than {PROMISE:?} after {:?}: {times:.1?} ms", fault.bound))
    }

    fn suffer_one_scene(&mut self, victim: &mut Victim, fault: &Fault) -> Result<Pair, Trouble> {
        let before = settled(victim);
        let scene = (fault.scene)(&mut Dice(fault.seed(self.seed)));
        victim.open(&settings(&scene, &fault.settings, fault.bound))?;
        let pair = self.suffer_once(victim, fault, &scene);
        (scene.lift)(victim); // also where it failed before that
        let closed = victim.close();
        let (came, next) = pair?;
        closed?;
        leaves(victim, before)?;
        (scene.check)()?;
        let is_late = came.millis > (fault.bound + PROMISE).as_secs_f64() * 1e3;
        if is_late { Err(Trouble::Late(came.millis)) } else { Ok((came, next)) }
    }

    fn suffer_once(
        &mut self,
        victim: &mut Victim,
        fault: &Fault,
        scene: &Scene,
    ) -> Result<Pair, Trouble> {
        if fault.is_kept {
            self.fetch_well(victim, "before the fault")?;
        }
        if fault.kept > 1 {
            self.fetch_at_once(victim, fault.kept)?;
        }
        (scene.fail)(victim);
        let name = self.next_name();
        let came = victim.fetch(&name, fault.user_bytes, &scene.during)?;
        (scene.lift)(victim);
        expect(fault, &name, &came)?;
        let names = |what: &&String| came.status == "EXP_OK" || came.message.contains(*what);
        if let Some(named) = scene.names.as_ref().filter(|named| !names(named)) {
            return Err(Trouble::Wrong(format!("does not name {named}: {came:?}")));
        }
        let next = self.fetch_well(victim, "the next")?;
        Ok((came, next))
    }

    fn fetch_well(&mut self, victim: &mut Victim, which: &str) -> Result<Came, Trouble> {
        let name = self.next_name();
        let came = victim.fetch(&name, 0, |_| ())?;
        if came.nonce.as_deref() == Some(&name) { Ok(came) } else { Err(trouble(which, &came)) }
    }

    fn fetch_at_once(&mut self, victim: &mut Victim, count: usize) -> Result<(), Trouble> {
        let users: Vec<_> = (0..count).map(|_| json!({"user_id": self.next_name()})).collect();
        let came = victim.obey(&json!({"users": users}))?;
        let is_well = came["well"] == count;
        if is_well { Ok(()) } else { Err(Trouble::Wrong(format!("before the fault: {came}"))) }
    }

    /// A name that no other fetch has, by which the service tells whose answer it is.
    fn next_name(&mut self) -> String {
        self.fetches += 1;
        format!("{} {}", self.way.name(), self.fetches)
    }
}

fn settings(scene: &Scene, of_fault: &Value, bound: Duration) -> Value {
    let mut settings = json!({
        "server_url": scene.url,
        "fetch_timeout_millis": bound.as_millis() as u64,
        "fetch_retries": 0,
        "connection_pool_max_size": 1,
    });
    for (name, value) in
        [&scene.settings, of_fault].into_iter().flat_map(|it| it.as_object()).flatten()
    {
        settings[name] = value.clone();
    }
    settings
}

fn expect(fault: &Fault, name: &str, came: &Came) -> Result<(), Trouble> {
    let is_own = came.nonce.as_deref() == Some(name);
    let right = match fault.gets {
        Gets::Variants => came.status == "EXP_OK" && (is_own || came.nonce.is_none()),
        Gets::Own => came.status == "EXP_OK" && is_own,
        Gets::Fails(status, http_status) => {
            (came.status.as_str(), came.http_status) == (status, http_status.into())
        }
        Gets::TimesOut(phase) => {
            let is_over = came.millis >= fault.bound.as_secs_f64() * 1e3 - 1.0;
            came.status == "EXP_ERR_TIMEOUT" && came.phase == phase && is_over
        }
        Gets::Either(statuses) => statuses.contains(&came.status.as_str()),
    };
    match fault.gets {
        _ if right => Ok(()),
        Gets::Variants | Gets::Own => Err(trouble("came to", came)),
        _ => Err(Trouble::Wrong(format!("came to {came:?}"))),
    }
}

/// What the process holds once nothing changes any more.
fn settled(victim: &Victim) -> Holdings {
    let mut holdings = victim.holdings();
    for _ in 0..20 {
        sleep(Duration::from_millis(5));
        let now = victim.holdings();
        if now == holdings {
            break;
        }
        holdings = now;
    }
    holdings
}

fn leaves(victim: &Victim, before: Holdings) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let now = victim.holdings();
        if now.descriptors <= before.descriptors && now.threads <= before.threads {
            return Ok(());
        }
        if began.elapsed() > Duration::from_secs(5) {
            let open = victim.open_descriptors();
            return Err(format!("left behind: {now:?}, before {before:?}; open are {open:?}"));
        }
        sleep(Duration::from_millis(5));
    }
}
