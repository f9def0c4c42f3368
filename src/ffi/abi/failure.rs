//! Failures: on their way to the host, and as it reads them.

use super::facts::Facts;
use super::handle::Object;
use super::text::Terminated;
use crate::rules::error::Error;
use crate::tag::Tag;

/// Why a call failed.
pub struct exp_error {
    _opaque: [u8; 0],
}

impl Object for exp_error {
    type Body = Report;
    const TAG: Tag = Tag::ERROR;
    const NAME: &'static str = "exp_error";
    const ARGUMENT: &'static str = "error";

    fn bears(tag: Tag) -> bool {
        matches!(tag, Tag::ERROR | Tag::BORROWED_ERROR)
    }
}

/// A failure on its way to the host.
pub struct Failure {
    pub error: Error,
    pub facts: Box<Facts>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure { error, facts: Box::new(Facts::NONE) }
    }
}

/// A failure as the host reads it.
pub struct Report {
    pub failure: Failure,
    pub message: Terminated,
}

impl From<Failure> for Report {
    fn from(failure: Failure) -> Self {
        let message = failure.error.message.clone().into_owned().into();
        Report { failure, message }
    }
}

impl Report {
    pub fn error(&self) -> &Error {
        &self.failure.error
    }
}
