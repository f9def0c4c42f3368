//! What a fetch returns.

use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;

use super::abi::facts::Facts;
use super::abi::failure::exp_error;
use super::abi::guard;
use super::abi::handle::{Object, Out, find, give, give_reference, hold, tag_of, wrong_kind};
use super::abi::status::exp_status;
use super::abi::text::Chars;
use crate::machine::clock;
use crate::machine::logger::Level;
use crate::model::{Text, Variant, Variants};
use crate::rules::error::Error;
use crate::tag::Tag;

/// The variants that one fetch returned, in the order of the service, and facts about that fetch.
/// Immutable; may outlive its client.
pub struct exp_variants {
    _opaque: [u8; 0],
}

/// The variant of one flag, borrowed from its set.
pub struct exp_variant {
    _opaque: [u8; 0],
}

impl Object for exp_variants {
    type Body = Fetched;
    const TAG: Tag = Tag::VARIANTS;
    const NAME: &'static str = "exp_variants";
    const ARGUMENT: &'static str = "variants";

    fn bears(tag: Tag) -> bool {
        matches!(tag, Tag::VARIANTS | Tag::BORROWED_VARIANTS)
    }
}

pub struct Fetched {
    pub variants: Variants,
    pub facts: Facts,
}

impl Default for Fetched {
    fn default() -> Self {
        Fetched { variants: Variants::empty(), facts: Facts::NONE }
    }
}

/// What NULL stands for.
static EMPTY: Fetched = Fetched { variants: Variants::empty(), facts: Facts::NONE };

/// Returns the number of variants. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variants_count(variants: *const exp_variants) -> usize {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { read(variants, 0, |set| set.variants.len()) }
}

/// Returns the variant of a flag, borrowed from the set; NULL if the flag has none. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variants_get(
    variants: *const exp_variants,
    flag_key: *const c_char,
) -> *const exp_variant {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { get(variants, Chars::terminated(flag_key)) }
}

/// The same, with an explicit length. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variants_get_n(
    variants: *const exp_variants,
    flag_key: *const c_char,
    length: usize,
) -> *const exp_variant {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { get(variants, Chars::counted(flag_key, length)) }
}

/// Returns the variant at a position, from 0, borrowed from the set; NULL past the end. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variants_at(
    variants: *const exp_variants,
    index: usize,
) -> *const exp_variant {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { read(variants, ptr::null(), |set| address(set.variants.at(index))) }
}

/// Returns the value of a flag's variant, borrowed from the set; `fallback` itself if there is no
/// such variant or it has no value. For its length use exp_variants_get and
/// exp_variant_value_length. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variants_value(
    variants: *const exp_variants,
    flag_key: *const c_char,
    fallback: *const c_char,
) -> *const c_char {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { value(variants, Chars::terminated(flag_key), fallback) }
}

/// The same, with an explicit length. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variants_value_n(
    variants: *const exp_variants,
    flag_key: *const c_char,
    length: usize,
    fallback: *const c_char,
) -> *const c_char {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { value(variants, Chars::counted(flag_key, length), fallback) }
}

/// Returns the set as one JSON object, borrowed from the set: each variant under its flag key, as
/// the service sent it (in the keys, characters may be escaped differently). Created on the first
/// call. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variants_json(variants: *const exp_variants) -> *const c_char {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { read(variants, ptr::null(), |set| start(Some(set.variants.json()))) }
}

/// Returns the length of that JSON in bytes. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variants_json_length(variants: *const exp_variants) -> usize {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { read(variants, 0, |set| set.variants.json().len()) }
}

/// Creates a set of the variants that are deployed and not the default of their flag, which is what
/// the deprecated `fetch` of the official SDKs returns; the caller owns it. `variants_out` must not
/// be NULL. Getter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variants_filter_deployed(
    variants: *const exp_variants,
    variants_out: *mut *mut exp_variants,
    error_out: *mut *mut exp_error,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    let (out, error_out) = unsafe { (Out::new(variants_out), Out::new(error_out)) };
    guard::report(error_out, || {
        let out = out.required("variants_out")?;
        // SAFETY: the contract of the boundary (mod.rs).
        let set = unsafe { set(variants) }?;
        out.set(Fetched { variants: set.variants.filter_deployed(), facts: set.facts.clone() });
        Ok(())
    })
}

