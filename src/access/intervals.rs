//! Nested ranges of keys flattened to disjoint intervals, found in near-constant time.
//!
//! Prefixes nest but never overlap otherwise, so "the most specific one that holds the key" is fixed
//! between two neighbouring boundaries. What is kept is the sorted boundaries and the answer that
//! begins at each. A directory cuts the span of the boundaries into equal slots, about four boundaries
//! each; a slot that is still crowded (prefixes cluster) gets a directory of its own, at most
//! [`MAX_DEPTH`] deep; what is left is a binary search in a slot. A handful of intervals has no directory.
//!
//! It does not know what its keys are addresses of.

/// An address as an integer.
pub(super) trait Key: Copy + Ord {
    /// The largest one.
    const MAX: Self;
    /// The one after it; only asked of keys below [`Key::MAX`].
    fn next(self) -> Self;
    /// Bits needed to write `self - base`.
    fn distance_bits(self, base: Self) -> u32;
    /// `(self - base) >> shift`; the caller has checked that the result is a slot number.
    fn slot(self, base: Self, shift: u32) -> usize;
}

macro_rules! key {
    ($type:ty) => {
        impl Key for $type {
            const MAX: Self = <$type>::MAX;
            #[inline]
            fn next(self) -> Self {
                self.wrapping_add(1)
            }
            #[inline]
            fn distance_bits(self, base: Self) -> u32 {
                <$type>::BITS - self.wrapping_sub(base).leading_zeros()
            }
            #[inline]
            fn slot(self, base: Self, shift: u32) -> usize {
                self.wrapping_sub(base).wrapping_shr(shift) as usize
            }
        }
    };
}
key!(u32);
key!(u128);

/// One range to be flattened, ends included. Two ranges nest or are apart.
pub(super) struct Range<K, V> {
    pub first: K,
    pub last: K,
    pub value: V,
}

/// A slot with no more boundaries than this is searched; a fuller one gets its own directory.
const SLOT_FULL: usize = 48;
/// Boundaries that need no directory at all.
const NO_DIRECTORY: usize = 20;
/// Largest directory: 2^18 slots of four bytes.
const MAX_SLOT_BITS: u32 = 18;
/// Directories below directories.
const MAX_DEPTH: u32 = 4;
/// Marks a slot that names a directory instead of a boundary.
const NESTED: u32 = 1 << 31;

/// The boundaries `low..high`, cut into slots of `2^shift` keys from `base`.
#[derive(Debug, Clone)]
struct Directory<K> {
    base: K,
    last: K,
    low: u32,
    high: u32,
    /// Where its slots begin; slot `n` of it is `slots[first_slot + n]`, and one closing slot follows.
    first_slot: u32,
    shift: u32,
}

/// Disjoint intervals of `K` with the value of each.
#[derive(Debug, Clone)]
pub(super) struct Intervals<K, V> {
    starts: Box<[K]>,
    values: Box<[Option<V>]>,
    /// The first one is the root; empty for few boundaries.
    directories: Box<[Directory<K>]>,
    slots: Box<[u32]>,
}

impl<K: Key, V: Copy + PartialEq> Intervals<K, V> {
    /// Flattens ranges. Of two equal ranges the later one in the list wins. O(n log n).
    pub fn build(mut ranges: Vec<Range<K, V>>) -> Self {
        ranges.sort_by(|a, b| a.first.cmp(&b.first).then(b.last.cmp(&a.last)));
        let (starts, values) = flatten(ranges);
        let mut index = Index { starts: &starts, directories: Vec::new(), slots: Vec::new() };
        if starts.len() > NO_DIRECTORY {
            index.add(0, starts.len(), MAX_DEPTH);
        }
        let (directories, slots) = (index.directories.into_boxed_slice(), index.slots.into_boxed_slice());
        Intervals { starts: starts.into_boxed_slice(), values: values.into_boxed_slice(), directories, slots }
    }

    /// The value of the most specific range that holds the key. Does not allocate.
    #[inline]
    pub fn get(&self, key: K) -> Option<V> {
        let (low, high) = self.narrow(key);
        let held = self.starts.get(low..high)?.partition_point(|start| *start <= key);
        *self.values.get((low + held).checked_sub(1)?)?
    }

    /// The boundaries among which the last one not above `key` is; `(n, n)` when it is known to be `n - 1`.
    #[inline]
    fn narrow(&self, key: K) -> (usize, usize) {
        let mut next = self.directories.first();
        let mut bounds = (0, self.starts.len());
        while let Some(directory) = next {
            if key < directory.base {
                return (directory.low as usize, directory.low as usize);
            }
            if key >= directory.last {
                return (directory.high as usize, directory.high as usize);
            }
            let slot = directory.first_slot as usize + key.slot(directory.base, directory.shift);
            let (Some(&low), Some(&high)) = (self.slots.get(slot), self.slots.get(slot + 1)) else {
                return bounds;
            };
            if low & NESTED == 0 {
                return (low as usize, boundary(&self.directories, high));
            }
            next = self.directories.get((low & !NESTED) as usize);
            bounds = (directory.low as usize, directory.high as usize);
        }
        bounds
    }
}

