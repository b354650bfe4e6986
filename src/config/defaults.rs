//! Defaults that depend on something else in the file: names, and what an access policy does when
//! nothing matches. All others stand beside their types.

use super::Config;
use std::collections::HashSet;

impl Config {
    /// Fills in the names of listeners and routes and the defaults of access policies. Names of
    /// routes that would be equal get `#2`, `#3` and so on; written names are never changed.
    pub fn fill_defaults(&mut self) {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            listener.name = Some(listener.name(index).into_owned());
        }
        let mut taken: HashSet<String> = self.routes.iter().filter_map(|route| route.name.clone()).collect();
        for route in &mut self.routes {
            if route.name.is_none() {
                let name = free_name(&route.default_name(), &taken);
                taken.insert(name.clone());
                route.name = Some(name);
            }
        }
        let of_routes = self.routes.iter_mut().filter_map(|route| route.access.as_mut());
        for access in of_routes.chain([&mut self.access]) {
            access.default = Some(access.default_action());
        }
    }
}

fn free_name(name: &str, taken: &HashSet<String>) -> String {
    if !taken.contains(name) {
        return name.to_owned();
    }
    // Bounded by the number of names taken.
    (2u64..).map(|n| format!("{name}#{n}")).find(|name| !taken.contains(name)).unwrap_or_default()
}
