//! Defects in Rust, to see that they are found: packaging/check-sanitizer. Argument: which.

use std::hint::black_box;
use std::thread;

static mut SHARED: u64 = 0;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("use-after-free") => {
            let text = black_box(Box::new([1u8; 64]));
            let pointer = &raw const *text;
            drop(text);
            // SAFETY: none, that is the point.
            black_box(unsafe { pointer.cast::<u8>().read_volatile() });
        }
        Some("leak") => {
            black_box(Box::leak(black_box(Box::new([1u8; 64]))));
        }
        Some("race") => {
            let other = thread::spawn(count);
            count();
            other.join().unwrap();
        }
        _ => {}
    }
}

fn count() {
    for _ in 0..1000 {
        // SAFETY: none, that is the point.
        unsafe { (&raw mut SHARED).write_volatile((&raw const SHARED).read_volatile() + 1) };
    }
}
