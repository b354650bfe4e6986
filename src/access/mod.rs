//! Who may talk to us: CIDR policies and the real client address.
