//! What keeps one client from starving the others: connection counts, the memory of requests in progress, and the rate
//! of log lines that strangers can cause.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// `max.connections`, `max.connections.per.ip` and its overrides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// All listeners together.
    pub total: usize,
    /// From one address.
    pub per_ip: usize,
    /// From these addresses instead.
    pub overrides: HashMap<IpAddr, usize>,
}

impl ConnectionLimits {
    /// From the broker's keys; `overrides` is `host:count,...` (host names are resolved by the caller's system).
    pub fn new(total: i32, per_ip: i32, overrides: &str) -> Self {
        let limit = |n: i32| usize::try_from(n).unwrap_or(0);
        let mut by_ip = HashMap::new();
        for entry in crate::config::value::split_list(overrides) {
            let Some((host, count)) = entry.rsplit_once(':') else {
                continue;
            };
            let Ok(count) = count.trim().parse::<usize>() else {
                continue;
            };
            let host = host.trim().trim_matches(|c| c == '[' || c == ']');
            if let Ok(ip) = host.parse::<IpAddr>() {
                by_ip.insert(ip, count);
            } else if let Ok(resolved) = std::net::ToSocketAddrs::to_socket_addrs(&(host, 0)) {
                by_ip.extend(resolved.map(|a| (a.ip().to_canonical(), count)));
            }
        }
        Self {
            total: limit(total),
            per_ip: limit(per_ip),
            overrides: by_ip,
        }
    }

    fn for_ip(&self, ip: IpAddr) -> usize {
        self.overrides.get(&ip).copied().unwrap_or(self.per_ip)
    }
}

#[derive(Debug)]
struct Counts {
    limits: ConnectionLimits,
    total: usize,
    by_ip: HashMap<IpAddr, usize>,
}

/// Counts open connections.
#[derive(Debug)]
pub struct ConnectionCounter {
    counts: Mutex<Counts>,
    freed: Notify,
}

/// Why a connection is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyFromAddress {
    /// The limit that holds for it.
    pub limit: usize,
}

/// One counted connection; dropping it frees the place.
#[derive(Debug)]
pub struct ConnectionPlace {
    counter: Arc<ConnectionCounter>,
    ip: IpAddr,
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        {
            let mut counts = self.counter.counts.lock();
            counts.total = counts.total.saturating_sub(1);
            if let Some(n) = counts.by_ip.get_mut(&self.ip) {
                *n = n.saturating_sub(1);
                if *n == 0 {
                    counts.by_ip.remove(&self.ip);
                }
            }
        }
        self.counter.freed.notify_one();
    }
}

impl ConnectionCounter {
    /// None open yet.
    pub fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self {
            counts: Mutex::new(Counts {
                limits,
                total: 0,
                by_ip: HashMap::new(),
            }),
            freed: Notify::new(),
        })
    }

    /// New limits; connections that are open stay open.
    pub fn set_limits(&self, limits: ConnectionLimits) {
        self.counts.lock().limits = limits;
        self.freed.notify_waiters();
    }

    /// Open connections.
    pub fn open(&self) -> usize {
        self.counts.lock().total
    }

    /// Waits until another connection may be open at all (`max.connections`). Kafka too lets the rest queue in the
    /// listen backlog.
    pub async fn wait_for_room(&self) {
        loop {
            let notified = self.freed.notified();
            {
                let counts = self.counts.lock();
                if counts.total < counts.limits.total {
                    return;
                }
            }
            notified.await;
        }
    }

    /// Takes a place, unless the address holds too many.
    pub fn enter(self: &Arc<Self>, ip: IpAddr) -> Result<ConnectionPlace, TooManyFromAddress> {
        let mut counts = self.counts.lock();
        let limit = counts.limits.for_ip(ip);
        let held = counts.by_ip.entry(ip).or_insert(0);
        if *held >= limit {
            if *held == 0 {
                counts.by_ip.remove(&ip);
            }
            return Err(TooManyFromAddress { limit });
        }
        *held += 1;
        counts.total += 1;
        Ok(ConnectionPlace {
            counter: self.clone(),
            ip,
        })
    }
}

