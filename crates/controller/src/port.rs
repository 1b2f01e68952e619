//! Where handlers leave actions and wait for ZooKeeper.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use gracchus_registry::{ZkOp, ZkResult};

use crate::action::Action;

#[derive(Debug, Default)]
struct State {
    actions: Vec<Action>,
    now_ms: i64,
    last_token: u64,
    /// The batch that the event at work waits for.
    awaited: Option<u64>,
    results: Option<Vec<ZkResult>>,
}

/// Shared by the queue and the event at work; never locked across a wait.
#[derive(Debug, Clone, Default)]
pub(crate) struct Port(Arc<Mutex<State>>);

impl Port {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_now(&self, now_ms: i64) {
        self.lock().now_ms = now_ms;
    }

    pub fn now_ms(&self) -> i64 {
        self.lock().now_ms
    }

    pub fn act(&self, action: Action) {
        self.lock().actions.push(action);
    }

    pub fn take_actions(&self) -> Vec<Action> {
        std::mem::take(&mut self.lock().actions)
    }

    /// Results came; false when nobody waits for them.
    pub fn deliver(&self, token: u64, results: Vec<ZkResult>) -> bool {
        let mut state = self.lock();
        if state.awaited != Some(token) {
            return false;
        }
        state.awaited = None;
        state.results = Some(results);
        true
    }

    /// Runs operations, pipelined; a result each, in order.
    pub async fn zk(&self, ops: Vec<ZkOp>) -> Vec<ZkResult> {
        if ops.is_empty() {
            return Vec::new();
        }
        {
            let mut state = self.lock();
            state.last_token += 1;
            let token = state.last_token;
            state.awaited = Some(token);
            state.actions.push(Action::Zk { token, ops });
        }
        poll_fn(|_| match self.lock().results.take() {
            Some(results) => Poll::Ready(results),
            None => Poll::Pending,
        })
        .await
    }
}
