//! Calls of C, in any order that the contract allows: objects made, used and freed, live objects of
//! the wrong kind, NULL everywhere. Each byte of the input decides something. Nothing crashes, each
//! callback and each finalizer runs once, nothing is left behind.
#![no_main]

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use experiment::ffi::*;
use experiment_fuzz::service::{Service, refused_url};
use libfuzzer_sys::fuzz_target;

/// Objects at the same time; what is made beyond is freed at once.
const OBJECTS: usize = 16;
const CALLS: usize = 64;

static SERVICE: LazyLock<Service> = LazyLock::new(Service::start);
static REFUSED: LazyLock<String> = LazyLock::new(|| {
    let url = refused_url();
    // A client without settings would ask the real service.
    // SAFETY: nothing else runs in this process yet.
    unsafe { std::env::set_var("HTTPS_PROXY", &url) };
    url
});

static STARTED: AtomicUsize = AtomicUsize::new(0);
static TOLD: AtomicUsize = AtomicUsize::new(0);
static GIVEN: AtomicUsize = AtomicUsize::new(0);
static FINALIZED: AtomicUsize = AtomicUsize::new(0);

fuzz_target!(|input: &[u8]| {
    LazyLock::force(&REFUSED);
    LazyLock::force(&SERVICE);
    let threads = threads();
    let mut host = Host { input, objects: Vec::new() };
    for _ in 0..CALLS {
        if host.input.is_empty() {
            break;
        }
        // SAFETY: the host keeps to the contract of the header.
        unsafe { host.call() }
    }
    // SAFETY: as above.
    unsafe { host.leave() }
    until("callbacks", || TOLD.load(Ordering::SeqCst) == STARTED.load(Ordering::SeqCst));
    until("finalizers", || FINALIZED.load(Ordering::SeqCst) == GIVEN.load(Ordering::SeqCst));
    until("threads", || self::threads() == threads);
});

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(10), "never so: {what}");
        thread::yield_now();
    }
}

/// Not by their names, which a thread that has just been started has not got yet.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux").count()
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Config,
    Client,
    User,
    Options,
    Cancel,
    Completions,
    Pending,
    Variants,
    Error,
    Text,
}

struct Host<'i> {
    input: &'i [u8],
    objects: Vec<(Kind, *mut c_void)>,
}

const DAY: u64 = 86_400_000;

/// What a setting in milliseconds is tried with, none of which makes a fetch long.
const MILLIS: [u64; 8] = [0, 1, 2, 50, DAY + 1, u64::MAX - 1, 3, 1];

const TEXTS: [&CStr; 8] = [
    c"user_properties",
    c"groups",
    c"demo",
    c"{\"user_id\":\"u\",\"groups\":{\"a\":[\"b\"]}}",
    c"",
    c"\xff",
    c"null",
    c"[1,{\"a\":2}]",
];

