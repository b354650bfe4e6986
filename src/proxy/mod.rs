//! What happens to a request.
//!
//! [`gateway`] is the table of contents: the phases in running order. Each phase's work
//! stands in a file of its own: [`intake`] makes the head canonical or refuses it ([`http2_fields`]: what HTTP/2 allows), [`decide`]
//! evaluates client address, access and route, [`answer`] gives the gateway's own answers ([`whole`]: in one
//! piece),
//! [`request_body`] reads what the client sends and knows when that has ended,
//! [`forward`] forwards, [`engine`] what asks for more than a response;
//! [`tunnel`] runs what was upgraded;
//! [`affinity`] says what ties a request to an endpoint,
//! [`forwarding`] says what the upstream is told ([`request_head`]: in bytes), [`response_head`] what the client is told,
//! [`failure`] turns what went wrong into a rejection, [`record`] writes the log line and the metrics,
//! [`refusal`] those of requests the door has refused.

pub mod affinity;
pub mod answer;
pub mod context;
pub mod decide;
pub mod engine;
pub mod failure;
pub mod forward;
pub mod forwarding;
pub mod gateway;
pub mod grpc;
pub mod http2_fields;
pub mod intake;
pub mod mirror;
pub mod protocol;
pub mod record;
pub mod refusal;
pub mod request_body;
pub mod request_head;
pub mod request_id;
pub mod request_target;
pub mod response_head;
pub mod retry;
pub mod tunnel;
pub mod upstream;
pub mod upstream_deadline;
pub mod whole;
