//! How a metric is described, and how live values become the samples of one scrape.
//!
//! Our per-route, per-upstream and per-listener values are plain atomics that a scrape reads; they are
//! not series of the metrics library. So a request in flight can never bring a removed series back,
//! and no request ever waits for a lock that a scrape holds. Does not know which metrics exist.

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What a value of a family does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts durations by bucket.
    Histogram,
}

/// The one definition of a metric.
#[derive(Debug)]
pub(super) struct Family {
    /// Full name, unit last.
    pub name: &'static str,
    /// One sentence for the reader of a scrape.
    pub help: &'static str,
    /// Label names in the order of the values.
    pub labels: &'static [&'static str],
    /// What its values do.
    pub kind: Kind,
}

impl Family {
    /// A sample of a counter.
    pub(super) fn counter(&self, values: &[&str], value: u64) -> Metric {
        debug_assert_eq!(self.kind, Kind::Counter);
        let mut metric = self.labelled(values);
        let mut counter = Counter::default();
        counter.set_value(value as f64);
        metric.set_counter(counter);
        metric
    }

    /// A sample of a gauge.
    pub(super) fn gauge(&self, values: &[&str], value: i64) -> Metric {
        debug_assert_eq!(self.kind, Kind::Gauge);
        let mut metric = self.labelled(values);
        let mut gauge = Gauge::default();
        gauge.set_value(value as f64);
        metric.set_gauge(gauge);
        metric
    }

    /// A sample without a value yet; one label value for each label name.
    pub(super) fn labelled(&self, values: &[&str]) -> Metric {
        debug_assert_eq!(self.labels.len(), values.len());
        let pairs = self.labels.iter().zip(values).map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            pair
        });
        Metric::from_label(pairs.collect())
    }

    fn describe(&self) -> Desc {
        let labels = self.labels.iter().map(|label| (*label).to_owned()).collect();
        Desc::new(self.name.to_owned(), self.help.to_owned(), labels, HashMap::new())
            .expect("metric names and labels are constants checked by the tests")
    }

    fn gathered(&self, samples: Vec<Metric>) -> MetricFamily {
        let mut family = MetricFamily::default();
        family.set_name(self.name.to_owned());
        family.set_help(self.help.to_owned());
        family.set_field_type(match self.kind {
            Kind::Counter => MetricType::COUNTER,
            Kind::Gauge => MetricType::GAUGE,
            Kind::Histogram => MetricType::HISTOGRAM,
        });
        family.set_metric(samples);
        family
    }
}

/// Something whose values a scrape reads.
pub(super) trait Observed: Send + Sync {
    /// The families it has samples of.
    const FAMILIES: &'static [&'static Family];

    /// Appends its samples; `out[i]` belongs to `FAMILIES[i]`.
    fn collect(&self, out: &mut [Vec<Metric>]);
}

/// Shows an [`Observed`] to the registry.
pub(super) struct Shown<T> {
    observed: Arc<T>,
    descriptions: Vec<Desc>,
}

impl<T: Observed> Shown<T> {
    /// Ready to be registered.
    pub(super) fn new(observed: Arc<T>) -> Box<Self> {
        let descriptions = T::FAMILIES.iter().map(|family| family.describe()).collect();
        Box::new(Shown { observed, descriptions })
    }
}

impl<T: Observed> Collector for Shown<T> {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut samples: Vec<Vec<Metric>> = T::FAMILIES.iter().map(|_| Vec::new()).collect();
        self.observed.collect(&mut samples);
        T::FAMILIES.iter().zip(samples).map(|(family, samples)| family.gathered(samples)).collect()
    }
}

/// Handles by configured name. One name has one handle for as long as it is kept, so its counters
/// never go back across a reload. The lock is taken at compile and by scrapes, never by a request.
pub(super) struct Named<T> {
    handles: Mutex<HashMap<Arc<str>, Arc<T>>>,
    create: fn(Arc<str>) -> T,
}

impl<T> Named<T> {
    /// No name yet; `create` makes the handle of a new one.
    pub(super) fn new(create: fn(Arc<str>) -> T) -> Arc<Self> {
        Arc::new(Named { handles: Mutex::default(), create })
    }

    /// The handle of `name`, created the first time.
    pub(super) fn get(&self, name: &str) -> Arc<T> {
        let mut handles = self.handles.lock();
        if let Some(handle) = handles.get(name) {
            return Arc::clone(handle);
        }
        let name: Arc<str> = name.into();
        let handle = Arc::new((self.create)(Arc::clone(&name)));
        handles.insert(name, Arc::clone(&handle));
        handle
    }

    /// Forgets every name that is not in `names`.
    pub(super) fn retain(&self, names: &HashSet<&str>) {
        self.handles.lock().retain(|name, _| names.contains(&**name));
    }
}

impl<T: Observed> Observed for Named<T> {
    const FAMILIES: &'static [&'static Family] = T::FAMILIES;

    fn collect(&self, out: &mut [Vec<Metric>]) {
        // Copied out first, so that a reload never waits while a big scrape is put together.
        let handles: Vec<Arc<T>> = self.handles.lock().values().cloned().collect();
        for handle in handles {
            handle.collect(out);
        }
    }
}