/// Returns a new reference to the same set, not necessarily at the same address; the caller owns
/// it. NULL for NULL. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variants_retain(variants: *const exp_variants) -> *mut exp_variants {
    guard::value(ptr::null_mut(), || {
        // SAFETY: the contract of the boundary (mod.rs).
        let handle = unsafe { hold(variants) }?;
        if handle.tag() == Tag::VARIANTS {
            return Ok(give_reference(handle));
        }
        let Fetched { variants, facts } = &handle.body;
        Ok(give(Fetched { variants: variants.share(), facts: facts.clone() }))
    })
}

/// Returns the number of attempts of the fetch, the first included; 0 for NULL. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variants_attempts(variants: *const exp_variants) -> u32 {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { read(variants, 0, |set| set.facts.attempts) }
}

/// Returns 1 if the last attempt used a kept-alive connection, otherwise 0. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variants_connection_reused(variants: *const exp_variants) -> i32 {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { read(variants, 0, |set| set.facts.connection_reused()) }
}

/// Returns the microseconds that the fetch spent in a phase (EXP_PHASE_...), over all attempts; 0
/// for any other number. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variants_phase_micros(
    variants: *const exp_variants,
    phase: i32,
) -> u64 {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { read(variants, 0, |set| set.facts.phase_micros(phase)) }
}

/// Returns the microseconds left of the fetch: until the timeout of its last attempt, or until its
/// deadline if that is earlier. 0 once that has passed; UINT64_MAX for NULL. A binding that creates
/// objects from many variants checks this in between, to stay within the bound of the fetch.
/// Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variants_micros_left(variants: *const exp_variants) -> u64 {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { read(variants, u64::MAX, |set| set.facts.micros_left(clock::now())) }
}

/// Returns the key of the flag. NULL for NULL, as in all of these. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variant_flag_key(variant: *const exp_variant) -> *const c_char {
    // SAFETY: the contract of the boundary (mod.rs).
    start(unsafe { field(variant, |variant| Some(variant.flag_key())) })
}

/// Returns its length in bytes; 0 for NULL, as in all of these. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variant_flag_key_length(variant: *const exp_variant) -> usize {
    // SAFETY: the contract of the boundary (mod.rs).
    length(unsafe { field(variant, |variant| Some(variant.flag_key())) })
}

/// Returns the key of the variant; NULL if the service sent none. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variant_key(variant: *const exp_variant) -> *const c_char {
    // SAFETY: the contract of the boundary (mod.rs).
    start(unsafe { field(variant, Variant::key) })
}

/// Returns its length in bytes. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variant_key_length(variant: *const exp_variant) -> usize {
    // SAFETY: the contract of the boundary (mod.rs).
    length(unsafe { field(variant, Variant::key) })
}

/// Returns the value of the variant; as JSON if it is not a string, NULL if the service sent none.
/// Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variant_value(variant: *const exp_variant) -> *const c_char {
    // SAFETY: the contract of the boundary (mod.rs).
    start(unsafe { field(variant, Variant::value) })
}

/// Returns its length in bytes. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variant_value_length(variant: *const exp_variant) -> usize {
    // SAFETY: the contract of the boundary (mod.rs).
    length(unsafe { field(variant, Variant::value) })
}

/// Returns the payload of the variant as JSON; NULL if the service sent none. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variant_payload_json(variant: *const exp_variant) -> *const c_char {
    // SAFETY: the contract of the boundary (mod.rs).
    start(unsafe { field(variant, Variant::payload_json) })
}

/// Returns its length in bytes. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variant_payload_json_length(variant: *const exp_variant) -> usize {
    // SAFETY: the contract of the boundary (mod.rs).
    length(unsafe { field(variant, Variant::payload_json) })
}

