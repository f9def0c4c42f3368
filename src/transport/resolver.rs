//! From a host's name to its addresses, within the exchange's deadline.
//!
//! getaddrinfo(3) cannot be canceled, so it runs on a short-lived thread of its own and is left
//! behind when nobody can wait for it any longer. All who ask for one name at a time share one
//! lookup, and there are never more than [`MAX_LOOKUPS`] of these threads. The last good addresses
//! are kept: for a while instead of asking again, and beyond that for when asking fails or takes
//! too long.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::exchange_state::ExchangeState;
use crate::machine::cancel::Bell;
use crate::machine::catch::catch;
use crate::machine::clock;
use crate::machine::logger::{Level, Logger};
use crate::machine::sync::Mutex;
use crate::machine::sys::{self, Lookup};
use crate::rules::deadline::Deadline;
use crate::rules::metrics::Metrics;

/// Threads of one client that may be inside getaddrinfo at once, those left behind included.
pub const MAX_LOOKUPS: usize = 4;

/// How long addresses are used before the name is looked up again. getaddrinfo tells no lifetime;
/// a minute is what load balancers' names commonly have.
const FRESH_FOR: Duration = Duration::from_secs(60);

/// How long addresses are used whose renewal takes too long.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Enough for getaddrinfo with every module that nsswitch.conf may load.
const STACK_BYTES: usize = 512 << 10;

#[derive(Debug, Default)]
struct Host {
    addresses: Vec<IpAddr>,
    /// Those that were tried in vain when a connection was opened last.
    failed: Vec<IpAddr>,
    fresh_until: Option<Instant>,
    /// The number of the lookup under way, unless it was given up.
    looking: Option<u64>,
    /// How the last lookup failed, for those who waited for it.
    failure: Option<(u64, io::ErrorKind, String)>,
    /// That it failed although there are addresses to go on with, until a fetch has logged it.
    unsaid: Option<String>,
    waiting: Vec<Arc<Bell>>,
}

#[derive(Debug, Default)]
struct State {
    hosts: HashMap<String, Host>,
    threads: usize,
    lookups: u64,
}

pub struct Resolver {
    state: Mutex<State>,
    lookup: Arc<Lookup>,
    metrics: Arc<Metrics>,
    /// Weak, and used by fetches alone: the thread of a lookup may be left behind, and must neither
    /// call the host nor be the last to hold what is the host's once the client is closed.
    logger: Weak<Logger>,
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.state.lock().fmt(f)
    }
}

impl Resolver {
    /// Asks `lookup`.
    pub fn new(lookup: Arc<Lookup>, metrics: Arc<Metrics>, logger: &Arc<Logger>) -> Arc<Self> {
        let logger = Arc::downgrade(logger);
        Arc::new(Resolver { state: Mutex::default(), lookup, metrics, logger })
    }

    /// A resolver for a forked child. It takes over the last good addresses, unless a thread of
    /// the parent was at them: getaddrinfo itself may hang in a child, on a lock of the C library.
    pub fn in_child(self: &Arc<Self>, metrics: Arc<Metrics>) -> Arc<Self> {
        let known = self.state.try_lock().map(|state| {
            let keep = |(name, host): (&String, &Host)| {
                let addresses = host.addresses.clone();
                let fresh_until = host.fresh_until;
                (name.clone(), Host { addresses, fresh_until, ..Host::default() })
            };
            state.hosts.iter().map(keep).collect()
        });
        Arc::new(Resolver {
            state: Mutex::new(State { hosts: known.unwrap_or_default(), ..State::default() }),
            lookup: Arc::clone(&self.lookup),
            metrics,
            logger: Weak::clone(&self.logger),
        })
    }

