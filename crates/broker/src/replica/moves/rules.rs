//! What the copy of a log needs next. Plain rules.

use gracchus_log::EpochEnd;

use crate::replica::fetcher::steps::LogView;
use crate::replica::fetcher::truncation::{Cut, cut};

/// The next step of a copy whose records are the log's, as far as it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It ends before the log begins, or after it ends: everything goes, and it begins here.
    Restart(i64),
    /// What comes after its end is to be appended.
    Copy,
    /// It has everything.
    CaughtUp,
}

/// See [`Next`].
pub fn next(current: &LogView, future: &LogView) -> Next {
    if future.end < current.start || future.end > current.end {
        Next::Restart(current.start)
    } else if future.end < current.end {
        Next::Copy
    } else {
        Next::CaughtUp
    }
}

/// Where a copy is cut so that its records are the log's: `current_end` and `future_end` say where an epoch ends in each.
/// None if nothing is to be cut for sure.
pub fn parting(
    current: &LogView,
    future: &LogView,
    current_end: impl Fn(i32) -> EpochEnd,
    future_end: impl Fn(i32) -> EpochEnd,
) -> Option<Cut> {
    if future.end == future.start {
        return None;
    }
    let found = match future.latest_epoch {
        Some(epoch) => cut(
            current_end(epoch),
            future_end,
            future.end,
            future.high_watermark,
        ),
        // Of a format without epochs: what was committed when it was copied is the log's.
        None => Cut {
            to: future.high_watermark.min(future.end),
            is_done: true,
        },
    };
    Some(Cut {
        to: found.to.min(current.end),
        ..found
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(start: i64, end: i64, epoch: Option<i32>) -> LogView {
        LogView {
            start,
            end,
            high_watermark: 15,
            latest_epoch: epoch,
        }
    }

    #[test]
    fn a_copy_goes_on_where_it_ends() {
        let current = log(10, 40, Some(4));
        for (future, expected) in [
            (log(0, 0, None), Next::Restart(10)),
            (log(0, 9, Some(1)), Next::Restart(10)),
            (log(10, 10, None), Next::Copy),
            (log(10, 39, Some(4)), Next::Copy),
            (log(10, 40, Some(4)), Next::CaughtUp),
            (log(10, 41, Some(4)), Next::Restart(10)),
        ] {
            assert_eq!(next(&current, &future), expected, "{future:?}");
        }
    }

    #[test]
    fn a_copy_is_cut_where_the_log_went_another_way() {
        let at = |epoch, end_offset| EpochEnd { epoch, end_offset };
        // The log: epoch 2 to 20, epoch 4 from there to its end at 40.
        let current_end = |epoch| match epoch {
            ..2 => at(epoch, 0),
            2..4 => at(2, 20),
            4 => at(4, 40),
            _ => at(-1, -1),
        };
        let current = log(0, 40, Some(4));
        let to = |future: LogView, own: &dyn Fn(i32) -> EpochEnd| {
            parting(&current, &future, current_end, own).map(|cut| (cut.to, cut.is_done))
        };
        let same = |_| at(4, 30);
        assert_eq!(to(log(0, 30, Some(4)), &same), Some((30, true)));
        // It has records of epoch 3, which the log has lost.
        let lost = |epoch| match epoch {
            2 => at(2, 25),
            _ => at(3, 30),
        };
        assert_eq!(to(log(0, 30, Some(3)), &lost), Some((20, true)));
        // And of an epoch later than any in the log: only what was committed is sure.
        assert_eq!(to(log(0, 60, Some(9)), &same), Some((15, true)));
        // Without epochs: the same.
        assert_eq!(to(log(0, 30, None), &same), Some((15, true)));
        assert_eq!(to(log(0, 0, None), &same), None, "nothing to cut");
        let short = log(0, 12, Some(1));
        let cut = parting(&short, &log(0, 30, None), current_end, same);
        assert_eq!(cut.map(|cut| cut.to), Some(12), "never beyond the log");
    }
}