/// Returns the metadata of the variant as JSON; NULL if the service sent none. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variant_metadata_json(variant: *const exp_variant) -> *const c_char {
    // SAFETY: the contract of the boundary (mod.rs).
    start(unsafe { field(variant, Variant::metadata_json) })
}

/// Returns its length in bytes. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_variant_metadata_json_length(variant: *const exp_variant) -> usize {
    // SAFETY: the contract of the boundary (mod.rs).
    length(unsafe { field(variant, Variant::metadata_json) })
}

/// # Safety
///
/// As for `handle::find`.
unsafe fn set<'a>(variants: *const exp_variants) -> Result<&'a Fetched, Error> {
    // SAFETY: by this function's contract.
    Ok(unsafe { find(variants) }?.map_or_else(|| &EMPTY, |variants| &variants.body))
}

/// # Safety
///
/// The contract of the boundary.
unsafe fn read<T>(
    variants: *const exp_variants,
    otherwise: T,
    get: impl FnOnce(&Fetched) -> T,
) -> T {
    // SAFETY: by this function's contract.
    guard::value(otherwise, || Ok(get(unsafe { set(variants) }?)))
}

/// # Safety
///
/// The contract of the boundary.
unsafe fn get(variants: *const exp_variants, flag_key: Chars) -> *const exp_variant {
    guard::value(ptr::null(), || {
        // SAFETY: by this function's contract.
        let set = unsafe { set(variants) }?;
        Ok(address(set.variants.get(flag_key.required_bytes("flag_key")?)))
    })
}

/// # Safety
///
/// The contract of the boundary.
unsafe fn value(
    variants: *const exp_variants,
    flag_key: Chars,
    fallback: *const c_char,
) -> *const c_char {
    guard::value(fallback, || {
        // SAFETY: by this function's contract.
        let set = unsafe { set(variants) }?;
        let variant = set.variants.get(flag_key.required_bytes("flag_key")?);
        Ok(variant.and_then(Variant::value).map_or(fallback, |value| start(Some(value))))
    })
}

/// # Safety
///
/// The contract of the boundary, as long as `'a` is used.
unsafe fn field<'a>(
    variant: *const exp_variant,
    get: impl FnOnce(&'a Variant) -> Option<Text<'a>>,
) -> Option<Text<'a>> {
    // SAFETY: by this function's contract.
    guard::value(None, || Ok(unsafe { find_variant(variant) }?.and_then(get)))
}

/// # Safety
///
/// As for `handle::find`.
unsafe fn find_variant<'a>(variant: *const exp_variant) -> Result<Option<&'a Variant>, Error> {
    if variant.is_null() {
        return Ok(None);
    }
    // SAFETY: by this function's contract.
    match unsafe { tag_of(variant.cast()) } {
        // SAFETY: only a `Variant` bears that tag, and its set is alive.
        Some(Tag::VARIANT) => Ok(Some(unsafe { &*variant.cast::<Variant>() })),
        tag => Err(wrong_kind("variant", "exp_variant", tag)),
    }
}

/// Tells the host, if it listens, that it freed what it had borrowed.
///
/// # Safety
///
/// `variant` leads to a live variant.
pub unsafe fn log_freed(variant: *const exp_variant) {
    // SAFETY: by this function's contract.
    let variant = unsafe { find_variant(variant) }.ok().flatten();
    let logger: Option<Arc<_>> = variant.and_then(Variant::misuse_logger);
    if let Some(logger) = logger {
        logger.log(Level::Error, || {
            "exp_free was called with an exp_variant, which belongs to its exp_variants; ignored"
                .to_owned()
        });
    }
}

fn address(variant: Option<&Variant>) -> *const exp_variant {
    variant.map_or(ptr::null(), |variant| ptr::from_ref(variant).cast())
}

fn start(text: Option<Text>) -> *const c_char {
    text.map_or(ptr::null(), |text| text.as_ptr().cast())
}

fn length(text: Option<Text>) -> usize {
    text.map_or(0, |text| text.len())
}
