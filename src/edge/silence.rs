//! A deadline that moves with every sign of life and costs nothing while it does.
//!
//! The timer is not touched when the deadline moves: when it fires, it looks at when the last sign
//! was and is set again for the rest. A busy connection's timer fires once in its whole period.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Measures how long something has been silent.
#[derive(Debug)]
pub struct Silence {
    since: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Default for Silence {
    /// Silent from now on.
    fn default() -> Self {
        Silence { since: Instant::now(), timer: None }
    }
}

impl Silence {
    /// A sign of life.
    pub fn broken(&mut self) {
        self.since = Instant::now();
    }

    /// Ready when it has been silent for `limit`; else wakes the task when it may have been.
    pub fn poll_exceeded(&mut self, limit: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let due = self.since + limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        while timer.as_mut().poll(cx).is_ready() {
            if due <= Instant::now() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    const LIMIT: Duration = Duration::from_millis(40);

    #[tokio::test]
    async fn silence_is_exceeded_after_its_limit() {
        let mut silence = Silence::default();
        let begun = Instant::now();
        poll_fn(|cx| silence.poll_exceeded(LIMIT, cx)).await;
        assert!(begun.elapsed() >= LIMIT);
    }

    #[tokio::test]
    async fn a_sign_of_life_begins_it_anew() {
        let mut silence = Silence::default();
        let begun = Instant::now();
        assert!(poll_fn(|cx| Poll::Ready(silence.poll_exceeded(LIMIT, cx))).await.is_pending());
        while begun.elapsed() < LIMIT / 2 {
            tokio::task::yield_now().await;
        }
        silence.broken();
        poll_fn(|cx| silence.poll_exceeded(LIMIT, cx)).await;
        assert!(begun.elapsed() >= LIMIT + LIMIT / 2);
    }
}
