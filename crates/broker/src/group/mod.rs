//! The shell around the group coordinator.
