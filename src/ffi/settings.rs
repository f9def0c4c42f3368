//! Objects that the host sets up step by step, and that remember the first step that was refused.

use std::ptr;
use std::sync::Arc;

use super::error::{Failure, exp_error};
use super::guard;
use super::handle::{Handle, Object, borrowed, find, lend};
use super::status::exp_status;
use crate::error::Error;
use crate::sync::Mutex;
use crate::tag::Tag;

/// A value under construction. Whoever uses it takes a snapshot, and later steps leave that alone.
pub struct Settings<T>(Mutex<State<T>>);

struct State<T> {
    value: Arc<T>,
    rejection: Option<Arc<Handle<exp_error>>>,
}

impl<T> From<T> for Settings<T> {
    fn from(value: T) -> Self {
        Settings(Mutex::new(State { value: Arc::new(value), rejection: None }))
    }
}

impl<T: Clone> Settings<T> {
    /// Makes one step. What it returns is dropped with no lock held.
    fn change<R>(&self, step: impl FnOnce(&mut T) -> Result<R, Error>) -> Result<R, Error> {
        let mut state = self.0.lock();
        let result = step(Arc::make_mut(&mut state.value));
        if let Err(error) = &result {
            state.rejection.get_or_insert_with(|| {
                Handle::new(Tag::BORROWED_ERROR, Failure::from(error.clone()).into())
            });
        }
        result
    }

    /// The value as it is now, or the first refusal.
    pub fn snapshot(&self) -> Result<Arc<T>, Error> {
        let state = self.0.lock();
        match &state.rejection {
            Some(rejection) => Err(rejection.body.error().clone()),
            None => Ok(Arc::clone(&state.value)),
        }
    }

    /// The value as it is now, whatever was refused.
    pub fn value(&self) -> Arc<T> {
        Arc::clone(&self.0.lock().value)
    }

    /// Once there, it stays until the object goes.
    fn rejection(&self) -> *const exp_error {
        self.0.lock().rejection.as_ref().map_or(ptr::null(), borrowed)
    }
}

/// Makes one step with the object behind an argument.
///
/// # Safety
///
/// The contract of the boundary.
pub unsafe fn set<O, T, R>(
    object: *mut O,
    step: impl FnOnce(&mut T) -> Result<R, Error>,
) -> exp_status
where
    O: Object<Body = Settings<T>>,
    T: Clone,
{
    guard::status(|| {
        // SAFETY: by this function's contract.
        unsafe { lend(object.cast_const()) }?.body.change(step).map(drop)
    })
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