impl Host<'_> {
    fn byte(&mut self) -> u8 {
        match self.input.split_off_first() {
            Some(byte) => *byte,
            None => 0,
        }
    }

    fn millis(&mut self) -> u64 {
        MILLIS[usize::from(self.byte() % 8)]
    }

    fn choice(&mut self) -> i32 {
        i32::from(self.byte() % 5) - 1
    }

    /// A text that ends with NUL, or none.
    fn text(&mut self) -> *const c_char {
        match usize::from(self.byte() % 9) {
            8 => ptr::null(),
            at => TEXTS[at].as_ptr(),
        }
    }

    /// A text of the input's own, or none. It ends where its memory ends.
    fn counted(&mut self) -> (Option<Box<[u8]>>, usize) {
        let length = usize::from(self.byte() % 32).min(self.input.len());
        let text = self.input.split_off(..length).unwrap_or_default();
        match self.byte() % 8 {
            0 => (None, 0),
            1 => (None, length),
            _ => (Some(text.into()), length),
        }
    }

    /// One of that kind, one of any, or NULL.
    fn some<T>(&mut self, kind: Kind) -> *mut T {
        let byte = self.byte();
        let at = usize::from(byte & 15);
        let all = self.objects.iter().filter(|object| byte & 0xc0 == 0xc0 || object.0 == kind);
        let all: Vec<_> = all.collect();
        match all.len() {
            0 => ptr::null_mut(),
            _ if byte == 0xff => ptr::null_mut(),
            count => all[at % count].1.cast(),
        }
    }

    unsafe fn keep<T>(&mut self, kind: Kind, object: *mut T) {
        if object.is_null() {
        } else if self.objects.len() < OBJECTS {
            self.objects.push((kind, object.cast()));
        } else {
            unsafe { exp_free(object.cast()) }
        }
    }

    /// What a call that may fail has written.
    unsafe fn keep_outs<T>(&mut self, status: exp_status, kind: Kind, made: *mut T, error: Outs) {
        if error.wanted {
            let fits = (status == exp_status::EXP_OK) == error.error.is_null();
            assert!(fits, "{status:?}, and an error beside");
            let told = unsafe { exp_error_status(error.error) };
            assert_eq!(told, status, "the error's own status");
        }
        assert!(made.is_null() || status == exp_status::EXP_OK);
        assert!(status != exp_status::EXP_ERR_INTERNAL, "a defect");
        unsafe { self.keep(kind, made) };
        unsafe { self.keep(Kind::Error, error.error) };
    }

    unsafe fn call(&mut self) {
        unsafe {
            match self.byte() % 24 {
                0 => self.make_config(),
                1 => self.keep(Kind::User, exp_user_new()),
                2 => self.keep(Kind::Options, exp_fetch_options_new()),
                3 => self.keep(Kind::Cancel, exp_cancel_new()),
                4 => self.keep(Kind::Completions, exp_completions_new()),
                5 => self.make_user(),
                6 | 7 => self.make_client(),
                8 => self.set_config(),
                9 => self.set_user(),
                10 => self.set_options(),
                11 => self.fetch(),
                12 | 13 => self.start(),
                14 => self.submit(),
                15 => self.complete(),
                16 => self.await_pending(),
                17 => self.take(),
                18 => self.read_variants(),
                19 => self.read_error(),
                20 => self.read_metrics(),
                21 => exp_cancel_fire(self.some(Kind::Cancel)),
                22 => self.close(),
                _ => self.free(),
            }
        }
    }

    unsafe fn make_config(&mut self) {
        let urls = [SERVICE.url(), REFUSED.as_str()];
        let url = urls[usize::from(self.byte() & 1)];
        unsafe {
            let config = exp_config_new();
            exp_config_set_server_url_n(config, url.as_ptr().cast(), url.len());
            exp_config_set_use_environment_proxy(config, 0);
            exp_config_set_fetch_retry_backoff_min_millis(config, 1);
            exp_config_set_fetch_retry_backoff_max_millis(config, 1);
            self.keep(Kind::Config, config);
        }
    }

    unsafe fn make_user(&mut self) {
        let (json, length) = self.counted();
        let mut user = ptr::null_mut();
        let mut outs = Outs::of(self.byte());
        unsafe {
            let status = if self.byte() & 1 == 0 {
                exp_user_from_json(self.text(), &raw mut user, outs.out())
            } else {
                exp_user_from_json_n(start_of(&json), length, &raw mut user, outs.out())
            };
            self.keep_outs(status, Kind::User, user, outs);
        }
    }

    unsafe fn make_client(&mut self) {
        let config: *mut exp_config = self.some(Kind::Config);
        let mut client = ptr::null_mut();
        let mut outs = Outs::of(self.byte());
        let key = if self.byte() == 0xff { self.text() } else { c"key".as_ptr() };
        unsafe {
            let status = exp_client_new(key, config, &raw mut client, outs.out());
            self.keep_outs(status, Kind::Client, client, outs);
        }
    }

    unsafe fn set_config(&mut self) {
        let config = self.some(Kind::Config);
        let (text, length) = self.counted();
        let start = start_of(&text);
        unsafe {
            let _ = match self.byte() % 24 {
                0 => exp_config_set_server_zone(config, self.choice()),
                1 => exp_config_set_fetch_timeout_millis(config, self.millis().max(3)),
                2 => exp_config_set_fetch_pool_acquire_timeout_millis(config, self.millis()),
                3 => exp_config_set_fetch_retries(config, u32::from(self.byte() % 4) * 40 / 39),
                4 => exp_config_set_fetch_retry_timeout_millis(config, self.millis()),
                5 => exp_config_set_fetch_retry_backoff_min_millis(config, self.millis()),
                6 => exp_config_set_fetch_retry_backoff_max_millis(config, self.millis()),
                7 => exp_config_set_fetch_retry_backoff_scalar(config, f64::from(self.byte())),
                8 => exp_config_set_fetch_retry_jitter(config, self.choice()),
                9 => exp_config_set_fetch_retry_budget_percent(config, u32::from(self.byte())),
                10 => exp_config_set_fetch_deadline_millis(config, self.millis()),
                11 => exp_config_set_connection_pool_max_size(config, u32::from(self.byte() % 4)),
                12 => exp_config_set_connection_idle_timeout_millis(config, self.millis()),
                13 => exp_config_set_connection_max_lifetime_millis(config, self.millis()),
                14 => exp_config_set_max_pending_fetches(config, u32::from(self.byte() % 4)),
                15 => exp_config_set_max_response_bytes(config, self.millis()),
                16 => exp_config_set_ca_file_n(config, start, length),
                17 => exp_config_set_proxy_url(config, c"http://u:p@127.0.0.1:1".as_ptr()),
                18 => exp_config_set_library_n(config, start, length),
                19 => exp_config_set_debug(config, self.choice()),
                20 | 21 => {
                    let status = exp_config_set_log_callback(
                        config,
                        (self.byte() & 7 != 0).then_some(log as _),
                        (&raw const GIVEN).cast_mut().cast(),
                        Some(finalize),
                        self.choice() + 1,
                    );
                    if status == exp_status::EXP_OK {
                        GIVEN.fetch_add(1, Ordering::SeqCst);
                    }
                    status
                }
                22 => {
                    exp_config_worst_case_millis(config);
                    exp_error_status(exp_config_error(config))
                }
                // Not a server's, for that would be asked.
                _ => exp_config_set_library(config, self.text()),
            };
        }
    }

    unsafe fn set_user(&mut self) {
        type Set = unsafe extern "C" fn(*mut exp_user, *const c_char, usize) -> exp_status;
        const FIELDS: [Set; 16] = [
            exp_user_set_user_id_n,
            exp_user_set_device_id_n,
            exp_user_set_country_n,
            exp_user_set_region_n,
            exp_user_set_dma_n,
            exp_user_set_city_n,
            exp_user_set_language_n,
            exp_user_set_platform_n,
            exp_user_set_version_n,
            exp_user_set_os_n,
            exp_user_set_device_manufacturer_n,
            exp_user_set_device_brand_n,
            exp_user_set_device_model_n,
            exp_user_set_carrier_n,
            exp_user_set_library_n,
            exp_user_set_ip_address_n,
        ];
        let user = self.some(Kind::User);
        let (text, length) = self.counted();
        let (more, more_length) = self.counted();
        let (start, more_start) = (start_of(&text), start_of(&more));
        unsafe {
            let _ = match self.byte() % 24 {
                16 => exp_user_set_user_id(user, self.text()),
                17 => exp_user_set_property_json(user, self.text(), self.text()),
                18 => exp_user_set_property_json_n(user, start, length, more_start, more_length),
                19 => exp_user_add_group(user, self.text(), self.text()),
                20 => exp_user_add_group_n(user, start, length, more_start, more_length),
                21 => exp_user_set_field_json(user, self.text(), self.text()),
                22 => exp_user_set_field_json_n(user, start, length, more_start, more_length),
                23 => exp_error_status(exp_user_error(user)),
                field => FIELDS[usize::from(field)](user, start, length),
            };
        }
    }

    unsafe fn set_options(&mut self) {
        let options = self.some(Kind::Options);
        let (text, length) = self.counted();
        unsafe {
            let _ = match self.byte() % 8 {
                0 => exp_fetch_options_set_tracks_assignment(options, self.choice()),
                1 => exp_fetch_options_set_tracks_exposure(options, self.choice()),
                2 => exp_fetch_options_add_flag_key(options, self.text()),
                3 => exp_fetch_options_add_flag_key_n(options, start_of(&text), length),
                4 => exp_fetch_options_set_deadline_millis(options, self.millis()),
                5 => exp_fetch_options_set_cancel(options, self.some(Kind::Cancel)),
                6 => exp_fetch_options_set_interrupt(
                    options,
                    [None, Some(go_on as _), Some(stop as _)][usize::from(self.byte() % 3)],
                    ptr::null_mut(),
                ),
                _ => exp_error_status(exp_fetch_options_error(options)),
            };
        }
    }

    unsafe fn fetch(&mut self) {
        let client = self.some(Kind::Client);
        let (user, options): (*mut exp_user, *mut exp_fetch_options) =
            (self.some(Kind::User), self.some(Kind::Options));
        let mut variants = ptr::null_mut();
        let mut outs = Outs::of(self.byte());
        unsafe {
            let status = exp_fetch_v2(client, user, options, &raw mut variants, outs.out());
            self.keep_outs(status, Kind::Variants, variants, outs);
        }
    }

    unsafe fn start(&mut self) {
        let client = self.some(Kind::Client);
        let (user, options): (*mut exp_user, *mut exp_fetch_options) =
            (self.some(Kind::User), self.some(Kind::Options));
        let mut outs = Outs::of(self.byte());
        let mut pending = ptr::null_mut();
        let wanted = if self.byte() & 1 == 0 { &raw mut pending } else { ptr::null_mut() };
        let callback = (self.byte() != 0xff).then_some(tell as _);
        let nothing = ptr::null_mut();
        unsafe {
            let status =
                exp_fetch_v2_async(client, user, options, callback, nothing, wanted, outs.out());
            if status == exp_status::EXP_OK {
                STARTED.fetch_add(1, Ordering::SeqCst);
            }
            self.keep_outs(status, Kind::Pending, pending, outs);
        }
    }

    unsafe fn submit(&mut self) {
        let client = self.some(Kind::Client);
        let (user, options): (*mut exp_user, *mut exp_fetch_options) =
            (self.some(Kind::User), self.some(Kind::Options));
        let queue = self.some(Kind::Completions);
        let mut outs = Outs::of(self.byte());
        let mut pending = ptr::null_mut();
        let wanted = if self.byte() & 1 == 0 { &raw mut pending } else { ptr::null_mut() };
        let nothing = ptr::null_mut();
        unsafe {
            let status =
                exp_fetch_v2_submit(client, user, options, queue, nothing, wanted, outs.out());
            self.keep_outs(status, Kind::Pending, pending, outs);
        }
    }

    unsafe fn complete(&mut self) {
        let queue = self.some(Kind::Completions);
        let millis = self.byte() % 4;
        unsafe {
            exp_completions_fd(queue);
            exp_completions_wait(queue, millis.into());
            let next = exp_completions_next(queue);
            self.keep(Kind::Pending, next);
        }
    }

    unsafe fn await_pending(&mut self) {
        let pending = self.some(Kind::Pending);
        let byte = self.byte();
        unsafe {
            if byte & 1 == 0 {
                exp_pending_cancel(pending);
            }
            exp_pending_wait(pending, u64::from(byte >> 1) % 4);
            exp_pending_user_data(pending);
        }
    }

    unsafe fn take(&mut self) {
        let pending = self.some(Kind::Pending);
        let mut variants = ptr::null_mut();
        let mut outs = Outs::of(self.byte());
        unsafe {
            let status = exp_pending_take(pending, &raw mut variants, outs.out());
            self.keep_outs(status, Kind::Variants, variants, outs);
        }
    }

    unsafe fn read_variants(&mut self) {
        let variants: *mut exp_variants = self.some(Kind::Variants);
        let (key, length) = self.counted();
        let key = start_of(&key);
        unsafe {
            let count = exp_variants_count(variants);
            let variant = exp_variants_at(variants, count.saturating_sub(1));
            for variant in [variant, exp_variants_get(variants, c"user".as_ptr()), variants.cast()]
            {
                read(exp_variant_flag_key(variant), exp_variant_flag_key_length(variant));
                read(exp_variant_key(variant), exp_variant_key_length(variant));
                read(exp_variant_value(variant), exp_variant_value_length(variant));
                read(exp_variant_payload_json(variant), exp_variant_payload_json_length(variant));
                read(exp_variant_metadata_json(variant), exp_variant_metadata_json_length(variant));
            }
            exp_free(variant.cast_mut().cast()); // is borrowed: nothing
            exp_variants_get_n(variants, key, length);
            exp_variants_value(variants, self.text(), self.text());
            exp_variants_value_n(variants, key, length, ptr::null());
            read(exp_variants_json(variants), exp_variants_json_length(variants));
            exp_variants_attempts(variants);
            exp_variants_connection_reused(variants);
            exp_variants_phase_micros(variants, self.choice());
            exp_variants_micros_left(variants);
            self.keep(Kind::Variants, exp_variants_retain(variants));
            let mut deployed = ptr::null_mut();
            let mut outs = Outs::of(self.byte());
            let status = exp_variants_filter_deployed(variants, &raw mut deployed, outs.out());
            self.keep_outs(status, Kind::Variants, deployed, outs);
        }
    }

    unsafe fn read_error(&mut self) {
        let config: *mut exp_config = self.some(Kind::Config);
        unsafe {
            let borrowed = exp_config_error(config);
            for error in [borrowed, self.some(Kind::Error)] {
                exp_status_name(exp_error_status(error) as i32);
                read(exp_error_message(error), exp_error_message_length(error));
                exp_error_http_status(error);
                exp_error_attempts(error);
                exp_error_is_retryable(error);
                exp_error_retry_after_millis(error);
                exp_error_phase(error);
                exp_error_phase_micros(error, self.choice());
                exp_error_connection_reused(error);
            }
            self.keep(Kind::Error, exp_error_retain(borrowed));
            exp_free(borrowed.cast_mut().cast()); // is borrowed: nothing
        }
    }

    unsafe fn read_metrics(&mut self) {
        let client = self.some(Kind::Client);
        let mut text = ptr::null_mut();
        let mut outs = Outs::of(self.byte());
        unsafe {
            let status = exp_client_metrics(client, self.choice(), &raw mut text, outs.out());
            read(exp_text_value(text), exp_text_length(text));
            self.keep_outs(status, Kind::Text, text, outs);
        }
    }

    unsafe fn close(&mut self) {
        let client = self.some(Kind::Client);
        let millis = self.byte() % 4;
        unsafe { exp_client_close(client, millis.into()) };
    }

    unsafe fn free(&mut self) {
        let at = usize::from(self.byte());
        match self.objects.len() {
            0 => unsafe { exp_free(ptr::null_mut()) },
            count => unsafe { exp_free(self.objects.swap_remove(at % count).1) },
        }
    }

    /// Frees the rest, in the order of the input.
    unsafe fn leave(&mut self) {
        while !self.objects.is_empty() {
            unsafe { self.free() }
        }
    }
}

