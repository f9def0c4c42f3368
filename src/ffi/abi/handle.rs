//! Objects as C holds them: a tag, what they are, and a count of references.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::rules::error::Error;
use crate::tag::Tag;

/// A type that the header declares, and what is behind a pointer to it.
pub trait Object: Sized {
    /// `Sync`, as C may call from several threads at once.
    type Body: Send + Sync;
    const TAG: Tag;
    /// How the header spells it.
    const NAME: &'static str;
    /// What parameters of this type are called in the header.
    const ARGUMENT: &'static str;

    /// Whether an object with that tag is one of these.
    fn bears(tag: Tag) -> bool {
        tag == Self::TAG
    }

    /// What happens to an object when the host gives it up, beside losing a reference.
    fn given_up(_body: &Self::Body) {}
}

/// What a pointer leads to. Every handle lives in an `Arc`.
#[repr(C)]
pub struct Handle<O: Object> {
    tag: Tag,
    pub body: O::Body,
}

impl<O: Object> Handle<O> {
    pub fn new(tag: Tag, body: O::Body) -> Arc<Self> {
        Arc::new(Handle { tag, body })
    }

    pub fn tag(&self) -> Tag {
        self.tag
    }
}

/// Makes an object that belongs to the host.
pub fn give<O: Object>(body: O::Body) -> *mut O {
    give_reference(Handle::<O>::new(O::TAG, body))
}

/// Gives the host a reference of its own.
pub fn give_reference<O: Object>(handle: Arc<Handle<O>>) -> *mut O {
    Arc::into_raw(handle).cast_mut().cast()
}

/// Lends the host an object that is ours.
pub fn borrowed<O: Object>(handle: &Arc<Handle<O>>) -> *const O {
    Arc::as_ptr(handle).cast()
}

/// The object behind an argument; `None` for NULL, an error for an object of another kind.
///
/// # Safety
///
/// `pointer` is NULL, or leads to a live object of this library for as long as `'a` is used.
pub unsafe fn find<'a, O: Object>(pointer: *const O) -> Result<Option<&'a Handle<O>>, Error> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: by this function's contract.
    let tag = unsafe { tag_of(pointer.cast()) };
    if !tag.is_some_and(O::bears) {
        return Err(wrong_kind(O::ARGUMENT, O::NAME, tag));
    }
    // SAFETY: it bears the tag that only handles of this kind bear, and it is alive.
    Ok(Some(unsafe { &*pointer.cast::<Handle<O>>() }))
}

/// The object behind an argument, if it is one of that kind. Safe in a signal handler, where errors
/// are not made.
///
/// # Safety
///
/// As for `find`.
pub unsafe fn peek<'a, O: Object>(pointer: *const O) -> Option<&'a Handle<O>> {
    // SAFETY: by this function's contract.
    if pointer.is_null() || !unsafe { tag_of(pointer.cast()) }.is_some_and(O::bears) {
        return None;
    }
    // SAFETY: it bears the tag that only handles of this kind bear, and it is alive.
    Some(unsafe { &*pointer.cast::<Handle<O>>() })
}

/// The object behind an argument that must not be NULL.
///
/// # Safety
///
/// As for `find`.
pub unsafe fn lend<'a, O: Object>(pointer: *const O) -> Result<&'a Handle<O>, Error> {
    // SAFETY: by this function's contract.
    unsafe { find(pointer) }?.ok_or_else(|| null(O::ARGUMENT))
}

/// A reference of our own to the object behind an argument that must not be NULL.
///
/// # Safety
///
/// As for `find`, until this returns.
pub unsafe fn hold<O: Object>(pointer: *const O) -> Result<Arc<Handle<O>>, Error> {
    // SAFETY: by this function's contract.
    unsafe { lend(pointer) }?;
    let handle = pointer.cast::<Handle<O>>();
    // SAFETY: it was just recognised as a handle, every handle is in an `Arc`, and pointers to them
    // come from `Arc::into_raw` and `Arc::as_ptr` alone. It is alive, so its count is not zero.
    unsafe {
        Arc::increment_strong_count(handle);
        Ok(Arc::from_raw(handle))
    }
}

/// The tag of the object at `pointer`; none if no object can be there.
///
/// # Safety
///
/// `pointer` is not NULL, and if it is aligned, a tag's size can be read there.
pub unsafe fn tag_of(pointer: *const c_void) -> Option<Tag> {
    let pointer = pointer.cast::<Tag>();
    // SAFETY: a tag is a number, of which every value is one; readable by this function's contract.
    pointer.is_aligned().then(|| unsafe { pointer.read() })
}

pub fn null(argument: &str) -> Error {
    Error::invalid_argument(format!("{argument} is NULL"))
}

pub fn wrong_kind(argument: &str, wanted: &str, tag: Option<Tag>) -> Error {
    let what = tag.and_then(Tag::kind).unwrap_or("not a live object of this library");
    Error::invalid_argument(format!("{argument} must be an {wanted}, but is {what}"))
}

/// An out parameter, which is written on every return: NULL on entry, an object at the end.
pub struct Out<O>(Option<NonNull<*mut O>>);

impl<O: Object> Out<O> {
    /// # Safety
    ///
    /// `out` is NULL, or can be written to for as long as the value lives.
    pub unsafe fn new(out: *mut *mut O) -> Self {
        let out = NonNull::new(out);
        if let Some(out) = out {
            // SAFETY: by this function's contract.
            unsafe { out.write(ptr::null_mut()) };
        }
        Out(out)
    }

    /// An error if the host gave none, where it has to.
    pub fn required(self, argument: &str) -> Result<Self, Error> {
        if self.0.is_some() { Ok(self) } else { Err(null(argument)) }
    }

    /// Makes an object for the host, if it wants one, and can take it back.
    pub fn set_and_keep(self, body: O::Body) -> HandedOut<O> {
        let out = self.0.map(|out| {
            let object = give(body);
            // SAFETY: by the contract of `new`.
            unsafe { out.write(object) };
            (out, object)
        });
        HandedOut(out)
    }

    /// Makes an object for the host, if it wants one.
    pub fn set(self, body: impl Into<O::Body>) {
        if let Some(out) = self.0 {
            // SAFETY: by the contract of `new`.
            unsafe { out.write(give(body.into())) };
        }
    }
}

/// An object that was written to an out parameter before it was certain that it would stay there.
pub struct HandedOut<O>(Option<(NonNull<*mut O>, *mut O)>);

impl<O: Object> HandedOut<O> {
    /// Takes it back: the call fails after all.
    pub fn take_back(&self) {
        if let Some((out, object)) = self.0 {
            // SAFETY: the host has not got the object as long as the call has not returned, so it
            // is ours, and `out` can still be written to.
            unsafe {
                out.write(ptr::null_mut());
                drop(Arc::from_raw(object.cast_const().cast::<Handle<O>>()));
            }
        }
    }
}
