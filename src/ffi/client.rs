//! Clients, and the fetch.

use std::cell::RefCell;
use std::ffi::c_char;
use std::sync::Arc;

use super::abi::facts::Facts;
use super::abi::failure::{Failure, exp_error};
use super::abi::guard;
use super::abi::handle::{Handle, Object, Out, hold};
use super::abi::settings::snapshot;
use super::abi::status::exp_status;
use super::abi::text::Chars;
use super::config::exp_config;
use super::options::exp_fetch_options;
use super::text::exp_text;
use super::user::exp_user;
use super::variants::{Fetched, exp_variants};
use crate::client::{self, Client};
use crate::config;
use crate::machine::catch::catch;
use crate::machine::logger::{Level, Logger};
use crate::rules::error::{Error, Status};
use crate::tag::Tag;

/// Fetches variants over a bounded pool of connections.
pub struct exp_client {
    _opaque: [u8; 0],
}

impl Object for exp_client {
    type Body = Client;
    const TAG: Tag = Tag::CLIENT;
    const NAME: &'static str = "exp_client";
    const ARGUMENT: &'static str = "client";

    fn given_up(client: &Client) {
        client.begin_close();
    }
}

/// The formats of exp_client_metrics.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum exp_metrics_format {
    /// One JSON object; times are in seconds.
    EXP_METRICS_JSON = 0,
    /// OpenMetrics text, version 1.0.0.
    EXP_METRICS_OPENMETRICS = 1,
}

/// Creates a client for a server deployment key; the caller owns it. `config` may be NULL for the
/// defaults; if it refused a value before, this fails. `client_out` must not be NULL. Reads the
/// environment and the ca_file if needed; opens no connection and starts no thread. Anytime; reads
/// `config` like a Getter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_client_new(
    api_key: *const c_char,
    config: *const exp_config,
    client_out: *mut *mut exp_client,
    error_out: *mut *mut exp_error,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe {
        let api_key = Chars::terminated(api_key);
        create(api_key, config, Out::new(client_out), Out::new(error_out))
    }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_client_new_n(
    api_key: *const c_char,
    length: usize,
    config: *const exp_config,
    client_out: *mut *mut exp_client,
    error_out: *mut *mut exp_error,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe {
        let api_key = Chars::counted(api_key, length);
        create(api_key, config, Out::new(client_out), Out::new(error_out))
    }
}

/// Fetches the variants of a user, on this thread.
/// `user` may be NULL for one about whom nothing is known, and so may `options`; if either refused
/// a value before, this fails. On EXP_OK the caller owns the set in *variants_out, which may be
/// empty. `variants_out` must not be NULL. A request may be sent, and so evaluated, twice if the
/// server closed the kept-alive connection meanwhile; with tracks_exposure only if none of it had
/// been sent.
/// Anytime; reads `user` and `options` like a Getter. Blocks no longer than
/// exp_config_worst_case_millis of the client's settings and the deadline of the options, not
/// counting the time spent in your callbacks. EXP_OK and every status except EXP_ERR_QUEUE_FULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_fetch_v2(
    client: *mut exp_client,
    user: *const exp_user,
    options: *const exp_fetch_options,
    variants_out: *mut *mut exp_variants,
    error_out: *mut *mut exp_error,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    let (out, error_out) = unsafe { (Out::new(variants_out), Out::new(error_out)) };
    guard::report(error_out, || {
        // SAFETY: the contract of the boundary (mod.rs).
        let (client, user, options) =
            unsafe { (hold(client.cast_const())?, snapshot(user)?, snapshot(options)?) };
        let out = out.required("variants_out")?;
        let fetched = inside(&client, || client.body.fetch(&user, &options))?;
        out.set(fetched_by(client.body.logger(), fetched)?);
        Ok(())
    })
}

