//! The shell around the controller.
