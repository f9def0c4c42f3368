//! Another Rust library in the same program, with a standard library and an unwinder of its own.

#[unsafe(no_mangle)]
pub extern "C" fn other_caught() -> i32 {
    std::panic::catch_unwind(|| panic!("on purpose, elsewhere")).map_or(1, |()| 0)
}