/// The boundary a slot begins at.
#[inline]
fn boundary<K>(directories: &[Directory<K>], slot: u32) -> usize {
    if slot & NESTED == 0 {
        slot as usize
    } else {
        directories.get((slot & !NESTED) as usize).map_or(0, |directory| directory.low as usize)
    }
}

/// Sweeps over sorted ranges, keeping those that are open on a stack, innermost last.
fn flatten<K: Key, V: Copy + PartialEq>(ranges: Vec<Range<K, V>>) -> (Vec<K>, Vec<Option<V>>) {
    let mut out = Boundaries { starts: Vec::with_capacity(ranges.len()), values: Vec::new() };
    let mut open: Vec<Range<K, V>> = Vec::new();
    for range in ranges {
        close(&mut open, &mut out, |last| last < range.first);
        out.push(range.first, Some(range.value));
        open.push(range);
    }
    close(&mut open, &mut out, |_| true);
    (out.starts, out.values)
}

/// Ends the open ranges whose last key `ended` holds for, innermost first.
fn close<K: Key, V: Copy + PartialEq>(
    open: &mut Vec<Range<K, V>>,
    out: &mut Boundaries<K, V>,
    ended: impl Fn(K) -> bool,
) {
    while let Some(range) = open.pop_if(|range| ended(range.last)) {
        if range.last < K::MAX {
            out.push(range.last.next(), open.last().map(|outer| outer.value));
        }
    }
}

struct Boundaries<K, V> {
    starts: Vec<K>,
    values: Vec<Option<V>>,
}

impl<K: Key, V: Copy + PartialEq> Boundaries<K, V> {
    /// From `start` on the answer is `value`; a boundary where nothing changes is left out.
    fn push(&mut self, start: K, value: Option<V>) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.values.pop();
        }
        if self.values.last().copied().flatten() != value {
            self.starts.push(start);
            self.values.push(value);
        }
    }
}

/// The directories under construction.
struct Index<'a, K> {
    starts: &'a [K],
    directories: Vec<Directory<K>>,
    slots: Vec<u32>,
}

impl<K: Key> Index<'_, K> {
    /// Adds a directory of the boundaries `low..high` (two at least) and returns its number.
    fn add(&mut self, low: usize, high: usize, depth: u32) -> u32 {
        let (base, last) = (self.starts[low], self.starts[high - 1]);
        let wanted_bits = ((high - low) / 4).next_power_of_two().trailing_zeros().clamp(1, MAX_SLOT_BITS);
        let shift = last.distance_bits(base).saturating_sub(wanted_bits);
        let first_slot = self.slots.len();
        let count = last.slot(base, shift) + 1;

        let mut next = low;
        for slot in 0..=count {
            while next < high && self.starts[next].slot(base, shift) < slot {
                next += 1;
            }
            self.slots.push(next as u32);
        }
        let number = self.directories.len() as u32;
        self.directories.push(Directory {
            base,
            last,
            low: low as u32,
            high: high as u32,
            first_slot: first_slot as u32,
            shift,
        });
        for slot in first_slot..first_slot + count {
            let (from, to) = (self.slots[slot] as usize, self.slots[slot + 1] as usize);
            if to - from > SLOT_FULL && depth > 1 {
                self.slots[slot] = NESTED | self.add(from, to, depth - 1);
            }
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u32, last: u32, value: u8) -> Range<u32, u8> {
        Range { first, last, value }
    }

    #[test]
    fn innermost_range_answers_and_outer_one_resumes_after_it() {
        let map = Intervals::build(vec![range(0, 99, 1), range(10, 19, 2), range(12, 12, 3)]);
        let answers: Vec<_> = [0, 9, 10, 12, 13, 19, 20, 99, 100].map(|key| map.get(key)).into();
        let some = [1, 1, 2, 3, 2, 2, 1, 1].map(Some);
        assert_eq!(answers, [&some[..], &[None]].concat());
    }

    #[test]
    fn later_of_two_equal_ranges_wins_and_nothing_leaks_past_the_end() {
        let map = Intervals::build(vec![range(5, u32::MAX, 1), range(5, u32::MAX, 2)]);
        assert_eq!((map.get(4), map.get(5), map.get(u32::MAX)), (None, Some(2), Some(2)));
    }

    #[test]
    fn neighbours_with_one_value_become_one_interval() {
        let map = Intervals::build((0..1000).map(|n| range(n * 2, n * 2 + 1, 7)).collect());
        assert_eq!(map.starts.len(), 2);
    }

    #[test]
    fn crowded_slots_are_nested_and_still_right() {
        let far = (0..200).map(|n| range(n * 20_000_000, n * 20_000_000, 1));
        let near = (0..20_000).map(|n| range(5_000_000 + n * 2, 5_000_000 + n * 2, 2));
        let map = Intervals::build(far.chain(near).collect());
        assert!(map.directories.len() > 1);
        for n in 0..20_000 {
            assert_eq!(map.get(5_000_000 + n * 2), Some(2), "{n}");
            assert_eq!(map.get(5_000_001 + n * 2), None, "{n}");
        }
        assert_eq!((map.get(20_000_000), map.get(20_000_001), map.get(u32::MAX)), (Some(1), None, None));
    }

    #[test]
    fn empty_set_holds_nothing() {
        let map = Intervals::<u128, ()>::build(Vec::new());
        assert_eq!((map.get(0), map.get(u128::MAX)), (None, None));
    }
}
