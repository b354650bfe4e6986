//! How long one prefix lookup and one build take, by number of prefixes and address family. The clustered
//! sets lie in one /8 or /32: the hard case for an index.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use portcullis::access::cidr_set::CidrSet;
use std::cell::LazyCell;
use std::hint::black_box;
use std::net::IpAddr;

const SIZES: [usize; 4] = [10, 10_000, 100_000, 1_000_000];
/// Addresses asked in turn, more than one cache holds answers for.
const ADDRESSES: usize = 4096;

/// A reproducible stream of numbers (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn v4(&mut self, clustered: bool) -> u32 {
        let bits = (self.next() >> 32) as u32;
        if clustered { 0x0A00_0000 | bits >> 8 } else { bits }
    }

    fn v6(&mut self, clustered: bool) -> u128 {
        let bits = u128::from(self.next()) << 64 | u128::from(self.next());
        if clustered { 0x2001_0db8 << 96 | bits >> 32 } else { 1 << 125 | bits >> 3 }
    }
}

fn prefixes(family: &str, count: usize) -> Vec<IpNet> {
    let (mut numbers, clustered) = (Numbers(1), family.ends_with("clustered"));
    let v6 = family.starts_with("v6");
    let prefix = |numbers: &mut Numbers| {
        if v6 {
            let length = if clustered { 56 } else { 32 } + (numbers.next() % 33) as u8;
            IpNet::V6(Ipv6Net::new(numbers.v6(clustered).into(), length).expect("at most 128").trunc())
        } else {
            let length = 16 + (numbers.next() % 17) as u8;
            IpNet::V4(Ipv4Net::new(numbers.v4(clustered).into(), length).expect("at most 32").trunc())
        }
    };
    (0..count).map(|_| prefix(&mut numbers)).collect()
}

/// Half of them inside of a prefix, half anywhere.
fn addresses(family: &str, prefixes: &[IpNet]) -> Vec<IpAddr> {
    let (mut numbers, clustered) = (Numbers(2), family.ends_with("clustered"));
    let address = |index: usize| match (index % 2, family.starts_with("v6")) {
        (0, _) => prefixes[numbers.next() as usize % prefixes.len()].broadcast(),
        (_, true) => IpAddr::V6(numbers.v6(clustered).into()),
        (_, false) => IpAddr::V4(numbers.v4(clustered).into()),
    };
    (0..ADDRESSES).map(address).collect()
}

fn lookup(criterion: &mut Criterion) {
    for family in ["v4", "v6", "v4-clustered", "v6-clustered"] {
        let mut group = criterion.benchmark_group(format!("cidr_set/lookup/{family}"));
        group.throughput(Throughput::Elements(1));
        for size in SIZES {
            // Made only for the bench that is asked for: test runners start a process for each.
            let made = LazyCell::new(|| {
                let prefixes = prefixes(family, size);
                (CidrSet::build(prefixes.iter().copied()), addresses(family, &prefixes))
            });
            let mut next = 0;
            group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
                let (set, addresses) = &*made;
                bencher.iter(|| {
                    next = (next + 1) % ADDRESSES;
                    set.contains(black_box(addresses[next]))
                });
            });
        }
    }
}

fn build(criterion: &mut Criterion) {
    for family in ["v4", "v6"] {
        let mut group = criterion.benchmark_group(format!("cidr_set/build/{family}"));
        group.sample_size(10);
        for size in SIZES {
            let made = LazyCell::new(|| prefixes(family, size));
            group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
                let prefixes = &*made;
                bencher.iter(|| CidrSet::build(black_box(prefixes.iter().copied())));
            });
        }
    }
}

criterion_group!(benches, lookup, build);
criterion_main!(benches);
