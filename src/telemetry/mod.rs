//! What we tell the operator: the process log, metrics and the access log.
