//! The door: sockets, accept loops, TLS handshakes and the stream handed to the proxy.
//!
//! Each address is bound once ([`listener`]), also while others serve ([`listener_set`]); every worker
//! gets its own duplicate of the socket and runs its own accept loops ([`worker`], [`post`]), so a
//! connection lives and dies on one thread. Who may come in is settled before anything else is read
//! ([`admission`]): the PROXY protocol ([`proxy_header`]), addresses, numbers ([`census`]). A connection
//! is told apart by its first byte, handshaken with the certificates of the serving snapshot
//! ([`accept`]), wrapped in a buffered stream ([`stream`]) and handed to the application one request at a
//! time ([`http`]); between requests it waits outside of it ([`idle`]).
//! What the door learnt about it travels along as a [`connection::Connection`]. The door knows
//! little of HTTP: where a request ends and the next begins ([`framing`]), how large a header
//! block is ([`head`]), what its first line may not have ([`request_line`]) and how long it takes, the
//! life of an HTTP/2 connection ([`http2`]), and how a head that reaches no hook is refused ([`refusal`]).

pub mod accept;
pub mod admission;
pub mod census;
pub mod closing;
pub mod connection;
pub mod deadline;
pub mod drain;
pub mod framing;
pub mod head;
pub mod http;
pub mod http2;
pub mod idle;
pub mod listener;
pub mod listener_set;
pub mod post;
pub mod proxy_header;
pub mod refusal;
pub mod request_line;
pub mod share;
pub mod silence;
pub mod socket;
pub mod stream;
pub mod transport;
pub mod websocket;
pub mod worker;
