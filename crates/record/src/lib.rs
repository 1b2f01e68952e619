//! Record batches, legacy message sets, compression and checksums. No I/O.
