//! Objects that the host sets up step by step, and that remember the first step that was refused.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::Arc;

use super::failure::{Failure, exp_error};
use super::guard;
use super::handle::{Handle, Object, borrowed, find, lend};
use super::status::exp_status;
use crate::rules::error::Error;
use crate::tag::Tag;

/// A value under construction. Whoever uses it takes a snapshot, and later steps leave that alone.
///
/// It has no lock, which a child forked at the wrong moment would find locked for ever. By contract
/// nobody else is in a call with the object while one thread is in a setter.
pub struct Settings<T>(UnsafeCell<State<T>>);

// SAFETY: by contract, setters, which alone change it, run beside no other call; all others read.
unsafe impl<T: Send + Sync> Sync for Settings<T> {}

struct State<T> {
    value: Arc<T>,
    rejection: Option<Arc<Handle<exp_error>>>,
}

impl<T> From<T> for Settings<T> {
    fn from(value: T) -> Self {
        Settings(UnsafeCell::new(State { value: Arc::new(value), rejection: None }))
    }
}

impl<T: Clone> Settings<T> {
    /// Makes one step, which calls no code of the host's. Remembers its error, if it is the first.
    ///
    /// # Safety
    ///
    /// The host has called a setter with the object.
    unsafe fn change<R>(&self, step: impl FnOnce(&mut T) -> Result<R, Error>) -> Result<R, Error> {
        // SAFETY: by contract no other thread is in a call with the object, and nothing below comes
        // back to it on this one.
        let state = unsafe { &mut *self.0.get() };
        let result = step(Arc::make_mut(&mut state.value));
        if let Err(error) = &result {
            state.rejection.get_or_insert_with(|| {
                Handle::new(Tag::BORROWED_ERROR, Failure::from(error.clone()).into())
            });
        }
        result
    }

    fn state(&self) -> &State<T> {
        // SAFETY: by contract no thread is in a setter, and none of our own borrows outlives its.
        unsafe { &*self.0.get() }
    }

    /// The value as it is now, or the first refusal.
    pub fn snapshot(&self) -> Result<Arc<T>, Error> {
        match &self.state().rejection {
            Some(rejection) => Err(rejection.body.error().clone()),
            None => Ok(self.value()),
        }
    }

    /// The value as it is now, whatever was refused.
    pub fn value(&self) -> Arc<T> {
        Arc::clone(&self.state().value)
    }

    /// Once there, it stays until the object goes.
    fn rejection(&self) -> *const exp_error {
        self.state().rejection.as_ref().map_or(ptr::null(), borrowed)
    }
}

/// Makes one step with the object behind an argument. What the step returns is dropped afterwards,
/// and may be the host's to drop.
///
/// # Safety
///
/// The contract of the boundary; the host has called a setter.
pub unsafe fn set<O, T, R>(
    object: *mut O,
    step: impl FnOnce(&mut T) -> Result<R, Error>,
) -> exp_status
where
    O: Object<Body = Settings<T>>,
    T: Clone,
{
    // SAFETY: by this function's contract.
    guard::status(|| unsafe { lend(object.cast_const())?.body.change(step) }.map(drop))
}

/// The first refusal of the object behind an argument; NULL if there was none.
///
/// # Safety
///
/// The contract of the boundary.
pub unsafe fn rejection<O, T>(object: *const O) -> *const exp_error
where
    O: Object<Body = Settings<T>>,
    T: Clone,
{
    // SAFETY: by this function's contract.
    guard::value(ptr::null(), || Ok(unsafe { lend(object) }?.body.rejection()))
}

/// The value of the object behind an argument; the default for NULL.
///
/// # Safety
///
/// The contract of the boundary.
pub unsafe fn snapshot<O, T>(object: *const O) -> Result<Arc<T>, Error>
where
    O: Object<Body = Settings<T>>,
    T: Clone + Default,
{
    // SAFETY: by this function's contract.
    unsafe { find(object) }?.map_or_else(|| Ok(Arc::default()), |object| object.body.snapshot())
}
