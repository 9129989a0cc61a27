//! Times as people read them.

use std::time::Duration;

use jiff::{Timestamp, tz::TimeZone};
use tokio::time::Instant;

/// Stands for "never" where an instant cannot be represented: thirty years.
const FAR: Duration = Duration::from_hours(30 * 365 * 24);

/// Returns the instant after a duration that a person chose, which may be any.
pub(super) fn deadline(after: Duration) -> Instant {
    Instant::now() + after.min(FAR)
}

/// Returns a duration in its two largest units: `3s`, `2m 05s`, `4h 10m`, `3d 2h`.
pub(super) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m {:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h {:02}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or_default()
}

/// Returns how long it is from one time to another.
pub(super) fn from_to(earlier: Timestamp, later: Timestamp) -> String {
    span(between(earlier, later))
}

/// Returns how long ago a time is.
pub(super) fn ago(time: Timestamp) -> String {
    from_to(time, Timestamp::now())
}

/// Returns how long it is until a time, rounded up, so that nothing is due before it reads zero.
pub(super) fn left(time: Timestamp) -> String {
    let left = between(Timestamp::now(), time);
    let up = u64::from(left.subsec_nanos() > 0);
    span(Duration::from_secs(left.as_secs() + up))
}

/// Returns the time of day here.
pub(super) fn clock(time: Timestamp) -> String {
    time.to_zoned_datetime(TimeZone::system()).strftime("%H:%M:%S").to_string()
}

/// Returns when something was recorded: the time of day, or more of it where that would mislead.
pub(super) fn as_of(time: Timestamp) -> String {
    let age = between(time, Timestamp::now());
    let at = if age < Duration::from_hours(12) { clock(time) } else { rfc3339(time) };
    format!("{at} ({} ago)", span(age))
}

/// Returns a time in RFC 3339, to the second.
pub(super) fn rfc3339(time: Timestamp) -> String {
    format!("{time:.0}")
}

/// Returns a time with how far it is from now.
pub(super) fn until(time: Timestamp) -> String {
    format!("{} (in {})", rfc3339(time), left(time))
}

/// Returns a time with how long ago it was.
pub(super) fn since(time: Timestamp) -> String {
    format!("{} ({} ago)", rfc3339(time), ago(time))
}