/// Memory for requests being read or worked on. Frames that fit in a shared buffer ([`FREE_FRAME`]) are not counted:
/// connections bound those.
#[derive(Debug, Clone)]
pub struct RequestMemory {
    permits: Arc<Semaphore>,
    total: u32,
}

/// Bytes of a frame that cost no permit.
pub const FREE_FRAME: usize = super::frame::SHARED_BUFFER;
const UNIT: usize = 1024;

impl RequestMemory {
    /// `bytes` in all; never less than one frame of the largest size.
    pub fn new(bytes: u64, largest_frame: usize) -> Self {
        let units = (bytes.max(largest_frame as u64) / UNIT as u64).saturating_add(1);
        let total = u32::try_from(units).unwrap_or(u32::MAX).min(u32::MAX >> 3);
        Self {
            permits: Arc::new(Semaphore::new(total as usize)),
            total,
        }
    }

    /// Waits until a frame of this size fits.
    pub async fn take(&self, frame: usize) -> Option<OwnedSemaphorePermit> {
        if frame <= FREE_FRAME {
            return None;
        }
        let units = u32::try_from(frame.div_ceil(UNIT))
            .unwrap_or(u32::MAX)
            .min(self.total);
        self.permits.clone().acquire_many_owned(units).await.ok()
    }
}

/// Lets through a few lines an interval and counts the rest.
#[derive(Debug)]
pub struct LineLimiter {
    state: Mutex<(Option<Instant>, u32, u64)>,
    lines: u32,
    interval: Duration,
}

impl LineLimiter {
    /// At most `lines` in each `interval`.
    pub fn new(lines: u32, interval: Duration) -> Self {
        Self {
            state: Mutex::new((None, 0, 0)),
            lines,
            interval,
        }
    }

    /// `Some(n)`: say it, and that `n` lines before it were left out. `None`: say nothing.
    pub fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        let (begun, said, left_out) = &mut *state;
        if begun.is_none_or(|b| now.duration_since(b) >= self.interval) {
            *begun = Some(now);
            *said = 0;
        }
        if *said < self.lines {
            *said += 1;
            Some(std::mem::take(left_out))
        } else {
            *left_out += 1;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_address_and_frees() {
        let counter = ConnectionCounter::new(ConnectionLimits::new(10, 2, "10.0.0.1:1,[::1]:0"));
        let ip = |s: &str| s.parse::<IpAddr>().unwrap();
        let first = counter.enter(ip("10.0.0.2")).unwrap();
        let _second = counter.enter(ip("10.0.0.2")).unwrap();
        assert_eq!(counter.enter(ip("10.0.0.2")).unwrap_err().limit, 2);
        drop(first);
        assert!(counter.enter(ip("10.0.0.2")).is_ok());
        let _one = counter.enter(ip("10.0.0.1")).unwrap();
        assert_eq!(counter.enter(ip("10.0.0.1")).unwrap_err().limit, 1);
        assert_eq!(counter.enter(ip("::1")).unwrap_err().limit, 0);
    }

    #[tokio::test]
    async fn waits_for_room() {
        let counter = ConnectionCounter::new(ConnectionLimits::new(1, 5, ""));
        let place = counter.enter("10.0.0.1".parse().unwrap()).unwrap();
        let waiting = tokio::spawn({
            let counter = counter.clone();
            async move { counter.wait_for_room().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(place);
        waiting.await.unwrap();
    }

    #[test]
    fn lines_are_limited() {
        let limiter = LineLimiter::new(2, Duration::from_secs(1));
        let t = Instant::now();
        assert_eq!(limiter.admit(t), Some(0));
        assert_eq!(limiter.admit(t), Some(0));
        assert_eq!(limiter.admit(t), None);
        assert_eq!(limiter.admit(t), None);
        assert_eq!(limiter.admit(t + Duration::from_secs(1)), Some(2));
    }

    #[tokio::test]
    async fn large_frames_take_turns() {
        let memory = RequestMemory::new(0, 400 * 1024);
        assert!(memory.take(FREE_FRAME).await.is_none());
        let first = memory.take(400 * 1024).await.unwrap();
        let second = tokio::spawn({
            let memory = memory.clone();
            async move { memory.take(400 * 1024).await.is_some() }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        assert!(second.await.unwrap());
    }
}
