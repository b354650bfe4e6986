//! Where a request is sent: pools of endpoints and the choice among them.
