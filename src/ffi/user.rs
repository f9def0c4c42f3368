//! Users.

use std::ffi::c_char;

use super::abi::failure::exp_error;
use super::abi::guard;
use super::abi::handle::{Object, Out, give};
use super::abi::settings::{Settings, rejection, set};
use super::abi::status::exp_status;
use super::abi::text::Chars;
use crate::model::{Invalid, User};
use crate::rules::error::Error;
use crate::tag::Tag;

/// What is known about a user. The service evaluates it; the library keeps none of it between
/// fetches.
pub struct exp_user {
    _opaque: [u8; 0],
}

impl Object for exp_user {
    type Body = Settings<User>;
    const TAG: Tag = Tag::USER;
    const NAME: &'static str = "exp_user";
    const ARGUMENT: &'static str = "user";
}

/// Creates a user about whom nothing is known; the caller owns it. NULL only after a defect.
/// Anytime.
#[unsafe(no_mangle)]
pub extern "C" fn exp_user_new() -> *mut exp_user {
    guard::value(std::ptr::null_mut(), || Ok(give(User::new().into())))
}

/// Creates a user from a JSON object in the format of the service; the caller owns it. Keeps fields
/// that this library does not know, drops those that are null. `user_out` must not be NULL.
/// Anytime; takes time in proportion to the length. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_from_json(
    json: *const c_char,
    user_out: *mut *mut exp_user,
    error_out: *mut *mut exp_error,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { from_json(Chars::terminated(json), Out::new(user_out), Out::new(error_out)) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_from_json_n(
    json: *const c_char,
    length: usize,
    user_out: *mut *mut exp_user,
    error_out: *mut *mut exp_error,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { from_json(Chars::counted(json, length), Out::new(user_out), Out::new(error_out)) }
}

/// Returns the first refusal of a value, borrowed; NULL if no value was refused. A fetch for this
/// user fails with it. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_error(user: *const exp_user) -> *const exp_error {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { rejection(user) }
}

/// Sets the user ID. NULL clears it, as in all of these. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_user_id(
    user: *mut exp_user,
    user_id: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "user_id", Chars::terminated(user_id)) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_user_id_n(
    user: *mut exp_user,
    user_id: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "user_id", Chars::counted(user_id, length)) }
}

/// Sets the device ID. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_device_id(
    user: *mut exp_user,
    device_id: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "device_id", Chars::terminated(device_id)) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_device_id_n(
    user: *mut exp_user,
    device_id: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "device_id", Chars::counted(device_id, length)) }
}

/// Sets the country. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_country(
    user: *mut exp_user,
    country: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "country", Chars::terminated(country)) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_country_n(
    user: *mut exp_user,
    country: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "country", Chars::counted(country, length)) }
}

/// Sets the region within the country. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_region(
    user: *mut exp_user,
    region: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "region", Chars::terminated(region)) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_region_n(
    user: *mut exp_user,
    region: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "region", Chars::counted(region, length)) }
}

/// Sets the designated market area. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_dma(user: *mut exp_user, dma: *const c_char) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "dma", Chars::terminated(dma)) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_dma_n(
    user: *mut exp_user,
    dma: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "dma", Chars::counted(dma, length)) }
}

/// Sets the city. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_city(user: *mut exp_user, city: *const c_char) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "city", Chars::terminated(city)) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_city_n(
    user: *mut exp_user,
    city: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "city", Chars::counted(city, length)) }
}

/// Sets the language. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_language(
    user: *mut exp_user,
    language: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "language", Chars::terminated(language)) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_language_n(
    user: *mut exp_user,
    language: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "language", Chars::counted(language, length)) }
}

/// Sets the platform, such as iOS. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_platform(
    user: *mut exp_user,
    platform: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "platform", Chars::terminated(platform)) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_platform_n(
    user: *mut exp_user,
    platform: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "platform", Chars::counted(platform, length)) }
}

/// Sets the version of the host application. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_version(
    user: *mut exp_user,
    version: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "version", Chars::terminated(version)) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_version_n(
    user: *mut exp_user,
    version: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "version", Chars::counted(version, length)) }
}

/// Sets the operating system. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_os(user: *mut exp_user, os: *const c_char) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "os", Chars::terminated(os)) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_os_n(
    user: *mut exp_user,
    os: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "os", Chars::counted(os, length)) }
}

/// Sets the manufacturer of the device. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_device_manufacturer(
    user: *mut exp_user,
    device_manufacturer: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "device_manufacturer", Chars::terminated(device_manufacturer)) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_device_manufacturer_n(
    user: *mut exp_user,
    device_manufacturer: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "device_manufacturer", Chars::counted(device_manufacturer, length)) }
}

/// Sets the brand of the device. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_device_brand(
    user: *mut exp_user,
    device_brand: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "device_brand", Chars::terminated(device_brand)) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_device_brand_n(
    user: *mut exp_user,
    device_brand: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "device_brand", Chars::counted(device_brand, length)) }
}

