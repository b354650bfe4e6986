//! The door: sockets, accept loops, TLS handshakes and the buffered stream handed to the proxy.
