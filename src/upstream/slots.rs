//! Which member does a key belong to? Consistent hashing by a table of slots.
//!
//! A key falls into a slot, and a slot belongs to the member that wins it (rendezvous, or highest random
//! weight, worked out once per slot). So a member that leaves loses its slots to all others by weight and
//! nothing else moves; one that comes wins its share and nothing else moves. A lookup is one load, shares
//! are as even as slots are many. A ring moves as little but needs very many points for even shares, and
//! Maglev's table, as even and as fast, moves a few keys of members that stay. Everything depends on the
//! labels and weights only: gateways of one configuration agree, and restarts change nothing.

/// Slots of a table; a member of a hundred gets about 655.
const SLOTS: usize = 1 << 16;

/// Most work spent on making a table, in slots × members; beyond that it has fewer slots.
const MAX_WORK: usize = 1 << 28;

/// Slots looked at for a free member, before members are tried one by one.
const PROBES: u64 = 64;

/// Who owns which keys.
#[derive(Debug)]
pub struct Slots {
    owners: Box<[u32]>,
    members: usize,
}

impl Slots {
    /// A table for members known by these labels, with these weights; `None` when none has weight.
    pub fn new(members: &[(&str, u32)]) -> Option<Slots> {
        let weighty = members.iter().filter(|(_, weight)| *weight > 0);
        let heaviest = weighty.clone().map(|(_, weight)| *weight).max()?;
        let even = weighty.clone().all(|(_, weight)| *weight == heaviest);
        let mut slots = SLOTS;
        while slots > 1 && slots.saturating_mul(members.len()) > MAX_WORK {
            slots /= 2;
        }
        let seeds: Vec<(u32, u64, f64)> = (0..)
            .zip(members)
            .filter(|(_, (_, weight))| *weight > 0)
            .map(|(member, (label, weight))| (member, key(label.as_bytes()), f64::from(*weight)))
            .collect();
        let owner = |slot: usize| {
            let draws = seeds
                .iter()
                .map(|(member, seed, weight)| (*member, mixed(seed ^ mixed(slot as u64 + 1)), *weight));
            let winner = match even {
                true => draws.max_by_key(|(_, draw, _)| *draw).map(|(member, ..)| member),
                // Exponential draws: the smallest is a member's as often as it weighs.
                false => draws
                    .map(|(member, draw, weight)| (member, -unit(draw).ln() / weight))
                    .min_by(|(_, a), (_, b)| a.total_cmp(b))
                    .map(|(member, _)| member),
            };
            winner.unwrap_or(0)
        };
        Some(Slots { owners: (0..slots).map(owner).collect(), members: members.len() })
    }

    /// The member `key` belongs to or, while that one is not free, one of the others by weight; always the
    /// same while the same are free. `None` when none is.
    pub fn pick(&self, key: u64, free: impl Fn(usize) -> bool) -> Option<usize> {
        let slot = |probe: u64| {
            let spread = if probe == 0 { key } else { mixed(key.wrapping_add(probe)) };
            // The high half of a 128-bit product maps a hash onto the slots evenly.
            ((u128::from(spread) * self.owners.len() as u128) >> 64) as usize
        };
        let probed = (0..PROBES).filter_map(|probe| self.owners.get(slot(probe)));
        probed.map(|owner| *owner as usize).find(|member| free(*member)).or_else(|| {
            let start = (key % self.members.max(1) as u64) as usize;
            (start..self.members).chain(0..start).find(|member| free(*member))
        })
    }
}

/// The key of some bytes. Must never change: who is served by whom depends on it.
pub fn key(bytes: &[u8]) -> u64 {
    let mut key = 0x9e37_79b9_7f4a_7c15 ^ bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        key = mixed(key ^ u64::from_le_bytes(word));
    }
    mixed(key)
}

/// One step of SplitMix64: every bit of the input changes half of the output's.
fn mixed(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Onto numbers between 0 and 1, both left out.
fn unit(draw: u64) -> f64 {
    ((draw >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u64 = 100_000;

    fn labels(members: usize) -> Vec<String> {
        (0..members).map(|member| format!("10.0.0.{member}:8080")).collect()
    }

    fn even(labels: &[String]) -> Slots {
        Slots::new(&labels.iter().map(|label| (label.as_str(), 1)).collect::<Vec<_>>()).unwrap()
    }

    fn of(slots: &Slots, number: u64) -> usize {
        slots.pick(key(&number.to_le_bytes()), |_| true).unwrap()
    }

    fn shares(slots: &Slots, members: usize) -> Vec<f64> {
        let mut shares = vec![0; members];
        (0..KEYS).for_each(|number| shares[of(slots, number)] += 1);
        shares.into_iter().map(|share| f64::from(share) / KEYS as f64).collect()
    }

    #[test]
    fn shares_follow_the_weights_within_a_percent() {
        for share in shares(&even(&labels(4)), 4) {
            assert!((share - 0.25).abs() < 0.01, "{share}");
        }
        let weighted = Slots::new(&[("a:1", 5), ("b:1", 3), ("c:1", 0), ("d:1", 2)]).unwrap();
        for (share, expected) in shares(&weighted, 4).into_iter().zip([0.5, 0.3, 0.0, 0.2]) {
            assert!((share - expected).abs() < 0.01, "{share} {expected}");
        }
    }

    #[test]
    fn only_the_keys_of_a_member_that_leaves_move_and_they_go_to_all_others() {
        let all = labels(10);
        let (before, after) = (even(&all), even(&all[1..]));
        let mut gained = [0; 9];
        for number in 0..KEYS {
            let (old, new) = (of(&before, number), of(&after, number));
            match old {
                0 => gained[new] += 1,
                stays => assert_eq!(new, stays - 1),
            }
        }
        assert!(gained.iter().all(|gain| (800..1_500).contains(gain)), "{gained:?}");
    }

    #[test]
    fn weighted_members_move_as_little() {
        let all = [("a:1", 5), ("b:1", 3), ("c:1", 2)];
        let (before, after) = (Slots::new(&all).unwrap(), Slots::new(&all[..2]).unwrap());
        for number in 0..KEYS {
            let (old, new) = (of(&before, number), of(&after, number));
            assert!(old == new || old == 2);
        }
    }

    #[test]
    fn while_a_member_is_out_only_its_keys_go_elsewhere_and_always_to_the_same() {
        let slots = even(&labels(5));
        let mut gained = [0; 5];
        for number in 0..KEYS {
            let key = key(&number.to_le_bytes());
            let owner = slots.pick(key, |_| true).unwrap();
            let now = slots.pick(key, |member| member != 2).unwrap();
            assert_eq!(now, slots.pick(key, |member| member != 2).unwrap());
            match owner {
                2 => gained[now] += 1,
                stays => assert_eq!(now, stays),
            }
        }
        assert!([0, 1, 3, 4].iter().all(|member| (4_000..6_000).contains(&gained[*member])), "{gained:?}");
    }

    #[test]
    fn the_last_free_member_is_found() {
        let slots = even(&labels(200));
        assert_eq!(slots.pick(7, |member| member == 123), Some(123));
        assert_eq!(slots.pick(7, |_| false), None);
        assert!(Slots::new(&[("a:1", 0)]).is_none() && Slots::new(&[]).is_none());
    }

    #[test]
    fn keys_never_change() {
        assert_eq!(key(b""), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(key(b"10.0.0.1:8080"), 0x62bf_68d1_f152_9bd1);
    }
}
