//! One history: a client, its callers, and what must be true of what they get.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use experiment::client::{Client, Fetched};
use experiment::config::{Config, NO_LIMIT};
use experiment::machine::cancel::Cancel;
use experiment::machine::clock;
use experiment::machine::completions::Completions;
use experiment::machine::sync::{Mutex, Parker};
use experiment::model::User;
use experiment::remote::options::FetchOptions;
use experiment::remote::pending::{Pending, Sink};
use experiment::rules::deadline::{Deadline, Limit};
use experiment::rules::error::{Error, Status};
use experiment::rules::metrics::{CloseReason, Gauges};
use experiment::rules::timings::Phase;
use shuttle::thread::{self, JoinHandle};

use crate::dice::Dice;

/// Milliseconds.
type Millis = u64;

/// What happens in a world, but for what its network does and who runs when.
#[derive(Clone, Debug)]
pub struct History {
    pub settings: Settings,
    pub callers: Vec<Caller>,
    /// When the client is closed, and how long that may take.
    pub closed: Option<(Millis, Millis)>,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pool: u32,
    timeout: Millis,
    acquire: Option<Millis>,
    retries: u32,
    backoff: Millis,
    budget: u32,
    deadline: Millis,
    max_pending: u32,
}

#[derive(Clone, Debug)]
pub struct Caller {
    way: Way,
    /// How long its callback takes.
    lingers: Millis,
    begins: Millis,
    deadline: Millis,
    canceled: Option<(Millis, By)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Blocking,
    Callback,
    Queue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Switch,
    Pending,
}

impl History {
    pub fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(!seed);
        let settings = Settings {
            pool: dice.one_of(&[1, 1, 2, 3]),
            timeout: dice.one_of(&[30, 50, 100]),
            acquire: dice.one_of(&[None, Some(0), Some(20), Some(NO_LIMIT)]),
            retries: dice.one_of(&[0, 0, 1, 2]),
            backoff: dice.one_of(&[0, 10, 40]),
            budget: dice.one_of(&[0, 0, 0, 1]),
            deadline: dice.one_of(&[NO_LIMIT, NO_LIMIT, 60, 120]),
            max_pending: dice.one_of(&[1, 2, 1024, 1024]),
        };
        let callers = (0..1 + dice.below(6)).map(|_| Caller::draw(&mut dice)).collect();
        let closed =
            dice.once_in(3).then(|| (dice.one_of(&[0, 20, 60, 100]), dice.one_of(&[0, 30, 1000])));
        History { settings, callers, closed }
    }

    /// The same with one thing less, each in turn.
    pub fn simpler(&self) -> Vec<History> {
        let fewer = (0..self.callers.len()).map(|at| {
            let mut simpler = self.clone();
            simpler.callers.remove(at);
            simpler
        });
        let uncanceled = (0..self.callers.len()).filter(|&at| self.callers[at].canceled.is_some());
        let uncanceled = uncanceled.map(|at| {
            let mut simpler = self.clone();
            simpler.callers[at].canceled = None;
            simpler
        });
        let open = self.closed.map(|_| History { closed: None, ..self.clone() });
        fewer.chain(uncanceled).chain(open).collect()
    }

    /// Plays it once, in the order that the scheduler chooses.
    pub fn play(&self) {
        clock::begin();
        let time = thread::spawn(clock::run);
        let world = Arc::new(World::new(self));
        let callers: Vec<_> = (0..self.callers.len())
            .map(|number| start(&world, move |world| world.call(number)))
            .collect();
        let closer = self.closed.map(|(at, limit)| {
            start(&world, move |world| {
                sleep_until(at);
                let began = clock::passed();
                let _ = world.client.close(Limit::millis(limit));
                assert!(clock::passed() - began <= millis(limit), "the close took too long");
            })
        });
        callers.into_iter().chain(closer).for_each(|thread| thread.join().unwrap());
        world.client.close(Limit::None).expect("nothing bounds this close");
        world.check();
        drop(world);
        clock::end();
        time.join().unwrap();
    }
}

impl Caller {
    fn draw(dice: &mut Dice) -> Self {
        let way = dice.one_of(&[Way::Blocking, Way::Callback, Way::Queue]);
        let by = if way == Way::Blocking || dice.once_in(2) { By::Switch } else { By::Pending };
        Caller {
            way,
            lingers: if way == Way::Callback { dice.one_of(&[0, 0, 20]) } else { 0 },
            begins: dice.one_of(&[0, 0, 10, 20, 50]),
            deadline: dice.one_of(&[NO_LIMIT, NO_LIMIT, 0, 20, 70]),
            canceled: dice.once_in(4).then(|| (dice.one_of(&[0, 10, 30, 50]), by)),
        }
    }
}

