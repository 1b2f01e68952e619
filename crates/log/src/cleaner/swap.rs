//! Putting a cleaned segment in the place of those it was made from, so that a crash at any step is either undone or
//! finished at the next start (`partition::open`): rename to `.swap`, rename the old ones to `.deleted`, drop `.swap`.

use crate::error::LogError;
use crate::partition::PartitionLog;
use crate::segment::Segment;

impl PartitionLog {
    /// Swaps `cleaned` (its files complete, on the device and named `.cleaned`) in for the segments with these serials. An
    /// error before the first rename changes nothing. The new names are the caller's to flush, without the log's lock.
    pub(crate) fn swap_in(
        &mut self,
        mut cleaned: Segment,
        serials: &[u64],
        now_ms: i64,
    ) -> Result<(), LogError> {
        let base = cleaned.base_offset();
        let all = self.segments_mut();
        let at = all
            .iter()
            .position(|s| Some(&s.serial()) == serials.first());
        let there = at.is_some_and(|at| {
            let held = all.iter().skip(at).take(serials.len()).map(Segment::serial);
            held.eq(serials.iter().copied()) && at + serials.len() < all.len()
        });
        let Some(at) = at.filter(|_| there) else {
            return Err(LogError::Conflict(format!(
                "{}: its segments changed while they were cleaned; it is tried again",
                self.topic_partition()
            )));
        };
        self.check_online()?;
        cleaned.rename(".swap")?;
        let all = self.segments_mut();
        let mut rest = all.split_off(at);
        let newer = rest.split_off(serials.len());
        all.push(cleaned);
        for segment in newer {
            all.push(segment);
        }
        let upper = self.segments_mut().get(at + 1).map(Segment::base_offset);
        self.forget_positions_below(upper.unwrap_or(i64::MAX));
        self.discard_but(rest, Some(base), now_ms)?;
        match self.segments_mut().get_mut(at) {
            Some(cleaned) => cleaned.rename(""),
            None => Ok(()),
        }
    }
}
