//! A call from its caller's side: find a route, hand over, wait, and go elsewhere with what was not executed.

use std::{
    future::poll_fn,
    pin::Pin,
    task::Poll,
    time::{Duration, Instant},
};

use crate::{
    error::CheckError,
    request::Request,
    servers::{Servers, SubmitError},
    slots::{Answer, Outcome},
    ticket::Ticket,
};

/// One request, which has `time` in all.
pub(crate) async fn one(servers: &Servers, time: Duration, request: Request<'_>) -> Answer {
    request.verify(None, servers.registry().client_id())?;
    let deadline = deadline(time);
    loop {
        match ask(servers, &request, deadline).await {
            Ok(Outcome::One(answer)) => return answer,
            Ok(Outcome::Failed(error)) if !may_repeat(&error, &request) => return Err(error),
            Ok(_) | Err(SubmitError::Moved) => {}
            Err(SubmitError::NoRoute) => servers.wait_for_route(deadline).await?,
            Err(SubmitError::Final(error)) => return Err(error),
        }
    }
}

/// Hands a request over and waits for its outcome.
async fn ask(servers: &Servers, request: &Request<'_>, deadline: Instant) -> Result<Outcome, SubmitError> {
    let mut ticket: Option<Ticket> = None;
    // The caller is known to its slot from the start, so that the first poll is also the only one before the outcome.
    poll_fn(|context| match &mut ticket {
        Some(ticket) => Pin::new(ticket).poll(context).map(Ok),
        None => match servers.submit(request, deadline, context.waker()) {
            Ok(handed_over) => {
                ticket = Some(handed_over);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        },
    })
    .await
}

/// Whether a request that failed may be sent again.
pub(crate) fn may_repeat(error: &CheckError, request: &Request<'_>) -> bool {
    matches!(error, CheckError::Ambiguous { .. }) && request.is_repeatable()
}

/// When a call that starts now has had its time.
pub(crate) fn deadline(time: Duration) -> Instant {
    tokio::time::Instant::now().into_std() + time
}
