//! The command line: parses it and wires the rooms together.

fn main() {}
