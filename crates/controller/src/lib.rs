//! The controller's state machines: events in, actions out. No I/O.