impl Settings {
    fn config(&self) -> Config {
        let mut config = Config::default();
        config.set_connection_pool_max_size(self.pool).unwrap();
        config.set_fetch_timeout(self.timeout).unwrap();
        config.set_fetch_retry_timeout(self.timeout).unwrap();
        if let Some(acquire) = self.acquire {
            config.set_fetch_pool_acquire_timeout(acquire).unwrap();
        }
        config.set_fetch_retries(self.retries).unwrap();
        config.set_fetch_retry_backoff_min(self.backoff).unwrap();
        config.set_fetch_retry_backoff_max(self.backoff).unwrap();
        config.set_fetch_retry_budget(self.budget).unwrap();
        config.set_fetch_deadline(self.deadline).unwrap();
        config.set_max_pending_fetches(self.max_pending).unwrap();
        config.set_use_environment_proxy(false);
        config
    }

    /// The longest that a fetch may take, by the table in the README; none if nothing bounds it.
    fn bound(&self, own_deadline: Millis) -> Option<Duration> {
        let attempts = u64::from(self.retries) + 1;
        let acquire = self.acquire.unwrap_or(self.timeout);
        let pauses = (attempts - 1) * self.backoff;
        let worst = (acquire != NO_LIMIT).then(|| attempts * (acquire + self.timeout) + pauses);
        let deadline = Some(self.deadline.min(own_deadline)).filter(|it| *it != NO_LIMIT);
        worst.into_iter().chain(deadline).min().map(millis)
    }
}

/// What a caller got, and when.
#[derive(Debug)]
struct Report {
    fetched: Result<Fetched, Error>,
    at: Duration,
}

struct World {
    history: History,
    client: Client,
    /// Of all callers that wait for a queue.
    completions: Arc<Completions<Arc<Pending>>>,
    reports: Vec<Mutex<Option<Report>>>,
    told: Vec<AtomicUsize>,
}

