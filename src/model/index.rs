//! Finds one of many names, which are in a list that somebody else holds, in one allocation at most.

use std::collections::TryReserveError;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use super::checkpoint::{Checkpoint, Stopped};

/// Up to so many names, looking at each is faster than hashing.
const SCANNED: usize = 8;

/// Knows at which position of the list a name is, the last if it is there more than once.
#[derive(Clone)]
pub(super) struct Index {
    names: usize,
    /// For more than `SCANNED`.
    table: Option<Table>,
}

/// Why there is no index.
pub(super) enum Unindexed {
    OutOfMemory,
    Stopped,
}

impl From<TryReserveError> for Unindexed {
    fn from(_: TryReserveError) -> Self {
        Unindexed::OutOfMemory
    }
}

impl From<Stopped> for Unindexed {
    fn from(_: Stopped) -> Self {
        Unindexed::Stopped
    }
}

impl Index {
    /// An index of no names.
    pub const EMPTY: Index = Index { names: 0, table: None };

    /// An index of so many names. `name_at` tells which is at a position; `earlier` is told of each
    /// position whose name comes again later.
    pub fn of<'a>(
        names: usize,
        name_at: impl Fn(usize) -> &'a [u8] + Copy,
        mut earlier: impl FnMut(usize),
        checkpoint: &mut Checkpoint,
    ) -> Result<Self, Unindexed> {
        if names <= SCANNED {
            for at in 0..names {
                for later in at + 1..names {
                    if is_same(name_at(later), name_at(at), checkpoint)? {
                        earlier(at);
                        break;
                    }
                }
            }
            return Ok(Index { names, table: None });
        }
        let mut table = Table::with_room_for(names)?;
        for at in 0..names {
            checkpoint.spent(size_of::<u32>())?;
            table.insert(name_at(at), at, name_at, checkpoint)?.into_iter().for_each(&mut earlier);
        }
        Ok(Index { names, table: Some(table) })
    }

    /// An index that looks at each name.
    pub fn scanning(names: usize) -> Self {
        Index { names, table: None }
    }

    /// The position of `name`.
    pub fn find<'a>(&self, name: &[u8], name_at: impl Fn(usize) -> &'a [u8]) -> Option<usize> {
        match &self.table {
            Some(table) => table.find(name, name_at),
            None => (0..self.names).find(|&at| name_at(at) == name),
        }
    }
}

/// A hash table of positions, keyed at random, so that nobody can choose names that collide.
#[derive(Clone)]
struct Table {
    /// Positions plus one, 0 for none. A power of two of them, at most half of them taken; a name
    /// is in the first free one from where its hash points.
    slots: Vec<u32>,
    keys: RandomState,
}

impl Table {
    fn with_room_for(names: usize) -> Result<Self, TryReserveError> {
        let size = (2 * names).next_power_of_two();
        let mut slots = Vec::new();
        slots.try_reserve_exact(size)?;
        slots.resize(size, 0);
        Ok(Table { slots, keys: RandomState::new() })
    }

    fn find<'a>(&self, name: &[u8], name_at: impl Fn(usize) -> &'a [u8]) -> Option<usize> {
        let slot = self.slot_of(name, name_at, &mut Checkpoint::unhurried());
        slot.ok().and_then(|slot| position(self.slots[slot]))
    }

    /// Enters `name`; returns the position that it takes the place of.
    fn insert<'a>(
        &mut self,
        name: &[u8],
        at: usize,
        name_at: impl Fn(usize) -> &'a [u8],
        checkpoint: &mut Checkpoint,
    ) -> Result<Option<usize>, Stopped> {
        let slot = self.slot_of(name, name_at, checkpoint)?;
        Ok(position(std::mem::replace(&mut self.slots[slot], at as u32 + 1)))
    }

    /// The slot that has the name, or the free one where it would be entered.
    fn slot_of<'a>(
        &self,
        name: &[u8],
        name_at: impl Fn(usize) -> &'a [u8],
        checkpoint: &mut Checkpoint,
    ) -> Result<usize, Stopped> {
        let mask = self.slots.len() - 1;
        let mut slot = self.hash(name, checkpoint)? as usize & mask;
        while let Some(at) = position(self.slots[slot]) {
            if is_same(name_at(at), name, checkpoint)? {
                break;
            }
            slot = (slot + 1) & mask;
        }
        Ok(slot)
    }

    /// A hash looks at every byte, and a name may be as large as the answer.
    fn hash(&self, name: &[u8], checkpoint: &mut Checkpoint) -> Result<u64, Stopped> {
        let mut hasher = self.keys.build_hasher();
        for piece in name.chunks(Checkpoint::INTERVAL) {
            hasher.write(piece);
            checkpoint.spent(piece.len())?;
        }
        Ok(hasher.finish())
    }
}

fn is_same(a: &[u8], b: &[u8], checkpoint: &mut Checkpoint) -> Result<bool, Stopped> {
    if a.len() <= Checkpoint::INTERVAL || a.len() != b.len() {
        return Ok(a == b);
    }
    for (a, b) in a.chunks(Checkpoint::INTERVAL).zip(b.chunks(Checkpoint::INTERVAL)) {
        if a != b {
            return Ok(false);
        }
        checkpoint.spent(a.len())?;
    }
    Ok(true)
}

fn position(slot: u32) -> Option<usize> {
    slot.checked_sub(1).map(|at| at as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The index of `names`, and the positions whose name comes again.
    fn index<'a>(names: usize, name_at: impl Fn(usize) -> &'a [u8] + Copy) -> (Index, Vec<usize>) {
        let mut earlier = Vec::new();
        let index = Index::of(names, name_at, |at| earlier.push(at), &mut Checkpoint::unhurried());
        (index.ok().unwrap(), earlier)
    }

    #[test]
    fn every_name_is_found_where_it_is_and_no_other_name_is() {
        for count in [0, 1, SCANNED, SCANNED + 1, 1000] {
            let names: Vec<String> = (0..count).map(|i| format!("flag-{i}")).collect();
            let name_at = |at: usize| names[at].as_bytes();
            let (index, earlier) = index(count, name_at);
            assert!(earlier.is_empty());
            for (at, name) in names.iter().enumerate() {
                assert_eq!(index.find(name.as_bytes(), name_at), Some(at));
            }
            for other in ["", "flag-", "flag-1000", "flag-0\0"] {
                assert_eq!(index.find(other.as_bytes(), name_at), None);
            }
        }
    }

    #[test]
    fn a_name_that_comes_again_is_told_of_at_all_but_its_last_position() {
        for (count, different) in [(5, 3), (1000, 700)] {
            let names: Vec<String> =
                (0..count).map(|i| format!("flag-{}", i % different)).collect();
            let (_, mut earlier) = index(count, |at: usize| names[at].as_bytes());
            earlier.sort_unstable();
            assert_eq!(earlier, (0..count - different).collect::<Vec<_>>());
        }
    }
}
