//! The group coordinator as a state machine, and its stored records. No I/O.
