//! The harness: the real binary, scripted origins, clients down to the byte, certificates.

pub mod certificates;
pub mod check;
pub mod client;
pub mod commands;
pub mod dns;
pub mod eventually;
pub mod frames;
pub mod gateway;
pub mod grpc;
pub mod http2;
pub mod http2_origin;
pub mod load;
pub mod metrics;
pub mod origin;
pub mod ports;
pub mod response;
pub mod service;
pub mod threads;
pub mod tls;
pub mod websocket;
pub mod wire;

pub use check::{check, portcullis};
pub use client::Connection;
pub use gateway::Gateway;
pub use origin::{Gate, Origin, Received, Reply};
