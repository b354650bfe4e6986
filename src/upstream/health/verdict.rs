//! How many checks make a verdict? Counts results in a row for one endpoint.

use crate::upstream::state::Health;

/// Results in a row that speak against what is known.
#[derive(Debug, Default)]
pub struct Tally {
    against: u32,
}

impl Tally {
    /// Counts one result; `Some` when what is known changes with it. The first result is a verdict by
    /// itself: a new endpoint waits for nothing but its first good check.
    pub fn count(&mut self, known: Health, passed: bool, healthy: u32, unhealthy: u32) -> Option<Health> {
        let (verdict, needed) = match (known, passed) {
            (Health::Pending, true) => (Health::Up, 1),
            (Health::Pending, false) => (Health::Down, 1),
            (Health::Down, true) => (Health::Up, healthy),
            // It serves already, for nobody has checked it so far.
            (Health::Up | Health::Unchecked, false) => (Health::Down, unhealthy),
            (Health::Up | Health::Unchecked, true) | (Health::Down, false) => {
                self.against = 0;
                return None;
            }
        };
        self.against += 1;
        if self.against < needed {
            return None;
        }
        self.against = 0;
        Some(verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+` and `-` are results; `U` and `D` where the verdict changed.
    fn story(mut known: Health, results: &str) -> String {
        let mut tally = Tally::default();
        let mut letter = |result| match tally.count(known, result == '+', 2, 3) {
            Some(verdict) => {
                known = verdict;
                if verdict == Health::Up { 'U' } else { 'D' }
            }
            None => '.',
        };
        results.chars().map(&mut letter).collect()
    }

    #[test]
    fn the_first_result_decides_and_later_ones_in_a_row() {
        assert_eq!(story(Health::Pending, "+---++"), "U..D.U");
        assert_eq!(story(Health::Pending, "-+-++"), "D...U");
        assert_eq!(story(Health::Up, "--+--+---"), "........D");
    }
}
