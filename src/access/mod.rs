//! Who may talk to us: CIDR policies and the real client address.
//!
//! Reading order: [`client_addr`] says who the client is, [`policy`] whether it may come in;
//! [`cidr_set`] is the compiled form of the prefixes both ask, [`cidr_list`] how they are read.
//! This room knows nothing of requests beyond their headers, and nothing of what a refusal looks like.

pub mod cidr_list;
pub mod cidr_set;
pub mod client_addr;
pub mod policy;

mod forwarded;
mod intervals;