/// Sets the model of the device. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_device_model(
    user: *mut exp_user,
    device_model: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "device_model", Chars::terminated(device_model)) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_device_model_n(
    user: *mut exp_user,
    device_model: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "device_model", Chars::counted(device_model, length)) }
}

/// Sets the carrier of the device. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_carrier(
    user: *mut exp_user,
    carrier: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "carrier", Chars::terminated(carrier)) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_carrier_n(
    user: *mut exp_user,
    carrier: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "carrier", Chars::counted(carrier, length)) }
}

/// Sets the library name and version reported to the service; NULL for the setting of the client.
/// Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_library(
    user: *mut exp_user,
    library: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "library", Chars::terminated(library)) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_library_n(
    user: *mut exp_user,
    library: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "library", Chars::counted(library, length)) }
}

/// Sets the IP address. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_ip_address(
    user: *mut exp_user,
    ip_address: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "ip_address", Chars::terminated(ip_address)) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_ip_address_n(
    user: *mut exp_user,
    ip_address: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_text(user, "ip_address", Chars::counted(ip_address, length)) }
}

/// Sets a member of user_properties to any JSON, null included. Setter. EXP_OK,
/// EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_property_json(
    user: *mut exp_user,
    name: *const c_char,
    json: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_property(user, Chars::terminated(name), Chars::terminated(json)) }
}

/// The same, with explicit lengths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_property_json_n(
    user: *mut exp_user,
    name: *const c_char,
    name_length: usize,
    json: *const c_char,
    json_length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe {
        set_property(user, Chars::counted(name, name_length), Chars::counted(json, json_length))
    }
}

/// Adds the user to a group of a type; there may be several of one type. Setter. EXP_OK,
/// EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_add_group(
    user: *mut exp_user,
    group_type: *const c_char,
    group_name: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { add_group(user, Chars::terminated(group_type), Chars::terminated(group_name)) }
}

/// The same, with explicit lengths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_add_group_n(
    user: *mut exp_user,
    group_type: *const c_char,
    group_type_length: usize,
    group_name: *const c_char,
    group_name_length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe {
        add_group(
            user,
            Chars::counted(group_type, group_type_length),
            Chars::counted(group_name, group_name_length),
        )
    }
}

/// Sets any field of the user to JSON: user_properties, groups and fields that this library does
/// not know included. NULL, or the JSON null, clears it. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_field_json(
    user: *mut exp_user,
    name: *const c_char,
    json: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_field(user, Chars::terminated(name), Chars::terminated(json)) }
}

/// The same, with explicit lengths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_user_set_field_json_n(
    user: *mut exp_user,
    name: *const c_char,
    name_length: usize,
    json: *const c_char,
    json_length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { set_field(user, Chars::counted(name, name_length), Chars::counted(json, json_length)) }
}

/// # Safety
///
/// The contract of the boundary.
unsafe fn from_json(json: Chars, out: Out<exp_user>, error_out: Out<exp_error>) -> exp_status {
    guard::report(error_out, || {
        let out = out.required("user_out")?;
        out.set(User::from_json(json.required("json")?).map_err(refused)?);
        Ok(())
    })
}

/// # Safety
///
/// The contract of the boundary.
unsafe fn set_text(user: *mut exp_user, field: &str, value: Chars) -> exp_status {
    // SAFETY: by this function's contract.
    unsafe {
        set(user, |user| {
            let set = match value.optional(field)? {
                Some(text) => user.set_text(field, text),
                None => user.set_json(field, "null"),
            };
            set.map_err(refused)
        })
    }
}

/// # Safety
///
/// The contract of the boundary.
unsafe fn set_property(user: *mut exp_user, name: Chars, json: Chars) -> exp_status {
    // SAFETY: by this function's contract.
    unsafe {
        set(user, |user| {
            let name = name.required("name (of a property)")?;
            let json = json.required("json (of a property)")?;
            user.set_property_json(name, json).map_err(refused)
        })
    }
}

/// # Safety
///
/// The contract of the boundary.
unsafe fn add_group(user: *mut exp_user, group_type: Chars, group_name: Chars) -> exp_status {
    // SAFETY: by this function's contract.
    unsafe {
        set(user, |user| {
            let group_type = group_type.required("group_type")?;
            user.add_group(group_type, group_name.required("group_name")?).map_err(refused)
        })
    }
}

/// # Safety
///
/// The contract of the boundary.
unsafe fn set_field(user: *mut exp_user, name: Chars, json: Chars) -> exp_status {
    // SAFETY: by this function's contract.
    unsafe {
        set(user, |user| {
            let name = name.required("name (of a field)")?;
            let json = json.optional("json (of a field)")?.unwrap_or("null");
            user.set_json(name, json).map_err(refused)
        })
    }
}

fn refused(invalid: Invalid) -> Error {
    Error::invalid_argument(invalid.to_string())
}
