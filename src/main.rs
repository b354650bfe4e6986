//! The `portcullis` binary: parses arguments, dispatches, exits.

fn main() {}