    /// The addresses of `host`, the one that served last in front. Waits on `state`'s bell and
    /// fails as it does; a name that cannot be found fails with what the system says of it.
    pub fn resolve(
        self: &Arc<Self>,
        host: &str,
        state: &mut ExchangeState,
    ) -> io::Result<Vec<IpAddr>> {
        if let Some(literal) = literal(host) {
            return Ok(vec![literal]);
        }
        let began = clock::now();
        let patient_until = began + state.head_start(began);
        let mut awaited = None;
        loop {
            let until = match self.look(host, awaited, state.bell()) {
                Found::Addresses(addresses) => return Ok(addresses),
                Found::LastGood { addresses, warning } => {
                    self.warn(warning);
                    return Ok(addresses);
                }
                Found::Failure(kind, message) => return Err(io::Error::new(kind, message)),
                Found::Wait { lookup, known } if known.is_empty() => {
                    awaited = lookup;
                    Deadline::NEVER
                }
                // The lookup goes on; whoever comes after it has its answer.
                Found::Wait { known, .. } if patient_until <= clock::now() => {
                    self.make_do(host, awaited, state.bell());
                    return Ok(known);
                }
                Found::Wait { lookup, .. } => {
                    awaited = lookup;
                    Deadline::at(patient_until)
                }
            };
            if let Err(stopped) = state.sleep(until) {
                self.give_up(host, awaited, state.bell());
                return Err(stopped);
            }
        }
    }

    /// One look at what is known, for someone who waits for the lookup `awaited`.
    fn look(self: &Arc<Self>, host: &str, awaited: Option<u64>, bell: &Arc<Bell>) -> Found {
        let mut state = self.state.lock();
        let now = clock::now();
        let at_the_limit = state.threads >= MAX_LOOKUPS;
        let number = state.lookups + 1;
        let known = state.hosts.entry(host.to_owned()).or_default();
        known.waiting.retain(|waiting| !Arc::ptr_eq(waiting, bell));
        if known.fresh_until.is_some_and(|until| now < until) {
            return Found::Addresses(known.addresses.clone());
        }
        if let Some((lookup, kind, message)) = &known.failure
            && awaited == Some(*lookup)
        {
            if known.addresses.is_empty() {
                return Found::Failure(*kind, message.clone());
            }
            let warning = known.unsaid.take();
            return Found::LastGood { addresses: known.addresses.clone(), warning };
        }
        if known.looking.is_none() && at_the_limit && !known.addresses.is_empty() {
            return Found::Addresses(known.addresses.clone());
        }
        known.waiting.push(Arc::clone(bell));
        if known.looking.is_none() && !at_the_limit {
            known.looking = Some(number);
            let stale = known.addresses.clone();
            state.lookups = number;
            state.threads += 1;
            drop(state);
            self.begin(host, number);
            return Found::Wait { lookup: Some(number), known: stale };
        }
        Found::Wait { lookup: known.looking, known: known.addresses.clone() }
    }

    fn begin(self: &Arc<Self>, host: &str, number: u64) {
        self.metrics.lookups.increment();
        let (resolver, name) = (Arc::clone(self), host.to_owned());
        let thread = sys::spawn("exp-resolve", STACK_BYTES, move || {
            // The others are not to wait for a thread that is gone.
            let found = catch(|| (resolver.lookup)(&name))
                .unwrap_or_else(|defect| Err(io::Error::other(defect)));
            resolver.finish(&name, number, found);
        });
        if let Err(error) = thread {
            self.finish(host, number, Err(error));
        }
    }

    /// A lookup has returned, in time or not: its answer is good for everyone either way.
    fn finish(&self, host: &str, number: u64, found: io::Result<Vec<IpAddr>>) {
        let mut state = self.state.lock();
        state.threads -= 1;
        let known = state.hosts.entry(host.to_owned()).or_default();
        if known.looking == Some(number) {
            known.looking = None;
        }
        match found {
            Ok(mut addresses) => {
                keep_order(&mut addresses, known.addresses.first());
                addresses.sort_by_key(|address| known.failed.contains(address)); // stable
                known.addresses = addresses;
                known.fresh_until = Some(clock::now() + FRESH_FOR);
                known.failure = None;
            }
            Err(error) => {
                if !known.addresses.is_empty() {
                    known.unsaid = Some(format!(
                        "could not look up {host}: {error}; using its last known addresses"
                    ));
                }
                known.failure = Some((number, error.kind(), error.to_string()));
            }
        }
        // Those who wait for another name may have waited for one of the threads.
        let hosts = state.hosts.values_mut();
        let waiting: Vec<_> = hosts.flat_map(|host| std::mem::take(&mut host.waiting)).collect();
        drop(state);
        for bell in waiting {
            bell.ring();
        }
    }

