//! One configuration, compiled.