/// Closes the client: refuses new fetches and ends those that wait, for a connection or for their
/// next attempt, both with EXP_ERR_CLOSED; waits for the others. Those that still run after
/// timeout_millis (0 to 86400000, or EXP_NO_LIMIT) are cut off with EXP_ERR_CLOSED, and this
/// returns EXP_ERR_TIMEOUT; call it again to wait for them.
/// On EXP_OK the client's threads are gone, except for name lookups that hang in getaddrinfo(3),
/// which never call you. Once no fetch runs, the threads get at least 100 ms to end, even beyond
/// the timeout; EXP_ERR_TIMEOUT if a destructor of a thread-local of yours takes longer. The caller
/// still owns the client. Called from a callback of a fetch with this client, it begins to close,
/// does not wait, and returns EXP_ERR_TIMEOUT.
/// Anytime. EXP_OK, EXP_ERR_TIMEOUT, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_client_close(
    client: *mut exp_client,
    timeout_millis: u64,
) -> exp_status {
    guard::status(|| {
        // SAFETY: the contract of the boundary (mod.rs).
        let client = unsafe { hold(client.cast_const()) }?;
        let limit = config::limit("timeout_millis", timeout_millis)?;
        if is_inside(&client) {
            client.body.begin_close();
            return Err(Error::new(Status::Timeout, "a fetch cannot wait for its own end"));
        }
        client.body.close(limit)
    })
}

/// Creates a text with the counters of the client in this process, as EXP_METRICS_JSON or
/// EXP_METRICS_OPENMETRICS; the caller owns it. `text_out` must not be NULL. Anytime; does not
/// block. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_client_metrics(
    client: *mut exp_client,
    format: i32,
    text_out: *mut *mut exp_text,
    error_out: *mut *mut exp_error,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    let (out, error_out) = unsafe { (Out::new(text_out), Out::new(error_out)) };
    guard::report(error_out, || {
        // SAFETY: the contract of the boundary (mod.rs).
        let client = unsafe { hold(client.cast_const()) }?;
        let out = out.required("text_out")?;
        out.set(metrics(&client.body, format)?);
        Ok(())
    })
}

/// # Safety
///
/// The contract of the boundary.
unsafe fn create(
    api_key: Chars,
    config: *const exp_config,
    out: Out<exp_client>,
    error_out: Out<exp_error>,
) -> exp_status {
    guard::report(error_out, || {
        let out = out.required("client_out")?;
        let api_key = api_key.required("api_key")?;
        // SAFETY: by this function's contract.
        let config = unsafe { snapshot(config) }?;
        out.set(Client::new(api_key, &config)?);
        Ok(())
    })
}

fn metrics(client: &Client, format: i32) -> Result<String, Error> {
    let (metrics, gauges) = (client.metrics(), client.gauges());
    match format {
        format if format == exp_metrics_format::EXP_METRICS_JSON as i32 => {
            Ok(metrics.to_json(gauges))
        }
        format if format == exp_metrics_format::EXP_METRICS_OPENMETRICS as i32 => {
            Ok(metrics.to_openmetrics(gauges))
        }
        _ => Err(Error::invalid_argument(format!(
            "format must be EXP_METRICS_JSON (0) or EXP_METRICS_OPENMETRICS (1), but is {format}"
        ))),
    }
}

/// What the fetch came to, as the host gets it.
pub fn fetched_by(logger: &Arc<Logger>, fetched: client::Fetched) -> Result<Fetched, Failure> {
    let client::Fetched { result, attempts, timings, until } = fetched;
    let facts = Facts { attempts, timings, until };
    match result {
        Ok(variants) => {
            variants.report_misuse_to(logger);
            Ok(Fetched { variants, facts })
        }
        Err(error) => Err(Failure { error, facts: Box::new(facts) }),
    }
}

thread_local! {
    /// The clients that this thread is inside of, by address.
    static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Runs a call that may call the host back; a defect in it is logged.
pub fn inside<T>(client: &Arc<Handle<exp_client>>, call: impl FnOnce() -> T) -> Result<T, Error> {
    let entered = INSIDE.try_with(|clients| clients.borrow_mut().push(address(client)));
    let result = catch(call);
    if entered.is_ok() {
        // At the very end of a thread the list may have gone meanwhile.
        let _ = INSIDE.try_with(|clients| clients.borrow_mut().pop());
    }
    result.inspect_err(|defect| {
        client.body.logger().log(Level::Error, || defect.message.clone().into_owned());
    })
}

fn is_inside(client: &Arc<Handle<exp_client>>) -> bool {
    INSIDE.try_with(|clients| clients.borrow().contains(&address(client))).unwrap_or(false)
}

fn address(client: &Arc<Handle<exp_client>>) -> usize {
    Arc::as_ptr(client).addr()
}