impl World {
    fn new(history: &History) -> Self {
        let count = history.callers.len();
        World {
            client: Client::new("key", &history.settings.config()).unwrap(),
            history: history.clone(),
            completions: Completions::new().unwrap(),
            reports: (0..count).map(|_| Mutex::new(None)).collect(),
            told: (0..count).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    fn report(&self, number: usize, fetched: Result<Fetched, Error>) {
        self.told[number].fetch_add(1, Ordering::Relaxed);
        *self.reports[number].lock() = Some(Report { fetched, at: clock::passed() });
    }

    fn call(self: &Arc<Self>, number: usize) {
        let caller = &self.history.callers[number];
        sleep_until(caller.begins);
        let cancel = Cancel::new();
        let mut options = FetchOptions::default();
        if caller.deadline != NO_LIMIT {
            options.deadline = Limit::millis(caller.deadline);
        }
        options.cancel = Some(Arc::clone(&cancel));
        let pending = self
            .sink(number)
            .map(|sink| self.client.prepare(&user(number), &options, number, sink).unwrap());
        let canceler = caller.canceled.map(|(after, by)| {
            let (at, pending) = (caller.begins + after, pending.clone());
            thread::spawn(move || {
                sleep_until(at);
                match (by, pending) {
                    (By::Pending, Some(pending)) => pending.cancel(),
                    _ => cancel.fire(),
                }
            })
        });
        match pending {
            None => self.report(number, Ok(self.client.fetch(&user(number), &options))),
            Some(pending) => match (self.client.start(&pending), caller.way) {
                (Err(error), _) => self.report(number, Err(error)),
                (Ok(()), Way::Queue) => self.take_one(),
                (Ok(()), _) => assert!(pending.wait(Deadline::NEVER)),
            },
        }
        canceler.into_iter().for_each(|thread| thread.join().unwrap());
    }

    fn sink(self: &Arc<Self>, number: usize) -> Option<Sink> {
        let Caller { way, lingers, .. } = self.history.callers[number];
        match way {
            Way::Blocking => None,
            Way::Queue => Some(Sink::Completions(Arc::clone(&self.completions))),
            Way::Callback => {
                let world = Arc::clone(self);
                Some(Sink::Callback(Box::new(move |fetched| {
                    world.report(number, Ok(fetched));
                    sleep(millis(lingers));
                })))
            }
        }
    }

    /// As many come out of the queue as callers wait for it, in whatever order.
    fn take_one(&self) {
        loop {
            assert!(self.completions.wait(Deadline::NEVER));
            if let Some(pending) = self.completions.next() {
                let fetched = pending.take().expect("it is over, and taken once");
                return self.report(pending.token, Ok(fetched));
            }
        }
    }

    fn check(&self) {
        let (mut fetches, mut refused) = (Vec::new(), 0);
        for (number, caller) in self.history.callers.iter().enumerate() {
            let report = self.reports[number].lock().take().expect("every fetch ends");
            assert_eq!(self.told[number].load(Ordering::Relaxed), 1, "every fetch ends once");
            self.check_time(caller, &report);
            self.check_result(number, caller, &report);
            refused += u64::from(report.fetched.is_err());
            fetches.extend(report.fetched);
        }
        self.check_books(&fetches, refused);
    }

    fn check_time(&self, caller: &Caller, Report { fetched, at }: &Report) {
        let took = *at - millis(caller.begins);
        let late = self.may_be_late(caller);
        if let Some(bound) = self.history.settings.bound(caller.deadline) {
            assert!(took <= bound + late, "{caller:?} took {took:?}, and {bound:?} is the bound");
        }
        if let (Ok(fetched), Duration::ZERO) = (fetched, late) {
            let pauses = millis(self.history.settings.backoff) * (fetched.attempts.max(1) - 1);
            let paused = fetched.timings.spent(Phase::Backoff);
            let cut_short = matches!(&fetched.result, Err(error) if !error.retryable);
            assert!(paused == pauses || cut_short, "{caller:?} paused for {paused:?}");
        }
        if let Some((after, _)) = caller.canceled {
            let bound = millis(after) + late;
            assert!(took <= bound, "{caller:?} was canceled, and took {took:?}: {fetched:?}");
        }
    }

    /// Who is told by a thread of the client's waits while that is in other callbacks.
    fn may_be_late(&self, caller: &Caller) -> Duration {
        match caller.way {
            Way::Blocking => Duration::ZERO,
            _ => self.history.callers.iter().map(|it| millis(it.lingers)).sum(),
        }
    }

    fn check_result(&self, number: usize, caller: &Caller, Report { fetched, at }: &Report) {
        let variants = match fetched {
            Ok(Fetched { result: Ok(variants), .. }) => variants,
            Ok(Fetched { result: Err(error), .. }) => return self.check_error(caller, error, *at),
            Err(error) => {
                let refused = [Status::QueueFull, Status::Closed].contains(&error.status);
                assert!(refused, "it was refused: {error}");
                return self.check_error(caller, error, *at);
            }
        };
        let payload = variants.get("flag").unwrap().payload_json().unwrap();
        let expected = format!(r#""user_id":"{number}""#);
        assert!(payload.contains(&expected), "{number} got {}", payload.as_str());
    }

    fn check_error(&self, caller: &Caller, error: &Error, at: Duration) {
        let settings = &self.history.settings;
        let workers_are_there =
            self.may_be_late(caller).is_zero() && self.history.callers.len() == 1;
        if error.phase == Some(Phase::Pool) && workers_are_there {
            let busy = format!("pool of {0}, {0} busy", settings.pool);
            assert!(error.message.contains(&busy), "it was refused a free connection: {error}");
        }
        match error.status {
            Status::Canceled => assert!(caller.canceled.is_some(), "nobody canceled it"),
            Status::Closed => {
                let (closed, _) = self.history.closed.expect("nobody closed the client");
                assert!(at >= millis(closed), "the client was not closed yet");
            }
            Status::QueueFull => {
                let asynchronous = self.history.callers.iter().filter(|it| it.way != Way::Blocking);
                assert!(asynchronous.count() > settings.max_pending as usize, "there was room");
            }
            Status::Timeout | Status::Network | Status::HttpStatus | Status::InvalidResponse => {}
            other => panic!("{other:?}: {error}"),
        }
    }

    /// What was counted is what the callers saw.
    fn check_books(&self, fetches: &[Fetched], refused: u64) {
        assert_eq!(self.client.gauges(), Gauges::default(), "somebody is left");
        let metrics = self.client.metrics();
        let ended = |status| {
            let of = |it: &&Fetched| it.result.as_ref().err().map(|error| error.status) == status;
            fetches.iter().filter(of).count() as u64
        };
        assert_eq!(metrics.fetches.value(), fetches.len() as u64);
        assert_eq!(Status::ALL.map(|it| metrics.refused(it)).iter().sum::<u64>(), refused);
        assert_eq!(metrics.fetches_ok.value(), ended(None));
        for status in Status::ALL {
            assert_eq!(metrics.failures(status), ended(Some(status)), "{status:?}");
        }
        let attempts: u64 = fetches.iter().map(|it| u64::from(it.attempts)).sum();
        assert_eq!(metrics.attempts.value(), attempts);
        assert_eq!(metrics.retries.value(), attempts - fetches.len() as u64);
        let closed: u64 = CloseReason::ALL.iter().map(|&why| metrics.connections_closed(why)).sum();
        assert_eq!(metrics.connections_opened.value(), closed, "a connection is left");
    }
}

fn start(world: &Arc<World>, run: impl FnOnce(&Arc<World>) + Send + 'static) -> JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || run(&world))
}

fn user(number: usize) -> User {
    let mut user = User::new();
    user.set_text("user_id", &number.to_string()).unwrap();
    user
}

fn millis(millis: Millis) -> Duration {
    Duration::from_millis(millis)
}

fn sleep_until(at: Millis) {
    sleep(millis(at).saturating_sub(clock::passed()));
}

fn sleep(duration: Duration) {
    Parker::new().park(Deadline::at(clock::now() + duration));
}
