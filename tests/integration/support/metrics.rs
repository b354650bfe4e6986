//! The Prometheus text format, read back.

use std::collections::BTreeMap;

/// A name and its labels.
type Key = (String, BTreeMap<String, String>);

/// One scrape: name and sorted labels of every series, and its value.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    series: BTreeMap<Key, f64>,
}

impl Metrics {
    /// Parses a scrape; panics on a line it does not understand or a series that comes twice.
    pub fn parse(text: &str) -> Self {
        let mut series = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (key, value) = parse_line(line).unwrap_or_else(|| panic!("not a sample: {line:?}"));
            assert!(series.insert(key, value).is_none(), "twice in one scrape: {line}");
        }
        Metrics { series }
    }

    /// The sum of all series of this name that carry at least these labels; 0 when there is none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.matching(name, labels).map(|(_, value)| value).sum()
    }

    /// The value of the only series of this name with at least these labels; `None` when missing.
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let found: Vec<_> = self.matching(name, labels).collect();
        assert!(found.len() < 2, "{name}{labels:?} is {} series", found.len());
        found.first().map(|(_, value)| *value)
    }

    /// How many series there are.
    pub fn count(&self) -> usize {
        self.series.len()
    }

    /// All values of one label of one name.
    pub fn label_values(&self, name: &str, label: &str) -> Vec<String> {
        let named = self.matching(name, &[]);
        let mut values: Vec<_> = named.filter_map(|((_, labels), _)| labels.get(label).cloned()).collect();
        values.sort();
        values.dedup();
        values
    }

    fn matching<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = (&'a Key, f64)> + 'a {
        self.series.iter().filter_map(move |(key, value)| {
            let carried = |(label, wanted): &(&str, &str)| key.1.get(*label).is_some_and(|is| is == wanted);
            (key.0 == name && labels.iter().all(carried)).then_some((key, *value))
        })
    }
}

fn parse_line(line: &str) -> Option<(Key, f64)> {
    let Some((name, rest)) = line.split_once('{') else {
        let (name, value) = line.split_once(' ')?;
        return Some(((name.to_owned(), BTreeMap::new()), value.parse().ok()?));
    };
    let mut labels = BTreeMap::new();
    let mut rest = rest;
    while !rest.starts_with('}') {
        let (label, after) = rest.split_once("=\"")?;
        let end = closing_quote(after)?;
        labels.insert(label.to_owned(), after[..end].to_owned());
        rest = after[end + 1..].trim_start_matches(',');
    }
    Some(((name.to_owned(), labels), rest.strip_prefix("} ")?.parse().ok()?))
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(index, character)| {
        let closes = character == '"' && !escaped;
        escaped = character == '\\' && !escaped;
        closes.then_some(index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAPE: &str = "# TYPE a counter\na{route=\"x, y=\\\"z\\\"\",code=\"200\"} 2\na{route=\"b\",code=\"200\"} 1\nb 1.5\n";

    #[test]
    fn series_are_found_by_some_of_their_labels() {
        let metrics = Metrics::parse(SCRAPE);
        assert_eq!(metrics.sum("a", &[("code", "200")]), 3.0);
        assert_eq!(metrics.get("a", &[("route", "b")]), Some(1.0));
        assert_eq!(metrics.get("b", &[]), Some(1.5));
        assert_eq!(metrics.label_values("a", "code"), ["200"]);
    }

    #[test]
    #[should_panic(expected = "twice")]
    fn a_series_that_comes_twice_is_an_error() {
        Metrics::parse("a 1\na 2\n");
    }
}
