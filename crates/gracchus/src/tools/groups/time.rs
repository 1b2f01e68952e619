//! Points in time and durations as Java's tools take them.

/// `YYYY-MM-DDTHH:mm:SS.sss`, with `Z`, `+HH`, `+HHmm` or `+HH:mm` behind it, in ms since the epoch. Without a zone it is
/// UTC.
pub(super) fn datetime(text: &str) -> Option<i64> {
    let (date, time) = text.split_once('T')?;
    let mut date = date.split('-');
    let (year, month, day) = (date.next()?, date.next()?, date.next()?);
    if date.next().is_some() {
        return None;
    }
    let (time, zone) = match time.find(['Z', '+', '-']) {
        Some(at) => time.split_at_checked(at)?,
        None => (time, ""),
    };
    let mut time = time.split(':');
    let (hour, minute, second) = (time.next()?, time.next()?, time.next().unwrap_or("0"));
    if time.next().is_some() {
        return None;
    }
    let (second, fraction) = second.split_once('.').unwrap_or((second, "0"));
    let days = days_from_epoch(number(year)?, number(month)?, number(day)?)?;
    let seconds = number(hour)? * 3600 + number(minute)? * 60 + number(second)?;
    // as Java reads it, the digits behind the point are a number of milliseconds
    let ms = (days * 86_400 + seconds) * 1000 + number(fraction)?;
    Some(ms - zone_minutes(zone)? * 60_000)
}

fn number(text: &str) -> Option<i64> {
    if text.is_empty() || text.len() > 6 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn zone_minutes(zone: &str) -> Option<i64> {
    if zone.is_empty() || zone == "Z" {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let digits: String = zone.get(1..)?.chars().filter(|c| *c != ':').collect();
    let (hours, minutes) = match digits.len() {
        2 => (digits.as_str(), "0"),
        4 => digits.split_at_checked(2)?,
        _ => return None,
    };
    Some(sign * (number(hours)? * 60 + number(minutes)?))
}

/// Days of the Gregorian calendar since 1970-01-01.
fn days_from_epoch(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // years that begin in March put the leap day last
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let of_era = y.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let of_era_days = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    Some(era * 146_097 + of_era_days - 719_468)
}

/// `PnDTnHnMn.nS` in ms; parts may be negative.
pub(super) fn duration(text: &str) -> Option<i64> {
    let text = text.to_uppercase();
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.as_str()),
    };
    let rest = rest.strip_prefix('P')?;
    let (days, time) = rest.split_once('T').unwrap_or((rest, ""));
    let mut total = 0.0;
    let mut parts = 0;
    for (mut text, units) in [
        (days, &[('D', 86_400_000.0)][..]),
        (
            time,
            &[('H', 3_600_000.0), ('M', 60_000.0), ('S', 1000.0)][..],
        ),
    ] {
        for (unit, ms) in units {
            if let Some((count, rest)) = text.split_once(*unit) {
                total += count.parse::<f64>().ok()? * ms;
                parts += 1;
                text = rest;
            }
        }
        if !text.is_empty() {
            return None;
        }
    }
    if parts == 0 || !f64::is_finite(total) {
        return None;
    }
    let ms = total.round() as i64;
    Some(if negative { -ms } else { ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_in_time() {
        assert_eq!(datetime("1970-01-01T00:00:00.000"), Some(0));
        assert_eq!(datetime("2023-11-14T22:13:20.123"), Some(1_700_000_000_123));
        assert_eq!(
            datetime("2023-11-14T23:13:20.000+01:00"),
            Some(1_700_000_000_000)
        );
        assert_eq!(
            datetime("2023-11-14T17:13:20.000-0500"),
            Some(1_700_000_000_000)
        );
        assert_eq!(
            datetime("2023-11-14T22:13:20.000Z"),
            Some(1_700_000_000_000)
        );
        assert_eq!(datetime("2000-02-29T00:00:00.000"), Some(951_782_400_000));
        for bad in ["", "2023-11-14", "2023-13-01T00:00:00.000", "a-b-cTd:e:f"] {
            assert_eq!(datetime(bad), None, "{bad}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("P1DT2H3M4.5S"), Some(93_784_500));
        assert_eq!(duration("PT5M"), Some(300_000));
        assert_eq!(duration("-PT1S"), Some(-1000));
        for bad in ["", "P", "PT", "5M", "PT5", "P5M"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }
}
