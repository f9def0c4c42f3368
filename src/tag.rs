//! What kind of object a C pointer leads to.

/// The first word of every object handed out to C, one value per kind, so that a live object of the
/// wrong kind is recognised instead of being read as what it is not.
///
/// The values were drawn at random. Zeroes, small numbers, text and addresses are what stray memory
/// mostly holds, and a number with bytes all over its range looks like none of them.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(u64);

impl Tag {
    pub const CONFIG: Tag = Tag(0x1e35_66ff_64a4_88fe);
    pub const CLIENT: Tag = Tag(0xce72_77ef_776a_8c80);
    pub const USER: Tag = Tag(0x8f65_7508_7419_dffc);
    pub const FETCH_OPTIONS: Tag = Tag(0x86ce_4538_9627_668e);
    pub const VARIANTS: Tag = Tag(0x9554_4522_2cf6_5315);
    /// A set that a callback is lent.
    pub const BORROWED_VARIANTS: Tag = Tag(0xb27c_91f4_3ad8_e605);
    /// Borrowed: lives in its set.
    pub const VARIANT: Tag = Tag(0x03ac_73fd_575a_7d1f);
    pub const ERROR: Tag = Tag(0xd4c1_f615_457c_29d6);
    /// An error that a getter lends.
    pub const BORROWED_ERROR: Tag = Tag(0xccfc_ef96_61e8_c803);
    pub const PENDING: Tag = Tag(0xe123_42ec_4796_310a);
    pub const COMPLETIONS: Tag = Tag(0x1e4f_820a_2e0a_d40c);
    pub const CANCEL: Tag = Tag(0x112d_65c2_fdd3_d2e6);
    pub const TEXT: Tag = Tag(0xa78c_c3ca_ae36_92f7);

    /// What the header calls such an object, with its article.
    pub fn kind(self) -> Option<&'static str> {
        Some(match self {
            Tag::CONFIG => "an exp_config",
            Tag::CLIENT => "an exp_client",
            Tag::USER => "an exp_user",
            Tag::FETCH_OPTIONS => "an exp_fetch_options",
            Tag::VARIANTS | Tag::BORROWED_VARIANTS => "an exp_variants",
            Tag::VARIANT => "an exp_variant",
            Tag::ERROR | Tag::BORROWED_ERROR => "an exp_error",
            Tag::PENDING => "an exp_pending",
            Tag::COMPLETIONS => "an exp_completions",
            Tag::CANCEL => "an exp_cancel",
            Tag::TEXT => "an exp_text",
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Tag; 13] = [
        Tag::CONFIG,
        Tag::CLIENT,
        Tag::USER,
        Tag::FETCH_OPTIONS,
        Tag::VARIANTS,
        Tag::VARIANT,
        Tag::BORROWED_VARIANTS,
        Tag::ERROR,
        Tag::BORROWED_ERROR,
        Tag::PENDING,
        Tag::COMPLETIONS,
        Tag::CANCEL,
        Tag::TEXT,
    ];

    #[test]
    fn every_kind_has_a_tag_of_its_own() {
        for (position, tag) in ALL.iter().enumerate() {
            assert!(!ALL[..position].contains(tag), "{tag:?}");
        }
    }

    #[test]
    fn no_tag_looks_like_an_address_or_like_text() {
        for Tag(value) in ALL {
            assert!(value >> 48 != 0 && value >> 48 != 0xffff, "{value:x}");
            assert!(std::str::from_utf8(&value.to_ne_bytes()).is_err(), "{value:x}");
        }
    }
}
