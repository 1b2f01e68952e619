//! Start-up order, registration, shutdown.
