//! Kafka's requests, responses and stored records: generated types, encoder and decoder. No I/O.
