//! Finds one of many names: a hash table of their positions in a list that somebody else holds.

use std::collections::TryReserveError;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// One allocation, whatever the names. Keyed at random, so that nobody can choose names that
/// collide.
#[derive(Clone)]
pub(super) struct Index {
    /// Positions plus one, 0 for none. A power of two of them, at most half of them taken; a name
    /// is in the first free one from where its hash points.
    slots: Vec<u32>,
    keys: RandomState,
}

impl Index {
    pub fn with_room_for(names: usize) -> Result<Self, TryReserveError> {
        let size = (2 * names).next_power_of_two().max(2);
        let mut slots = Vec::new();
        slots.try_reserve_exact(size)?;
        slots.resize(size, 0);
        Ok(Index { slots, keys: RandomState::new() })
    }

    /// The position of `name`. `name_at` tells which name is at a position.
    pub fn find<'a>(&self, name: &[u8], name_at: impl Fn(usize) -> &'a [u8]) -> Option<usize> {
        position(self.slots[self.slot_of(name, name_at)])
    }

    /// Enters `name`; returns the position that it takes the place of.
    pub fn insert<'a>(
        &mut self,
        name: &[u8],
        at: usize,
        name_at: impl Fn(usize) -> &'a [u8],
    ) -> Option<usize> {
        let slot = self.slot_of(name, name_at);
        position(std::mem::replace(&mut self.slots[slot], at as u32 + 1))
    }

    /// The slot that has the name, or the free one where it would be entered.
    fn slot_of<'a>(&self, name: &[u8], name_at: impl Fn(usize) -> &'a [u8]) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = self.keys.hash_one(name) as usize & mask;
        while position(self.slots[slot]).is_some_and(|at| name_at(at) != name) {
            slot = (slot + 1) & mask;
        }
        slot
    }
}

fn position(slot: u32) -> Option<usize> {
    slot.checked_sub(1).map(|at| at as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_at_its_last_position_and_no_other_name_is() {
        let names: Vec<String> = (0..1000).map(|i| format!("flag-{}", i % 700)).collect();
        let name_at = |at: usize| names[at].as_bytes();
        let mut index = Index::with_room_for(names.len()).unwrap();
        let replaced: Vec<_> =
            (0..names.len()).filter_map(|at| index.insert(name_at(at), at, name_at)).collect();
        assert_eq!(replaced, (0..300).collect::<Vec<_>>());
        for (at, name) in names.iter().enumerate() {
            let last = if at < 300 { at + 700 } else { at };
            assert_eq!(index.find(name.as_bytes(), name_at), Some(last));
        }
        for other in ["", "flag-", "flag-700", "flag-0\0"] {
            assert_eq!(index.find(other.as_bytes(), name_at), None);
        }
    }
}
