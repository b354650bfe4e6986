//! Defaults that depend on something else in the file: names, and what an access policy does when
//! nothing matches. All others stand beside their types.

use super::Config;
use std::collections::{HashMap, HashSet};

impl Config {
    /// Fills in the names of listeners and routes and the defaults of access policies. Names of
    /// routes that would be equal get `#2`, `#3` and so on; written names are never changed.
    pub fn fill_defaults(&mut self) {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            listener.name = Some(listener.name(index).into_owned());
        }
        let mut taken: HashSet<String> = self.routes.iter().filter_map(|route| route.name.clone()).collect();
        let mut next = HashMap::new();
        for route in self.routes.iter_mut().filter(|route| route.name.is_none()) {
            let wanted = route.default_name();
            let number = next.entry(wanted.clone()).or_insert(1_u64);
            let name = free_name(wanted, number, &taken);
            taken.insert(name.clone());
            route.name = Some(name);
        }
        let of_routes = self.routes.iter_mut().filter_map(|route| route.access.as_mut());
        for access in of_routes.chain([&mut self.access]) {
            access.default = Some(access.default_action());
        }
    }
}

/// `wanted`, or the next of `wanted#2`, `wanted#3`, … that is free. `number` goes on from name to name, so
/// that many equal ones take no longer each.
fn free_name(wanted: String, number: &mut u64, taken: &HashSet<String>) -> String {
    let mut name = wanted.clone();
    // Bounded by the number of names taken.
    while taken.contains(&name) {
        *number += 1;
        name = format!("{wanted}#{number}");
    }
    name
}
