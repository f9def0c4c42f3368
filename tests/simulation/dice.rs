//! Chance, all of which follows from a seed: what happens in a world, and who runs next in it.

use std::cell::Cell;

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

/// SplitMix64.
#[derive(Clone, Copy, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.roll() % bound as u64) as usize
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// One in so many times.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

thread_local! {
    static SEED: Cell<u64> = const { Cell::new(0) };
}

/// The seed of the world that is played.
pub fn seed() -> u64 {
    SEED.get()
}

/// Who runs next, in one world after the other.
pub struct Order {
    seeds: std::ops::Range<u64>,
    dice: Dice,
    /// How often somebody else gets a turn, who need not.
    restless: usize,
}

impl Order {
    pub fn of(seeds: std::ops::Range<u64>) -> Self {
        Order { seeds, dice: Dice::new(0), restless: 1 }
    }
}

/// The clock is the first thread that a world starts. It goes on when nobody else can.
fn is_clock(task: &Task) -> bool {
    usize::from(task.id()) == 1
}

impl Scheduler for Order {
    fn new_execution(&mut self) -> Option<Schedule> {
        let seed = self.seeds.next()?;
        SEED.set(seed);
        self.dice = Dice::new(seed);
        self.restless = self.dice.one_of(&[1, 2, 8]);
        Some(Schedule::new(seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let others: Vec<TaskId> =
            runnable.iter().filter(|task| !is_clock(task)).map(|task| task.id()).collect();
        if others.is_empty() {
            return runnable.first().map(|clock| clock.id());
        }
        match current.filter(|it| others.contains(it)) {
            Some(current) if !is_yielding && !self.dice.once_in(self.restless) => Some(current),
            _ => Some(self.dice.one_of(&others)),
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.dice.roll()
    }
}