    fn warn(&self, warning: Option<String>) {
        if let (Some(warning), Some(logger)) = (warning, self.logger.upgrade()) {
            logger.log(Level::Warn, || warning);
        }
    }

    /// Someone has waited long enough for newer addresses than those known, which are good for a
    /// little longer: not everyone is to wait for a lookup that hangs. It may still end, and count.
    fn make_do(&self, host: &str, awaited: Option<u64>, bell: &Arc<Bell>) {
        self.give_up(host, awaited, bell);
        if let Some(known) = self.state.lock().hosts.get_mut(host) {
            known.fresh_until = known.fresh_until.max(Some(clock::now() + ASKED_AGAIN_AFTER));
        }
    }

    /// Someone's time is up. A lookup that nobody waits for is left behind, so that whoever comes
    /// next starts another and does not wait for one that may hang for ever.
    fn give_up(&self, host: &str, awaited: Option<u64>, bell: &Arc<Bell>) {
        let mut state = self.state.lock();
        let Some(known) = state.hosts.get_mut(host) else { return };
        known.waiting.retain(|waiting| !Arc::ptr_eq(waiting, bell));
        if known.waiting.is_empty() && known.looking.is_some() && known.looking == awaited {
            known.looking = None;
            self.metrics.lookups_abandoned.increment();
        }
    }

    /// None of the addresses that were `tried` accepted a connection: whoever comes next asks again,
    /// since the name may have moved, and tries the others first.
    pub fn distrust(&self, host: &str, tried: &[IpAddr]) {
        if let Some(known) = self.state.lock().hosts.get_mut(host) {
            known.fresh_until = None;
            known.failed.clear();
            known.failed.extend_from_slice(tried);
            known.addresses.sort_by_key(|address| tried.contains(address)); // stable
        }
    }

    /// The address accepted a connection of which nothing came: the others come first the next time.
    pub fn demote(&self, host: &str, address: IpAddr) {
        if let Some(known) = self.state.lock().hosts.get_mut(host)
            && let Some(i) = known.addresses.iter().position(|&known| known == address)
        {
            known.addresses[i..].rotate_left(1);
        }
    }

    /// Puts the address that accepted a connection in front, for the next time.
    pub fn prefer(&self, host: &str, address: IpAddr) {
        if let Some(known) = self.state.lock().hosts.get_mut(host) {
            known.failed.clear();
            keep_order(&mut known.addresses, Some(&address));
        }
    }
}

enum Found {
    Addresses(Vec<IpAddr>),
    /// The lookup failed, and these are from an earlier one; to be warned of, if nobody has.
    LastGood {
        addresses: Vec<IpAddr>,
        warning: Option<String>,
    },
    Failure(io::ErrorKind, String),
    /// Not yet: the number of the lookup to wait for, if there is one, and what was known before.
    Wait {
        lookup: Option<u64>,
        known: Vec<IpAddr>,
    },
}

fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Moves `first`, if it is among them, to the front.
fn keep_order(addresses: &mut [IpAddr], first: Option<&IpAddr>) {
    if let Some(i) = addresses.iter().position(|address| Some(address) == first) {
        addresses[..=i].rotate_right(1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;
    use crate::machine::cancel::Stop;
    use crate::machine::sys::Descriptors;
    use crate::rules::deadline::{Deadline, Limit};
    use crate::transport::exchange_state::Shared;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn resolver(
        lookup: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
    ) -> (Arc<Resolver>, Arc<Metrics>) {
        let metrics = Arc::new(Metrics::default());
        let logger = Arc::new(Logger::default());
        (Resolver::new(Arc::new(lookup), Arc::clone(&metrics), &logger), metrics)
    }

    fn state(millis: u64) -> ExchangeState {
        let now = Instant::now();
        let shared = Shared::new(Descriptors::new(0));
        let mut state = ExchangeState::new(&shared, now).unwrap();
        let deadline = Deadline::after(now, Limit::millis(millis));
        assert!(state.begin(deadline, Stop::default(), now).is_none());
        state
    }

    /// Long enough that a test which waits for it has failed.
    const LONG: u64 = 20_000;

    #[test]
    fn a_literal_is_never_looked_up() {
        let (resolver, metrics) = resolver(|_| unreachable!());
        for (host, address) in [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")] {
            let found = resolver.resolve(host, &mut state(LONG)).unwrap();
            assert_eq!(found, [address.parse::<IpAddr>().unwrap()]);
        }
        assert_eq!(metrics.lookups.value(), 0);
    }

    #[test]
    fn all_who_ask_at_once_share_one_lookup_and_those_after_them_its_answer() {
        let asked = Arc::new(AtomicUsize::new(0));
        let (release, gate) = mpsc::channel::<()>();
        let (count, gate) = (Arc::clone(&asked), Mutex::new(gate));
        let (resolver, _) = resolver(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            gate.lock().recv().unwrap();
            Ok(vec![ADDRESS])
        });
        std::thread::scope(|scope| {
            for _ in 0..16 {
                let resolver = &resolver;
                scope.spawn(move || resolver.resolve("host", &mut state(LONG)).unwrap());
            }
            release.send(()).unwrap();
        });
        resolver.resolve("host", &mut state(LONG)).unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn lookups_that_hang_end_at_the_deadline_and_are_never_more_than_four() {
        let asked = Arc::new(AtomicUsize::new(0));
        let (hold, gate) = mpsc::channel::<()>();
        let (count, gate) = (Arc::clone(&asked), Mutex::new(gate));
        let (resolver, metrics) = resolver(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = gate.lock().recv(); // until the test is over
            Ok(vec![ADDRESS])
        });
        for _ in 0..10 {
            let error = resolver.resolve("host", &mut state(5)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(metrics.lookups.value(), MAX_LOOKUPS as u64);
        assert_eq!(metrics.lookups_abandoned.value(), MAX_LOOKUPS as u64);
        assert!(asked.load(Ordering::SeqCst) <= MAX_LOOKUPS);
        drop(hold);
    }

    #[test]
    fn a_failed_lookup_is_reported_and_the_next_fetch_asks_again() {
        let asked = AtomicUsize::new(0);
        let (resolver, _) = resolver(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => Err(io::Error::other("no such host")),
            _ => Ok(vec![ADDRESS]),
        });
        let error = resolver.resolve("host", &mut state(LONG)).unwrap_err();
        assert_eq!(error.to_string(), "no such host");
        assert_eq!(resolver.resolve("host", &mut state(LONG)).unwrap(), [ADDRESS]);
    }

    #[test]
    fn a_fetch_warns_once_that_it_goes_on_with_old_addresses_and_on_its_own_thread() {
        let warned = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&warned);
        let logger = Arc::new(Logger::new(
            Level::Warn,
            Arc::new(move |_, _: &str| sink.lock().push(std::thread::current().id())),
        ));
        let asked = AtomicUsize::new(0);
        let lookup = move |_: &str| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(vec![ADDRESS]),
            _ => Err(io::Error::other("no such host")),
        };
        let resolver = Resolver::new(Arc::new(lookup), Arc::default(), &logger);
        resolver.resolve("host", &mut state(LONG)).unwrap();
        for _ in 0..2 {
            resolver.state.lock().hosts.get_mut("host").unwrap().fresh_until = None;
            resolver.resolve("host", &mut state(LONG)).unwrap();
        }
        let me = std::thread::current().id();
        assert_eq!(*warned.lock(), [me, me], "once for each lookup that failed");
    }

    #[test]
    fn a_lookup_that_is_left_behind_holds_nothing_of_the_hosts() {
        let sink: Arc<crate::machine::logger::Sink> = Arc::new(|_, _: &str| {});
        let logger = Arc::new(Logger::new(Level::Warn, Arc::clone(&sink)));
        let (gate, hung) = std::sync::mpsc::channel::<()>();
        let hung = Mutex::new(hung);
        let lookup = move |_: &str| {
            let _ = hung.lock().recv();
            Ok(vec![ADDRESS])
        };
        let resolver = Resolver::new(Arc::new(lookup), Arc::default(), &logger);
        resolver.resolve("host", &mut state(5)).unwrap_err();
        drop((resolver, logger));
        assert_eq!(Arc::strong_count(&sink), 1);
        drop(gate);
    }

    #[test]
    fn the_last_good_addresses_serve_when_a_later_lookup_fails() {
        let asked = AtomicUsize::new(0);
        let (resolver, _) = resolver(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(vec![ADDRESS]),
            _ => Err(io::Error::other("no such host")),
        });
        resolver.resolve("host", &mut state(LONG)).unwrap();
        resolver.state.lock().hosts.get_mut("host").unwrap().fresh_until = None;
        assert_eq!(resolver.resolve("host", &mut state(LONG)).unwrap(), [ADDRESS]);
    }

    #[test]
    fn the_last_good_addresses_serve_while_a_later_lookup_hangs() {
        let asked = AtomicUsize::new(0);
        let (hold, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let (resolver, metrics) = resolver(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(vec![ADDRESS]),
            _ => {
                let _ = gate.lock().recv(); // until the test is over
                Ok(vec![])
            }
        });
        resolver.resolve("host", &mut state(LONG)).unwrap();
        resolver.state.lock().hosts.get_mut("host").unwrap().fresh_until = None;
        for _ in 0..3 {
            // A quarter of the time is what the first of them waits for the new answer.
            assert_eq!(resolver.resolve("host", &mut state(40)).unwrap(), [ADDRESS]);
        }
        assert_eq!((metrics.lookups.value(), metrics.lookups_abandoned.value()), (2, 1));
        resolver.state.lock().hosts.get_mut("host").unwrap().fresh_until = None;
        assert_eq!(resolver.resolve("host", &mut state(40)).unwrap(), [ADDRESS]);
        assert_eq!(metrics.lookups.value(), 3, "it is asked again");
        drop(hold);
    }

    #[test]
    fn the_address_that_served_last_comes_first() {
        let other = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));
        let (resolver, _) = resolver(move |_| Ok(vec![ADDRESS, other]));
        assert_eq!(resolver.resolve("host", &mut state(LONG)).unwrap(), [ADDRESS, other]);
        resolver.prefer("host", other);
        assert_eq!(resolver.resolve("host", &mut state(LONG)).unwrap(), [other, ADDRESS]);
    }

    #[test]
    fn an_address_of_which_nothing_came_comes_last() {
        let addresses = [1, 2, 3].map(|last| IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, last)));
        let [first, second, third] = addresses;
        let (resolver, _) = resolver(move |_| Ok(addresses.to_vec()));
        let resolved = || resolver.resolve("host", &mut state(LONG)).unwrap();
        assert_eq!(resolved(), addresses);
        resolver.demote("host", first);
        assert_eq!(resolved(), [second, third, first]);
        resolver.demote("host", third);
        assert_eq!(resolved(), [second, first, third]);
        resolver.demote("host", IpAddr::V6(std::net::Ipv6Addr::LOCALHOST));
        resolver.demote("other", second);
        assert_eq!(resolved(), [second, first, third]);
    }
}
