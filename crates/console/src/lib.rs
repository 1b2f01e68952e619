//! The console port: health and metrics now, pages later.
