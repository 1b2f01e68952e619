//! Which partition of `__consumer_offsets` a group lives in.

/// Java's `String.hashCode`: over UTF-16 units, wrapping at 32 bits.
pub fn java_string_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}

/// The partition of `group_id` (or of a transactional id, in `__transaction_state`) among `partitions`:
/// the absolute value of the hash, 0 for `i32::MIN`, modulo the count. Not the clients' partitioner.
pub fn partition_for(group_id: &str, partitions: i32) -> i32 {
    java_string_hash(group_id).checked_abs().unwrap_or(0) % partitions.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_as_java_does() {
        assert_eq!(java_string_hash(""), 0);
        assert_eq!(java_string_hash("hello"), 99_162_322);
        // "polygenelubricants".hashCode() is Integer.MIN_VALUE, whose absolute value Kafka takes as 0
        assert_eq!(java_string_hash("polygenelubricants"), i32::MIN);
        assert_eq!(partition_for("polygenelubricants", 50), 0);
        // outside the basic plane: two surrogates
        assert_eq!(java_string_hash("\u{1F600}"), 0xD83D * 31 + 0xDE00);
    }

    #[test]
    fn negative_hashes_are_made_positive_not_masked() {
        // "my-group-1": whichever sign, the result is the absolute value modulo the count
        for id in ["my-group", "console-consumer-12345", "g", "connect-cluster"] {
            let hash = i64::from(java_string_hash(id));
            assert_eq!(i64::from(partition_for(id, 50)), hash.abs() % 50);
        }
    }
}
