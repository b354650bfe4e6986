//! Where is it sent? Pools of endpoints, how one is chosen, and how it is connected to.
//!
//! [`pool`] compiles one entry of `upstreams:` (or the inline list of a route; [`pool_name`] keeps their names apart); its [`members`] settle who
//! may be chosen, by the [`state`] of each [`endpoint`], which [`health`] asks how it is; a [`tier`] chooses,
//! in turn or at random ([`balance`]), by load ([`latency`]) or by key ([`slots`]), unless the client is tied
//! to one ([`sticky`]); [`split`] chooses between pools; [`transport`] reads the TLS settings towards an
//! upstream, [`identity`] sees to it that an endpoint is who it should be; [`peer`] turns an endpoint into what Pingora connects to, and [`announce`] lets it be told who
//! the client is.
//!
//! [`link`] is one exchange over a connection that is there; `protocol` says what is spoken, [`retry`] when a request is sent once more, [`kept_alive`] how long an
//! endpoint keeps idle connections.
//!
//! The room knows nothing of routes or requests.

pub mod announce;
pub mod balance;
pub mod ejection;
pub mod endpoint;
#[cfg(test)]
mod fixtures;
pub mod health;
pub mod identity;
pub mod idle;
pub mod kept_alive;
pub mod latency;
pub mod link;
pub mod members;
pub mod mirror;
pub mod moment;
pub mod names;
pub mod peer;
pub mod pool;
pub mod pool_name;
mod protocol;
pub mod retry;
pub mod slots;
pub mod split;
pub mod state;
pub mod sticky;
pub mod tier;
pub mod transport;