/// Where an error is written, if it is wanted.
struct Outs {
    wanted: bool,
    error: *mut exp_error,
}

impl Outs {
    fn of(byte: u8) -> Self {
        Outs { wanted: byte & 1 == 0, error: ptr::null_mut() }
    }

    fn out(&mut self) -> *mut *mut exp_error {
        if self.wanted { &raw mut self.error } else { ptr::null_mut() }
    }
}

fn start_of(text: &Option<Box<[u8]>>) -> *const c_char {
    text.as_ref().map_or(ptr::null(), |text| text.as_ptr().cast())
}

/// A text that came out: as long as it says, and NUL behind it.
unsafe fn read(text: *const c_char, length: usize) {
    if text.is_null() {
        assert_eq!(length, 0);
        return;
    }
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length + 1) };
    assert_eq!(bytes[length], 0);
    std::str::from_utf8(bytes).expect("UTF-8");
}

unsafe extern "C" fn tell(
    _: *mut c_void,
    status: exp_status,
    variants: *const exp_variants,
    error: *const exp_error,
) {
    assert_eq!(status == exp_status::EXP_OK, !variants.is_null());
    assert_eq!(status == exp_status::EXP_OK, error.is_null());
    unsafe {
        read(exp_variants_json(variants), exp_variants_json_length(variants));
        exp_free(exp_variants_retain(variants).cast());
        exp_free(exp_error_retain(error).cast());
        exp_free(error.cast_mut().cast()); // is borrowed: nothing
    }
    TOLD.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn go_on(_: *mut c_void) -> i32 {
    0
}

unsafe extern "C" fn stop(_: *mut c_void) -> i32 {
    1
}

unsafe extern "C" fn log(given: *mut c_void, _: exp_log_level, line: *const c_char, length: usize) {
    assert_eq!(given.cast_const(), (&raw const GIVEN).cast());
    unsafe { read(line, length) }
}

unsafe extern "C" fn finalize(given: *mut c_void) {
    assert_eq!(given.cast_const(), (&raw const GIVEN).cast());
    FINALIZED.fetch_add(1, Ordering::SeqCst);
}
