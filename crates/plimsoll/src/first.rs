//! The first of two futures, as `tokio::select!` has it, without the procedural macros of tokio: a
//! server that needs nothing else would build five crates for them.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// Waits for one of two futures. The one before wins when both are ready.
pub(crate) async fn first<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(output),
        Poll::Pending => other.as_mut().poll(cx),
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn ready_future_wins_and_the_one_before_wins_a_tie() {
        assert_eq!(first(pending(), ready(2)).await, 2);
        assert_eq!(first(ready(1), pending()).await, 1);
        assert_eq!(first(ready(1), ready(2)).await, 1);
    }
}
